//! A number into a picture.

use super::{Anchor, Node, Picture, ten_to};
use crate::types::{Numeric, Value};
use crate::{Error, Result, SqlState};

/// An exact number.
pub(super) fn numeric(value: &Numeric, mut picture: Picture) -> Result<Value> {
    if picture.roman {
        let number = value.round(0)?.to_i32()?;
        return finish(picture, roman(i64::from(number)), 0, ' ');
    }
    if picture.exponent {
        return Ok(Value::text(scientific(value, &picture)?));
    }
    let mut shifted = value.clone();
    if picture.shifted {
        shifted = value.mul(&ten_to(picture.multi as i64)?)?;
        picture.pre += picture.multi;
    }
    let text = shifted.round(picture.post as i32)?.to_string();
    fit(picture, &text)
}

/// A whole number.
pub(super) fn int(value: i64, mut picture: Picture) -> Result<Value> {
    if picture.roman {
        return finish(picture, roman(value), 0, ' ');
    }
    if picture.exponent {
        return Ok(Value::text(float_scientific(value as f64, picture.post)));
    }
    let mut text = value.to_string();
    if picture.shifted {
        text = Numeric::from(value).mul(&ten_to(picture.multi as i64)?)?.round(0)?.to_string();
        picture.pre += picture.multi;
    }
    if picture.post > 0 {
        text.push('.');
        text.extend(std::iter::repeat_n('0', picture.post));
    }
    fit(picture, &text)
}

/// A whole number that a float has not all digits of.
pub(super) fn bigint(value: i64, picture: Picture) -> Result<Value> {
    if picture.exponent {
        return Ok(Value::text(scientific(&Numeric::from(value), &picture)?));
    }
    if picture.roman && i32::try_from(value).is_err() {
        return Err(Error::out_of_range("integer"));
    }
    int(value, picture)
}

/// A float with so many significant digits.
pub(super) fn float(value: f64, digits: usize, mut picture: Picture) -> Result<Value> {
    if picture.roman {
        let rounded = value.round_ties_even();
        let number =
            if (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&rounded) { rounded as i64 } else { 0 };
        return finish(picture, roman(number), 0, ' ');
    }
    if picture.exponent {
        if !value.is_finite() {
            return Ok(Value::text(hashes_with_exponent(&picture)));
        }
        return Ok(Value::text(float_scientific(value, picture.post)));
    }
    let mut value = value;
    if picture.shifted {
        value *= 10_f64.powi(picture.multi as i32);
        picture.pre += picture.multi;
    }
    if !value.is_finite() {
        let text = if value.is_nan() {
            "NaN"
        } else if value > 0.0 {
            "Infinity"
        } else {
            "-Infinity"
        };
        return fit(picture, text);
    }
    let before = format!("{:.0}", value.abs()).len();
    picture.post = picture.post.min(digits.saturating_sub(before));
    let text = format!("{value:.*}", picture.post);
    fit(picture, &text)
}

/// Puts the text of a number into the picture: with blanks before it, or `#` where it has no room.
fn fit(picture: Picture, text: &str) -> Result<Value> {
    let (sign, text) = match text.strip_prefix('-') {
        Some(text) => ('-', text),
        None => ('+', text),
    };
    let before = text.find('.').unwrap_or(text.len());
    if before <= picture.pre {
        let blanks = picture.pre - before;
        return finish(picture, text.to_owned(), blanks, sign);
    }
    let mut hashes = "#".repeat(picture.pre + picture.post + 1);
    hashes.replace_range(picture.pre..=picture.pre, ".");
    finish(picture, hashes, 0, sign)
}

fn hashes_with_exponent(picture: &Picture) -> String {
    let mut hashes = "#".repeat(picture.pre + picture.post + 6);
    hashes.replace_range(..1, " ");
    hashes.replace_range(picture.pre + 1..picture.pre + 2, ".");
    hashes
}

/// `[-]d.dde+dd`, with a blank for a plus.
fn scientific(value: &Numeric, picture: &Picture) -> Result<String> {
    if !value.is_finite() {
        return Ok(hashes_with_exponent(picture));
    }
    let text = value.abs().to_string();
    let point = text.find('.').unwrap_or(text.len());
    // The power of ten of the first digit that counts.
    let exponent = match text.bytes().position(|c| (b'1'..=b'9').contains(&c)) {
        None => 0,
        Some(at) if at < point => (point - at) as i64 - 1,
        Some(at) => point as i64 - at as i64,
    };
    let power = ten_to(exponent.abs())?;
    let post = picture.post as i32;
    // A quotient has digits enough only where it is asked for them.
    let scaled =
        if exponent < 0 { value.abs().mul(&power)? } else { shift_right(&value.abs(), exponent as usize)? };
    let sign = if value.signum() < 0 { '-' } else { ' ' };
    let plus = if exponent < 0 { '-' } else { '+' };
    Ok(format!("{sign}{}e{plus}{:02}", scaled.round(post)?, exponent.unsigned_abs()))
}

/// The number divided by a power of ten, exactly.
fn shift_right(value: &Numeric, digits: usize) -> Result<Numeric> {
    let text = value.to_string();
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let padded = format!("{whole:0>width$}", width = digits + 1);
    let (head, tail) = padded.split_at(padded.len() - digits);
    Numeric::parse(&format!("{head}.{tail}{fraction}0"))
}

/// C's `%+.*e`, with a blank for a plus.
fn float_scientific(value: f64, post: usize) -> String {
    let text = format!("{:.*e}", post, value.abs());
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let sign = if value.is_sign_negative() { '-' } else { ' ' };
    let (plus, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ('-', exponent),
        None => ('+', exponent),
    };
    format!("{sign}{mantissa}e{plus}{exponent:0>2}")
}

fn roman(number: i64) -> String {
    const DIGITS: &[(i64, &str)] = &[
        (1000, "M"),
        (900, "CM"),
        (500, "D"),
        (400, "CD"),
        (100, "C"),
        (90, "XC"),
        (50, "L"),
        (40, "XL"),
        (10, "X"),
        (9, "IX"),
        (5, "V"),
        (4, "IV"),
        (1, "I"),
    ];
    if !(1..=3999).contains(&number) {
        return "#".repeat(15);
    }
    let (mut rest, mut out) = (number, String::new());
    for (value, digit) in DIGITS {
        while rest >= *value {
            out.push_str(digit);
            rest -= value;
        }
    }
    out
}

/// The number on its way into the picture.
struct Writer {
    picture: Picture,
    /// Its digits and point.
    number: Vec<u8>,
    /// Which of them is next.
    at: usize,
    out: String,
    sign: char,
    sign_written: bool,
    /// Whether a digit was written for the last place.
    within: bool,
    /// Places of digits that were passed.
    place: usize,
    blanks: usize,
    /// The last digit that counts, where zeros at the end are left out.
    last: Option<usize>,
    /// Places of digits.
    places: usize,
    /// The C code wrote the end of the string: what follows is lost.
    ended: bool,
}

fn finish(mut picture: Picture, number: String, blanks: usize, sign: char) -> Result<Value> {
    if picture.roman {
        let nodes = std::mem::take(&mut picture.nodes);
        picture = Picture { nodes, fill: picture.fill, roman: true, ..Picture::default() };
    }
    // From here on it counts from 0.
    picture.zero_start = picture.zero_start.saturating_sub(1);
    let mut sign_written = true;
    if picture.plus || picture.minus {
        sign_written = !picture.plus || picture.minus;
    } else {
        if sign != '-' && picture.fill {
            picture.bracket = false;
        }
        sign_written &= sign == '+' && picture.fill && !picture.sign;
        if picture.anchor == Anchor::Before && picture.pre == picture.pre_anchor {
            picture.anchor = Anchor::Behind;
        }
    }
    let number = number.into_bytes();
    let mut places = (picture.post + picture.pre) as i64 - 1;
    let mut last = None;
    if picture.fill && picture.point {
        last = last_relevant(&number);
        if let Some(relevant) = last
            && picture.zero_end > blanks
        {
            let zero = (number.len() - 1).min(picture.zero_end - blanks);
            last = Some(relevant.max(zero));
        }
    }
    if !sign_written && blanks == 0 {
        places += 1;
    }
    let places = places.max(0) as usize;
    let nodes = std::mem::take(&mut picture.nodes);
    let mut writer = Writer {
        picture,
        number,
        at: 0,
        out: String::new(),
        sign,
        sign_written,
        within: false,
        place: 0,
        blanks,
        last,
        places,
        ended: false,
    };
    for node in nodes {
        writer.node(node)?;
        if writer.ended {
            break;
        }
    }
    Ok(Value::text(writer.out))
}

/// The last digit behind the point that is not 0; the point where all are.
fn last_relevant(number: &[u8]) -> Option<usize> {
    let point = number.iter().position(|c| *c == b'.')?;
    Some(number.iter().rposition(|c| *c != b'0').map_or(point, |at| at.max(point)))
}

impl Writer {
    fn node(&mut self, node: Node) -> Result<()> {
        match node {
            Node::Nine | Node::Zero | Node::Point => self.digit(node),
            Node::Comma | Node::Group => {
                if self.within {
                    self.out.push(',');
                } else if !self.picture.fill {
                    self.out.push(' ');
                }
            }
            Node::Currency => self.out.push(' '),
            Node::Roman { lower } => {
                let mut text = String::from_utf8_lossy(&self.number).into_owned();
                if lower {
                    text.make_ascii_lowercase();
                }
                if self.picture.fill {
                    self.out.push_str(&text);
                } else {
                    self.out.push_str(&format!("{text:>15}"));
                }
            }
            Node::Ordinal { lower } => {
                let skipped = self.picture.roman || self.number.first() == Some(&b'#');
                if !skipped && self.sign != '-' && !self.picture.point {
                    let ending = ordinal(&self.number)?;
                    self.out.push_str(&if lower { ending.to_owned() } else { ending.to_ascii_uppercase() });
                }
            }
            Node::Minus if self.sign == '-' => self.out.push('-'),
            Node::Plus if self.sign == '+' => self.out.push('+'),
            Node::Minus | Node::Plus => {
                if !self.picture.fill {
                    self.out.push(' ');
                }
            }
            Node::Sign => self.out.push(self.sign),
            Node::Silent => {}
            Node::Literal(c) => self.out.push(c),
        }
        Ok(())
    }

    /// Whether the zero before the point is left out: `9.9` shows 0.1 as ` .1`.
    fn is_lone_zero(&self) -> bool {
        !self.picture.zero && self.at == 0 && self.number.first() == Some(&b'0') && self.picture.post != 0
    }

    fn ends_at_point(&self) -> bool {
        self.last.is_some_and(|last| self.number.get(last) == Some(&b'.'))
    }

    fn digit(&mut self, node: Node) {
        if self.picture.roman {
            return;
        }
        self.within = false;
        let reached =
            self.place >= self.blanks || (self.picture.zero && self.picture.zero_start == self.place);
        if !self.sign_written && reached && (!self.is_lone_zero() || self.ends_at_point()) {
            self.write_sign();
        }
        if self.place < self.blanks {
            if self.picture.zero && self.picture.zero_start <= self.place {
                self.out.push('0');
                self.within = true;
            } else if !self.picture.fill {
                self.out.push(' ');
            }
        } else {
            self.write_next(node);
            if self.at < self.number.len() {
                self.at += 1;
            }
        }
        let mut end = self.places + usize::from(self.blanks > 0) + usize::from(self.picture.point);
        if self.last == Some(self.at) {
            end = self.place;
        }
        if self.place + 1 == end {
            if self.sign_written && self.picture.bracket {
                self.out.push(if self.sign == '+' { ' ' } else { '>' });
            } else if self.picture.sign && self.picture.anchor == Anchor::Behind {
                self.out.push(self.sign);
            }
        }
        self.place += 1;
    }

    fn write_sign(&mut self) {
        if self.picture.sign {
            if self.picture.anchor == Anchor::Before {
                self.out.push(self.sign);
                self.sign_written = true;
            }
            return;
        }
        if self.picture.bracket {
            self.out.push(if self.sign == '+' { ' ' } else { '<' });
        } else if self.sign == '-' {
            self.out.push('-');
        } else if self.sign == '+' && !self.picture.fill {
            self.out.push(' ');
        }
        self.sign_written = true;
    }

    fn write_next(&mut self, node: Node) {
        match self.number.get(self.at) {
            None => self.ended = self.last.is_none_or(|last| self.at <= last || node == Node::Zero),
            Some(b'.') => {
                if !self.ends_at_point() || self.picture.fill {
                    self.out.push('.');
                }
            }
            Some(_) if self.last.is_some_and(|last| self.at > last) && node != Node::Zero => {}
            Some(_) if self.is_lone_zero() => {
                if !self.picture.fill {
                    self.out.push(' ');
                } else if self.ends_at_point() {
                    self.out.push('0');
                }
            }
            Some(digit) => {
                self.out.push(char::from(*digit));
                self.within = true;
            }
        }
    }
}

/// What makes a number an ordinal one.
fn ordinal(number: &[u8]) -> Result<&'static str> {
    let last = number.last().copied().unwrap_or(b' ');
    if !last.is_ascii_digit() {
        let message = format!("\"{}\" is not a number", String::from_utf8_lossy(number));
        return Err(Error::new(SqlState::INVALID_TEXT_REPRESENTATION, message));
    }
    let teen = number.len() > 1 && number[number.len() - 2] == b'1';
    Ok(match last {
        b'1' if !teen => "st",
        b'2' if !teen => "nd",
        b'3' if !teen => "rd",
        _ => "th",
    })
}
