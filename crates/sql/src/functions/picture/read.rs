//! A number out of a text, by its picture.

use super::{Anchor, Node, Picture, ten_to};
use crate::types::{Numeric, Value};
use crate::{Error, Result, SqlState};

/// The number in a text.
pub(super) fn number(text: &str, picture: Picture) -> Result<Value> {
    if picture.exponent {
        return Err(Error::unsupported("\"EEEE\" for input"));
    }
    if picture.roman {
        return Err(Error::unsupported("\"RN\" for input"));
    }
    let mut reader = Reader {
        picture: &picture,
        // No part of a picture passes over more than four characters, or looks further than the one behind.
        input: text.chars().take(4 * picture.nodes.len() + 2).collect(),
        at: 0,
        sign: ' ',
        digits: String::new(),
        before: 0,
        behind: 0,
        point: false,
    };
    for node in &picture.nodes {
        if reader.at >= reader.input.len() {
            break;
        }
        reader.node(*node);
    }
    let digits = reader.digits.trim_end_matches('.');
    let number = Numeric::parse(&format!("{}{digits}", reader.sign))?;
    let scale = reader.behind;
    let precision = (picture.pre + picture.multi + scale).min(1000) as i32;
    if precision == 0 {
        let message = "NUMERIC precision 0 must be between 1 and 1000";
        return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    let mut number = number.fit((precision << 16 | scale as i32) + 4)?;
    if picture.shifted {
        number = number.mul(&ten_to(-(picture.multi as i64))?)?;
    }
    Ok(Value::Numeric(number))
}

struct Reader<'a> {
    picture: &'a Picture,
    input: Vec<char>,
    at: usize,
    /// Blank: none was read.
    sign: char,
    digits: String,
    before: usize,
    behind: usize,
    point: bool,
}

impl Reader<'_> {
    fn peek(&self) -> Option<char> {
        self.input.get(self.at).copied()
    }

    fn node(&mut self, node: Node) {
        match node {
            Node::Nine | Node::Zero | Node::Point => {
                self.digit(node);
                self.at += 1;
            }
            Node::Comma | Node::Group => {
                if !self.picture.fill && self.peek() == Some(',') {
                    self.at += 1;
                }
            }
            Node::Currency => self.skip(1),
            Node::Ordinal { .. } => {
                if !self.picture.point {
                    self.skip(2);
                }
            }
            Node::Minus | Node::Plus | Node::Sign => match self.peek() {
                Some(c @ '-') if node != Node::Plus => self.take_sign(c),
                Some(c @ '+') if node != Node::Minus => self.take_sign(c),
                _ => self.skip(1),
            },
            Node::Roman { .. } | Node::Silent => {}
            // Whatever stands there is passed over.
            Node::Literal(_) => self.at += 1,
        }
    }

    fn take_sign(&mut self, sign: char) {
        self.sign = sign;
        self.at += 1;
    }

    /// Passes over so many characters, but not over what belongs to a number.
    fn skip(&mut self, count: usize) {
        for _ in 0..count {
            match self.peek() {
                Some(c) if !c.is_ascii_digit() && !matches!(c, '.' | ',' | '+' | '-') => self.at += 1,
                _ => return,
            }
        }
    }

    fn digit(&mut self, node: Node) {
        if self.peek() == Some(' ') {
            self.at += 1;
        }
        let read = self.before + self.behind;
        if self.sign == ' ' && node != Node::Point && read == 0 {
            self.leading_sign();
        }
        let Some(c) = self.peek() else { return };
        let mut found = false;
        if c.is_ascii_digit() {
            if self.point && self.behind == self.picture.post {
                return;
            }
            self.digits.push(c);
            if self.point {
                self.behind += 1;
            } else {
                self.before += 1;
            }
            found = true;
        } else if self.picture.point && !self.point && c == '.' {
            self.digits.push('.');
            self.point = true;
            found = true;
        }
        if self.sign == ' ' && self.before + self.behind > 0 {
            self.trailing_sign(found);
        }
    }

    fn leading_sign(&mut self) {
        let Some(c) = self.peek() else { return };
        if self.picture.sign && self.picture.anchor == Anchor::Before {
            if matches!(c, '-' | '+') {
                self.take_sign(c);
            }
        } else if c == '-' || (self.picture.bracket && c == '<') {
            self.take_sign('-');
        } else if c == '+' {
            self.take_sign('+');
        }
    }

    fn trailing_sign(&mut self, found: bool) {
        if self.picture.sign {
            let next = self.input.get(self.at + 1).copied();
            if found && let Some(c @ ('-' | '+')) = next {
                self.take_sign(c);
            }
        } else if (self.picture.minus || self.picture.plus)
            && !found
            && let Some(c @ ('-' | '+')) = self.peek()
        {
            self.sign = c;
        }
    }
}
