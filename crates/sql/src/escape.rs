//! Strings in the lines of COPY's format `text`: what has a form of its own there, and how to find it fast.

/// Where the first byte of a kind is, of which there are few: many bytes are looked at at a time.
#[inline]
pub(crate) fn position(bytes: &[u8], of_kind: impl Fn(u8) -> bool) -> Option<usize> {
    // Without a way out in between, the compiler makes vector instructions of the loop.
    let is_among = |chunk: &[u8; 16]| chunk.iter().fold(false, |found, byte| found | of_kind(*byte));
    let (chunks, _) = bytes.as_chunks();
    let plain = 16 * chunks.iter().position(is_among).unwrap_or(chunks.len());
    bytes[plain..].iter().position(|byte| of_kind(*byte)).map(|at| plain + at)
}

/// Whether format `text` has none of these bytes in a form of its own: 8 to 13, and the backslash; and, where it is to be `ASCII`, whether they are.
/// Says no of others below 14 as well.
#[inline]
pub(crate) fn is_plain<const ASCII: bool>(bytes: &[u8]) -> bool {
    // As numbers with a sign, those that are no ASCII are below 14, too.
    let is_low = |byte: &u8| if ASCII { byte.cast_signed() < 14 } else { *byte < 14 };
    let is_special = |byte: &u8| is_low(byte) | (*byte == b'\\');
    // Sixteen bytes at a time; the last ones with some of what stands before them. Within them there is no way out, as in [`position`].
    let has_special = |chunk: &[u8; 16]| chunk.iter().fold(false, |found, byte| found | is_special(byte));
    if let Some(last) = bytes.last_chunk() {
        return !(has_special(last) || bytes.as_chunks().0.iter().any(has_special));
    }
    // Eight bytes of a word at a time: see "Hacker's Delight", 6-1, on how to find a byte of a word.
    const EACH: u64 = u64::MAX / 255;
    let below = |word: u64, least: u64| word.wrapping_sub(EACH * least) & !word;
    let special = |word: u64| {
        let found = below(word, 14) | below(word ^ (EACH * u64::from(b'\\')), 1);
        (found | if ASCII { word } else { 0 }) & EACH << 7 != 0
    };
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        return !(special(u64::from_le_bytes(*first)) | special(u64::from_le_bytes(*last)));
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let word = u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << 32;
        return !special(word);
    }
    !bytes.iter().any(is_special)
}

/// Appends a string as format `text` has it, with this byte, which is ASCII, between fields.
#[inline]
pub(crate) fn write_text(string: &[u8], delimiter: u8, out: &mut Vec<u8>) {
    if delimiter == b'\t' && is_plain::<false>(string) {
        out.extend_from_slice(string);
    } else {
        escape(string, delimiter, |piece| out.extend_from_slice(piece));
    }
}

/// Gives the pieces of a string as format `text` has it, with this byte, which is ASCII, between fields.
pub(crate) fn escape(string: &[u8], delimiter: u8, mut put: impl FnMut(&[u8])) {
    let special = |byte: u8| byte == b'\\' || (8..=13).contains(&byte) || byte == delimiter;
    let mut rest = string;
    // The bytes that have a form of their own are all ASCII.
    while let Some(at) = position(rest, special) {
        put(&rest[..at]);
        let form = match rest[at] {
            8 => b'b',
            b'\t' => b't',
            b'\n' => b'n',
            11 => b'v',
            12 => b'f',
            b'\r' => b'r',
            itself => itself,
        };
        put(&[b'\\', form]);
        rest = &rest[at + 1..];
    }
    put(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_with_a_form_of_their_own_are_found_wherever_they_are() {
        for length in 0..40 {
            let mut bytes = vec![b'x'; length];
            assert!(is_plain::<true>(&bytes) && is_plain::<false>(&bytes));
            for at in 0..length {
                for byte in 0..=u8::MAX {
                    bytes[at] = byte;
                    let plain = byte >= 14 && byte != b'\\';
                    assert_eq!(is_plain::<false>(&bytes), plain, "{byte} at {at} of {length}");
                    let plain = plain && byte < 128;
                    assert_eq!(is_plain::<true>(&bytes), plain, "{byte} at {at} of {length}");
                    let mut written = Vec::new();
                    write_text(&bytes, b'\t', &mut written);
                    let escaped = matches!(byte, 8..=13 | b'\\');
                    assert_eq!(written.len(), length + usize::from(escaped), "{byte} at {at} of {length}");
                    let mut written = Vec::new();
                    write_text(&bytes, b';', &mut written);
                    let escaped = escaped || byte == b';';
                    assert_eq!(written.len(), length + usize::from(escaped), "{byte} at {at} of {length}");
                }
                bytes[at] = b'x';
            }
        }
    }
}
