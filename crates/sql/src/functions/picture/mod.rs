//! `to_char` of numbers, and `to_number`: numbers by a picture such as `999,990.00`.
//!
//! | module | job |
//! |---|---|
//! | `mod` | reading a picture |
//! | `write` | a number into a picture |
//! | `read` | a number out of a text, by its picture |
//!
//! The rules are those of PostgreSQL's formatting code, in the C locale: `G` is a comma, `D` a point, `L` a blank.

mod read;
mod write;

use super::arguments::{float, int, numeric, text};
use super::string::picture;
use super::{Call, Function};
use crate::types::{Numeric, Value};
use crate::{Error, Result, SqlState};

/// What stands at a place of a picture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Node {
    Nine,
    Zero,
    /// `.` and `D`
    Point,
    Comma,
    /// `G`
    Group,
    /// `L`
    Currency,
    /// `RN`; in lower case: `rn`
    Roman {
        lower: bool,
    },
    /// `TH`; in lower case: `th`
    Ordinal {
        lower: bool,
    },
    /// `MI`
    Minus,
    /// `PL`
    Plus,
    /// `SG`
    Sign,
    /// What has its effect elsewhere.
    Silent,
    /// A character that means itself.
    Literal(char),
}

/// Where the sign of `S` stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Anchor {
    #[default]
    None,
    Before,
    Behind,
}

/// A picture, and what follows from it.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "they are the picture's elements")]
struct Picture {
    nodes: Vec<Node>,
    /// Digits before the point.
    pre: usize,
    /// Digits behind it.
    post: usize,
    /// Digits behind `V`.
    multi: usize,
    anchor: Anchor,
    /// Digits before `S`.
    pre_anchor: usize,
    /// The place of the first 0, from 1.
    zero_start: usize,
    /// The place of the last 0.
    zero_end: usize,
    point: bool,
    zero: bool,
    blank: bool,
    fill: bool,
    sign: bool,
    bracket: bool,
    minus: bool,
    plus: bool,
    roman: bool,
    shifted: bool,
    exponent: bool,
}

fn wrong(message: &'static str) -> Error {
    Error::new(SqlState::SYNTAX_ERROR, message)
}

/// Elements in upper case, those first that begin as others do.
const ELEMENTS: &[&str] = &[
    "EEEE", "FM", "MI", "PL", "PR", "RN", "SG", "SP", "TH", ",", ".", "0", "9", "B", "C", "D", "G", "L", "S",
    "V",
];

impl Picture {
    fn parse(picture: &str) -> Result<Self> {
        let mut result = Picture::default();
        let mut rest = picture;
        while let Some(first) = rest.chars().next() {
            if let Some((element, lower)) = find_element(rest) {
                result.add(element, lower)?;
                rest = &rest[element.len()..];
            } else if first == '"' {
                rest = result.quoted(&rest[1..]);
            } else {
                let escaped = rest.strip_prefix('\\').filter(|behind| behind.starts_with('"'));
                rest = escaped.unwrap_or(rest);
                let c = rest.chars().next().unwrap_or(first);
                result.nodes.push(Node::Literal(c));
                rest = &rest[c.len_utf8()..];
            }
        }
        Ok(result)
    }

    /// Takes what stands in quotes; gives what stands behind them.
    fn quoted<'a>(&mut self, text: &'a str) -> &'a str {
        let mut characters = text.char_indices();
        while let Some((at, mut c)) = characters.next() {
            if c == '"' {
                return &text[at + 1..];
            }
            if c == '\\'
                && let Some((_, escaped)) = characters.next()
            {
                c = escaped;
            }
            self.nodes.push(Node::Literal(c));
        }
        ""
    }

    fn add(&mut self, element: &str, lower: bool) -> Result<()> {
        if self.exponent && element != "EEEE" {
            return Err(wrong("\"EEEE\" must be the last pattern used"));
        }
        let mut node = Node::Silent;
        match element {
            "9" => {
                node = Node::Nine;
                self.digit(false)?;
            }
            "0" => {
                node = Node::Zero;
                self.digit(true)?;
            }
            "." | "D" => {
                node = Node::Point;
                if self.point {
                    return Err(wrong("multiple decimal points"));
                }
                if self.shifted {
                    return Err(wrong("cannot use \"V\" and decimal point together"));
                }
                self.point = true;
            }
            "," => node = Node::Comma,
            "G" => node = Node::Group,
            "L" => node = Node::Currency,
            "B" => self.blank |= self.pre == 0 && self.post == 0 && !self.zero,
            "FM" => self.fill = true,
            "S" => self.add_sign()?,
            "MI" | "PL" | "SG" => node = self.add_separate_sign(element)?,
            "PR" => {
                if self.sign || self.plus || self.minus {
                    return Err(wrong("cannot use \"PR\" and \"S\"/\"PL\"/\"MI\"/\"SG\" together"));
                }
                self.bracket = true;
            }
            "RN" => {
                node = Node::Roman { lower };
                self.roman = true;
            }
            "TH" => node = Node::Ordinal { lower },
            "V" => {
                if self.point {
                    return Err(wrong("cannot use \"V\" and decimal point together"));
                }
                self.shifted = true;
            }
            "EEEE" => self.add_exponent()?,
            _ => {}
        }
        self.nodes.push(node);
        Ok(())
    }

    fn digit(&mut self, zero: bool) -> Result<()> {
        if self.bracket {
            return Err(wrong(if zero {
                "\"0\" must be ahead of \"PR\""
            } else {
                "\"9\" must be ahead of \"PR\""
            }));
        }
        if self.shifted && !zero {
            self.multi += 1;
            return Ok(());
        }
        if zero && !self.zero && !self.point {
            self.zero = true;
            self.zero_start = self.pre + 1;
        }
        if self.point {
            self.post += 1;
        } else {
            self.pre += 1;
        }
        if zero {
            self.zero_end = self.pre + self.post;
        }
        Ok(())
    }

    fn add_sign(&mut self) -> Result<()> {
        if self.sign {
            return Err(wrong("cannot use \"S\" twice"));
        }
        if self.plus || self.minus || self.bracket {
            return Err(wrong("cannot use \"S\" and \"PL\"/\"MI\"/\"SG\"/\"PR\" together"));
        }
        self.sign = true;
        if self.point {
            self.anchor = Anchor::Behind;
        } else {
            self.anchor = Anchor::Before;
            self.pre_anchor = self.pre;
        }
        Ok(())
    }

    fn add_separate_sign(&mut self, element: &str) -> Result<Node> {
        if self.sign {
            return Err(wrong(match element {
                "MI" => "cannot use \"S\" and \"MI\" together",
                "PL" => "cannot use \"S\" and \"PL\" together",
                _ => "cannot use \"S\" and \"SG\" together",
            }));
        }
        self.minus |= element != "PL";
        self.plus |= element != "MI";
        Ok(match element {
            "MI" => Node::Minus,
            "PL" => Node::Plus,
            _ => Node::Sign,
        })
    }

    fn add_exponent(&mut self) -> Result<()> {
        if self.exponent {
            return Err(wrong("cannot use \"EEEE\" twice"));
        }
        let others = self.blank || self.fill || self.sign || self.bracket || self.minus || self.plus;
        if others || self.roman || self.shifted {
            return Err(wrong("\"EEEE\" is incompatible with other formats")
                .detail("\"EEEE\" may only be used together with digit and decimal point patterns."));
        }
        self.exponent = true;
        Ok(())
    }
}

/// The element that a picture begins with, and whether it is in lower case.
fn find_element(rest: &str) -> Option<(&'static str, bool)> {
    ELEMENTS.iter().find_map(|element| {
        let head = rest.get(..element.len())?;
        if head == *element {
            return Some((*element, false));
        }
        (head == element.to_ascii_lowercase()).then_some((*element, true))
    })
}

/// Ten to a power.
fn ten_to(power: i64) -> Result<Numeric> {
    Numeric::from(10_i64).power(&Numeric::from(power))
}

fn numeric_to_char(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    write::numeric(numeric(a, 0)?, Picture::parse(picture(call, a, 1)?)?)
}

fn int_to_char(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    write::int(int(a, 0)?, Picture::parse(picture(call, a, 1)?)?)
}

fn bigint_to_char(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    write::bigint(int(a, 0)?, Picture::parse(picture(call, a, 1)?)?)
}

fn float_to_char<const DIGITS: usize>(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    write::float(float(a, 0)?, DIGITS, Picture::parse(picture(call, a, 1)?)?)
}

fn to_number(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let picture = picture(call, a, 1)?;
    if picture.is_empty() {
        return Ok(Value::Null);
    }
    read::number(text(a, 0)?, Picture::parse(picture)?)
}

#[rustfmt::skip]
pub(super) const FUNCTIONS: &[Function] = functions! {
    1772 "to_char" (Numeric Text) Text.stable() = numeric_to_char;
    1773 "to_char" (Int4 Text) Text.stable() = int_to_char;
    1774 "to_char" (Int8 Text) Text.stable() = bigint_to_char;
    1775 "to_char" (Float4 Text) Text.stable() = float_to_char::<6>;
    1776 "to_char" (Float8 Text) Text.stable() = float_to_char::<15>;
    1777 "to_number" (Text Text) Numeric.stable() = to_number;
};
