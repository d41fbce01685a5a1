//! How long the text of a value will be, before it is made. A few levels of records make a text that no memory has room for of one character:
//! each level doubles the quotes of those within.

use super::{MAX_NAME, TextStyle};
use crate::types::{Type, Value};
use memchr::memchr2_iter;

/// What takes longer than this is not told apart: more than any memory has.
const MOST: usize = 1 << 40;
/// Longest text of a whole number, and of any value of no length of its own: a moment with its zone, a float.
const WHOLE: usize = 20;
const SHORT: usize = 48;

/// Bytes of the text of a value, from above and not far from it.
#[derive(Clone, Copy, Debug)]
pub struct TextSize {
    /// The text itself.
    pub text: usize,
    /// Texts of fields and elements, which are made beside it.
    pub beside: usize,
    /// Characters of it that quotes around it double.
    doubled: usize,
}

impl TextSize {
    /// Bytes of all that is made.
    pub fn all(self) -> usize {
        self.text + self.beside
    }
}

/// The size of what [`write`](super::write) makes of a value.
pub fn text_size(value: &Value, ty: Type, style: &TextStyle) -> TextSize {
    let plain = |text: usize| TextSize { text, beside: 0, doubled: 0 };
    match value {
        Value::Null => plain(0),
        Value::Int(_) => match ty {
            // In quotes, and each of its characters one that is doubled.
            Type::Regclass | Type::Regtype | Type::Regproc | Type::Regnamespace => {
                TextSize { doubled: 2 * MAX_NAME, ..plain(SHORT + 2 * MAX_NAME) }
            }
            Type::Date | Type::Timestamp | Type::TimestampTz => plain(SHORT),
            _ => plain(WHOLE),
        },
        Value::Bool(_) | Value::Float(_) => plain(SHORT),
        Value::Numeric(number) => {
            // A byte has less than three digits.
            let beside = 3 * number.heap_bytes();
            TextSize { beside, ..plain(SHORT + beside + usize::from(number.scale().unwrap_or(0))) }
        }
        Value::Text(text) | Value::Padded(text) => {
            let doubled = memchr2_iter(b'"', b'\\', text.as_bytes()).count();
            TextSize { doubled, ..plain(text.len()) }
        }
        Value::Bytes(bytes) if style.bytea_hex => TextSize { doubled: 1, ..plain(2 * bytes.len() + 2) },
        Value::Bytes(bytes) => TextSize { doubled: 2 * bytes.len(), ..plain(4 * bytes.len()) },
        Value::Array(array) => parts(array.values.iter().map(|value| (value, array.element)), style),
        Value::Record(record) => parts(record.values.iter().zip(record.types.iter().copied()), style),
    }
}

/// Of fields or elements, each in quotes and with what separates it from others, and what is around them.
fn parts<'v>(values: impl Iterator<Item = (&'v Value, Type)>, style: &TextStyle) -> TextSize {
    let mut whole = TextSize { text: SHORT, beside: 0, doubled: 0 };
    for (value, ty) in values {
        let part = text_size(value, ty, style);
        whole.text = (whole.text + part.text + part.doubled + "NULL,".len()).min(MOST);
        whole.doubled = (whole.doubled + 2 * part.doubled + 2).min(MOST);
        whole.beside = whole.beside.max(part.all()).min(MOST);
    }
    whole
}
