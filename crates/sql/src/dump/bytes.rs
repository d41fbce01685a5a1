//! Rows as they are stored, and their text: bytes that grow by a few at a time.

use crate::digits::{ASCII, eight};
use crate::escape::{escape, is_plain};

/// Bytes that something is appended to, again and again. Most pieces are of a few bytes: they are copied by whole words, without asking the
/// allocator, or a routine that copies, for each.
#[derive(Debug)]
pub(super) struct ByteBuffer {
    /// As long as there is room; what is behind `len` is of no meaning.
    bytes: Vec<u8>,
    len: usize,
    /// All strings were that were appended as such.
    is_ascii: bool,
}

impl Default for ByteBuffer {
    fn default() -> Self {
        ByteBuffer { bytes: Vec::new(), len: 0, is_ascii: true }
    }
}

/// Powers of ten.
const POWERS: [u32; 9] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];

impl ByteBuffer {
    /// What was appended.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether all strings are ASCII that were appended by [`ByteBuffer::text`].
    pub(super) fn strings_are_ascii(&self) -> bool {
        self.is_ascii
    }

    /// Bytes of memory that it takes.
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Empties it. Its room stays.
    pub(super) fn clear(&mut self) {
        (self.len, self.is_ascii) = (0, true);
    }

    /// Makes room for so many bytes more.
    #[inline]
    pub(super) fn reserve(&mut self, more: usize) {
        if self.bytes.len() - self.len < more {
            self.grow(more);
        }
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, more: usize) {
        self.make_room(more);
        self.bytes.resize(self.bytes.capacity(), 0);
    }

    /// Has memory for so many bytes more: by half as much again, or as much as is needed.
    fn make_room(&mut self, more: usize) {
        let needed = self.len + more;
        if self.bytes.capacity() < needed {
            let capacity = needed.max(self.bytes.capacity() / 2 * 3).max(64);
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
    }

    /// Appends the first ones of these bytes.
    #[inline(always)]
    fn put<const N: usize>(&mut self, bytes: [u8; N], used: usize) {
        match self.bytes.get_mut(self.len..).and_then(<[u8]>::first_chunk_mut) {
            Some(to) => {
                *to = bytes;
                self.len += used;
            }
            None => {
                self.grow(N);
                self.bytes[self.len..self.len + N].copy_from_slice(&bytes);
                self.len += used;
            }
        }
    }

    /// Appends a byte.
    #[inline]
    pub(super) fn byte(&mut self, byte: u8) {
        self.put([byte], 1);
    }

    /// Appends bytes.
    #[inline]
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        let Some(to) = self.bytes.get_mut(self.len..self.len + bytes.len()) else {
            return self.bytes_behind(bytes);
        };
        self.len += bytes.len();
        // Where they make no whole number of words, the last word has some of what stands before it.
        if let (Some(last), Some(last_to)) = (bytes.last_chunk::<16>(), to.len().checked_sub(16)) {
            if bytes.len() > 128 {
                return to.copy_from_slice(bytes);
            }
            for (chunk, to) in bytes.as_chunks::<16>().0.iter().zip(to.as_chunks_mut().0) {
                *to = *chunk;
            }
            to[last_to..].copy_from_slice(last);
        } else if let (Some(first), Some(last)) = (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
            to[..8].copy_from_slice(first);
            to[bytes.len() - 8..].copy_from_slice(last);
        } else if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
            to[..4].copy_from_slice(first);
            to[bytes.len() - 4..].copy_from_slice(last);
        } else {
            for (to, byte) in to.iter_mut().zip(bytes) {
                *to = *byte;
            }
        }
    }

    /// The same where there is no room for them: it is not filled with zeros first.
    #[cold]
    #[inline(never)]
    fn bytes_behind(&mut self, bytes: &[u8]) {
        self.make_room(bytes.len());
        self.bytes.truncate(self.len);
        self.bytes.extend_from_slice(bytes);
        self.len = self.bytes.len();
    }

    /// Appends bytes as pairs of digits to the base 16.
    pub(super) fn hex(&mut self, bytes: &[u8]) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        self.reserve(2 * bytes.len());
        for byte in bytes {
            self.put([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]], 2);
        }
    }

    /// Appends a byte many times.
    pub(super) fn repeat(&mut self, byte: u8, times: usize) {
        self.reserve(times);
        self.bytes[self.len..self.len + times].fill(byte);
        self.len += times;
    }

    /// Takes the last byte back.
    pub(super) fn pop(&mut self) {
        self.len = self.len.saturating_sub(1);
    }

    /// The last byte.
    pub(super) fn last(&self) -> Option<u8> {
        self.as_bytes().last().copied()
    }

    /// Appends a string as COPY's format `text` has it, between tabs.
    #[inline]
    pub(super) fn text(&mut self, string: &[u8]) {
        if is_plain::<true>(string) {
            self.bytes(string);
        } else {
            self.escaped(string);
        }
    }

    #[inline(never)]
    fn escaped(&mut self, string: &[u8]) {
        self.is_ascii &= string.is_ascii();
        if is_plain::<false>(string) {
            self.bytes(string);
        } else {
            escape(string, b'\t', |piece| self.bytes(piece));
        }
    }

    /// Appends a whole number.
    #[inline]
    pub(super) fn whole(&mut self, value: i64) {
        // Most numbers of most tables.
        if let digit @ 0..10 = value {
            return self.byte(b'0' + digit as u8);
        }
        if value < 0 {
            self.byte(b'-');
        }
        match value.unsigned_abs() {
            short @ ..100_000_000 => self.short(short as u32),
            long => self.bytes(itoa::Buffer::new().format(long).as_bytes()),
        }
    }

    /// Appends a number below 10^8.
    #[inline]
    fn short(&mut self, value: u32) {
        let digits = eight(value);
        // The last digit stands, whatever it is.
        let zeros = (digits.trailing_zeros() / 8).min(7);
        self.put(((digits | ASCII) >> (8 * zeros)).to_le_bytes(), 8 - zeros as usize);
    }

    /// Appends a number with so many digits behind its point, if both are few; says whether they are.
    #[inline]
    pub(super) fn decimal(&mut self, digits: i64, scale: u16) -> bool {
        let Some(power) = POWERS.get(usize::from(scale)) else { return false };
        let Some(all) = u32::try_from(digits.unsigned_abs()).ok().filter(|all| *all < 100_000_000) else {
            return false;
        };
        if digits < 0 {
            self.byte(b'-');
        }
        self.short(all / power);
        if scale > 0 {
            self.byte(b'.');
            let behind = (eight(all % power) | ASCII) >> (8 * (8 - u32::from(scale)));
            self.put(behind.to_le_bytes(), usize::from(scale));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Numeric;

    fn written(write: impl FnOnce(&mut ByteBuffer)) -> String {
        let mut buffer = ByteBuffer::default();
        buffer.bytes(b"<");
        write(&mut buffer);
        buffer.byte(b'>');
        let text = std::str::from_utf8(buffer.as_bytes()).unwrap();
        text.strip_prefix('<').unwrap().strip_suffix('>').unwrap().to_owned()
    }

    #[test]
    fn bytes_of_any_length_are_those_that_were_given() {
        for length in (0..300).chain([5000]) {
            let string: String = (0..length).map(|at| char::from(b'a' + (at % 23) as u8)).collect();
            assert_eq!(written(|buffer| buffer.bytes(string.as_bytes())), string);
            assert_eq!(written(|buffer| buffer.text(string.as_bytes())), string);
            let lines = format!("{string}\n{string}\\");
            assert_eq!(written(|buffer| buffer.text(lines.as_bytes())), format!("{string}\\n{string}\\\\"));
        }
        assert_eq!(written(|buffer| buffer.repeat(b' ', 70)).len(), 70);
        assert_eq!(written(|buffer| buffer.hex(&[0, 0xab, 0xff])), "00abff");
    }

    #[test]
    fn memory_grows_by_half_or_by_what_is_needed() {
        let (mut buffer, mut bytes) = (ByteBuffer::default(), Vec::new());
        for length in [1, 10_000, 3, 100_000, 7, 20_000, 5, 5, 60_000, 1_000_000] {
            let piece: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            let before = buffer.capacity();
            buffer.bytes(&piece);
            buffer.byte(b'|');
            bytes.extend_from_slice(&piece);
            bytes.push(b'|');
            assert_eq!(buffer.as_bytes(), bytes);
            assert!(buffer.capacity() <= bytes.len().max(before / 2 * 3).max(64) * 3 / 2, "{length}");
        }
        buffer.clear();
        buffer.bytes(b"short");
        assert_eq!(buffer.as_bytes(), b"short");
    }

    #[test]
    fn numbers_are_written_as_everywhere() {
        let around = |power: u32| [-1, 0, 1].map(|step| 10i64.pow(power) + step);
        let wholes = (0..19).flat_map(around).chain([0, 7, i64::MAX]);
        for value in wholes.flat_map(|value| [value, -value]).chain([i64::MIN]) {
            assert_eq!(written(|buffer| buffer.whole(value)), value.to_string());
            for scale in 0..12 {
                let mut is_short = false;
                let text = written(|buffer| is_short = buffer.decimal(value, scale));
                assert_eq!(is_short, scale <= 8 && value.unsigned_abs() < 100_000_000, "{value} {scale}");
                if is_short {
                    assert_eq!(text, Numeric::new(value, scale).to_string());
                }
            }
        }
    }

    #[test]
    fn what_was_there_is_gone_when_it_is_emptied() {
        let mut buffer = ByteBuffer::default();
        buffer.bytes(&[b'x'; 100]);
        buffer.clear();
        buffer.text(b"a\tb");
        assert_eq!((buffer.as_bytes(), buffer.len(), buffer.last()), (b"a\\tb".as_slice(), 4, Some(b'b')));
        buffer.pop();
        assert_eq!(buffer.as_bytes(), b"a\\t");
        assert!(buffer.strings_are_ascii());
        buffer.text("größer\n als lang".as_bytes());
        assert_eq!(buffer.as_bytes(), "a\\tgrößer\\n als lang".as_bytes());
        assert!(!buffer.strings_are_ascii());
        buffer.clear();
        assert!(buffer.strings_are_ascii());
        assert!(buffer.capacity() >= 100);
    }
}
