use super::*;
use crate::types::text::{TextStyle, type_named};
use proptest::prelude::*;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn state(bytes: &[u8], ty: Type) -> SqlState {
    read(bytes, ty, -1).unwrap_err().state()
}

#[test]
fn bytes_are_those_of_postgresql() {
    let style = TextStyle::default();
    for line in include_str!("samples.txt").lines().filter(|line| !line.starts_with('#')) {
        let [ty, text, expected] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("not a sample: {line}")
        };
        let ty = type_named(ty).unwrap_or_else(|| panic!("no type {ty}"));
        let value = text::read(&text.replace("\\\\", "\\"), ty, -1, &style).unwrap();
        let mut bytes = Vec::new();
        write(&value, ty, &mut bytes);
        assert_eq!(hex(&bytes), expected, "{line}");
        let back = read(&bytes, ty, -1).unwrap();
        assert_eq!(back, value, "{line}");
        assert_eq!(text::to_text(&back, ty, &style), text::to_text(&value, ty, &style), "{line}");
    }
}

#[test]
fn what_is_malformed_is_refused() {
    let bad = SqlState::INVALID_BINARY_REPRESENTATION;
    let short = SqlState::PROTOCOL_VIOLATION;
    assert_eq!(state(&[0, 0, 0], Type::Int4), short);
    assert_eq!(state(&[0; 5], Type::Int4), bad);
    assert_eq!(state(&[], Type::Bool), short);
    assert_eq!(state(b"a\0b", Type::Text), SqlState::CHARACTER_NOT_IN_REPERTOIRE);
    assert_eq!(state(b"\xff", Type::Varchar), SqlState::CHARACTER_NOT_IN_REPERTOIRE);
    assert_eq!(state(&[b'x'; 64], Type::Name), SqlState::NAME_TOO_LONG);
    // A digit of 10000, a scale too large, a sign that is none, digits missing.
    assert_eq!(state(&[0, 1, 0, 0, 0, 0, 0, 0, 0x27, 0x10], Type::Numeric), bad);
    assert_eq!(state(&[0, 0, 0, 0, 0, 0, 0x40, 0], Type::Numeric), bad);
    assert_eq!(state(&[0, 0, 0, 0, 0x10, 0, 0, 0], Type::Numeric), bad);
    assert_eq!(state(&[0, 2, 0, 0, 0, 0, 0, 0, 0, 1], Type::Numeric), short);
    // Beyond the calendar.
    assert_eq!(state(&i32::to_be_bytes(i32::MAX - 1), Type::Date), SqlState::DATETIME_FIELD_OVERFLOW);
    assert_eq!(state(&i64::to_be_bytes(i64::MAX - 1), Type::Timestamp), SqlState::DATETIME_FIELD_OVERFLOW);
}

fn array(dimensions: i32, element: Type, length: i32, elements: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for value in [dimensions, 0, element.oid() as i32, length, 1] {
        bytes.extend_from_slice(&value.to_be_bytes());
    }
    bytes.extend_from_slice(elements);
    bytes
}

#[test]
fn malformed_arrays_are_refused() {
    let bad = SqlState::INVALID_BINARY_REPRESENTATION;
    let one = [0, 0, 0, 4, 0, 0, 0, 7];
    assert!(read(&array(1, Type::Int4, 1, &one), Type::Int4Array, -1).is_ok());
    assert_eq!(state(&array(1, Type::Int8, 1, &one), Type::Int4Array), SqlState::DATATYPE_MISMATCH);
    assert_eq!(state(&array(2, Type::Int4, 1, &one), Type::Int4Array), SqlState::FEATURE_NOT_SUPPORTED);
    assert_eq!(state(&array(-1, Type::Int4, 1, &one), Type::Int4Array), bad);
    assert_eq!(state(&array(1, Type::Int4, -1, &one), Type::Int4Array), bad);
    // As many elements as 32 bits can count, of which none is there: refused before memory is taken.
    assert_eq!(state(&array(1, Type::Int4, i32::MAX, &one), Type::Int4Array), SqlState::PROTOCOL_VIOLATION);
    assert_eq!(
        state(&array(1, Type::Int4, 1, &[0, 0, 0, 5, 0, 0, 0, 7]), Type::Int4Array),
        SqlState::PROTOCOL_VIOLATION
    );
}

#[test]
fn vectors_have_no_nulls_and_no_bounds_of_their_own_and_no_array_ends_behind_the_last_index() {
    let bad = SqlState::INVALID_BINARY_REPRESENTATION;
    let one = [0, 0, 0, 2, 0, 7];
    let vector = |dimensions, lower: i32, elements: &[u8]| {
        let mut bytes = array(dimensions, Type::Int2, 1, elements);
        bytes[16..20].copy_from_slice(&lower.to_be_bytes());
        bytes
    };
    assert!(read(&vector(1, 0, &one), Type::Int2Vector, -1).is_ok());
    assert_eq!(state(&vector(1, 1, &one), Type::Int2Vector), bad);
    assert_eq!(state(&vector(1, 0, &[255; 4]), Type::Int2Vector), bad);
    assert_eq!(state(&vector(0, 0, &[]), Type::Int2Vector), bad);
    assert!(read(&vector(1, i32::MAX - 1, &one), Type::Int2Array, -1).is_ok());
    assert_eq!(state(&vector(1, i32::MAX, &one), Type::Int2Array), SqlState::PROGRAM_LIMIT_EXCEEDED);
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64), ty in prop::sample::select(Type::ALL)) {
        if let Ok(value) = read(&bytes, ty, -1) {
            let mut written = Vec::new();
            write(&value, ty, &mut written);
            prop_assert_eq!(read(&written, ty, -1).unwrap(), value);
        }
    }
}
