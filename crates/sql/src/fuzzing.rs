//! What arbitrary bytes must not do: the entry points of the fuzz targets in `fuzz/`, and of the test that runs the kept corpus
//! through them. Each takes any bytes at all and panics where a guarantee is broken.
//!
//! # What is claimed of any bytes
//! 1. Nothing panics, hangs, or allocates more than a small multiple of what it is given.
//! 2. Bytes are an error or a value; a value that is written again is read back as the same one.
//! 3. Keys are ordered as their values are, and none is the beginning of another.

pub use crate::catalog::fuzzing::catalog;
pub use crate::session::fuzzing::copy;

use crate::catalog::{Column, Index, IndexColumn, Layout, Storage, Table, TableKey};
use crate::codec::key::{KeyColumn, is_lossless};
use crate::codec::row::TableCodec;
use crate::types::text::{self, TextStyle};
use crate::types::{Modifier, NO_MODIFIER, Type, Value, binary, cast};
use std::cmp::Ordering;

/// Types a column may have, each with a modifier of every kind that matters.
const TYPES: [(Type, Modifier); 19] = [
    (Type::Int4, NO_MODIFIER),
    (Type::Text, NO_MODIFIER),
    (Type::Bool, NO_MODIFIER),
    (Type::Int2, NO_MODIFIER),
    (Type::Int8, NO_MODIFIER),
    (Type::Float4, NO_MODIFIER),
    (Type::Float8, NO_MODIFIER),
    (Type::Varchar, 14),
    (Type::Bpchar, 9),
    (Type::Bpchar, NO_MODIFIER),
    (Type::Bytea, NO_MODIFIER),
    (Type::Date, NO_MODIFIER),
    (Type::Timestamp, NO_MODIFIER),
    (Type::TimestampTz, NO_MODIFIER),
    (Type::Oid, NO_MODIFIER),
    (Type::Name, NO_MODIFIER),
    (Type::Numeric, NO_MODIFIER),
    (Type::Numeric, (20 << 16 | 2) + 4),
    (Type::Numeric, (9 << 16 | 0x7fd) + 4),
];

/// A table with a column of each type, whose first two are its key. The last column is younger than the first layout.
fn table() -> Table {
    let columns: Vec<Column> = (1..)
        .zip(TYPES)
        .map(|(number, (ty, modifier))| Column {
            number,
            name: format!("c{number}"),
            ty,
            modifier,
            not_null: number <= 2,
            default: None,
            missing: None,
        })
        .collect();
    let numbers: Vec<_> = columns.iter().map(|column| column.number).collect();
    let of_index =
        |column: &u16| IndexColumn { column: *column, descending: column % 2 == 1, nulls_first: false };
    let index = Index {
        oid: 20001,
        name: "i".to_owned(),
        columns: numbers[2..].iter().map(of_index).collect(),
        unique: false,
        primary: false,
        constraint: None,
        storage: Storage::new("i".to_owned()),
    };
    Table {
        oid: 20000,
        name: "t".to_owned(),
        storage: Storage::new("t".to_owned()),
        key: TableKey::Columns(vec![1, 2]),
        layouts: vec![Layout(numbers[..numbers.len() - 1].to_vec()), Layout(numbers.clone())],
        indexes: vec![index],
        checks: Vec::new(),
        foreign_keys: Vec::new(),
        referenced_by: Vec::new(),
        owner: 10,
        next_column: numbers.len() as u16 + 1,
        revision: 0,
        codec: Default::default(),
        columns,
    }
}

/// A row: `length of its key u8 | key | row`. The same bytes are read as an entry of an index, too.
pub fn row(data: &[u8]) {
    let Some((&len, rest)) = data.split_first() else { return };
    let (key, row) = rest.split_at(usize::from(len).min(rest.len()));
    let codec = TableCodec::new(&table());
    let all: Vec<usize> = (0..TYPES.len()).collect();
    let covered: Vec<usize> = all.iter().copied().filter(|column| codec.index_covers(0, *column)).collect();
    for value in [&[][..], row] {
        let mut values = Vec::new();
        let _ = codec.decode_index(0, key, value, &covered, &mut values);
        assert!(values.len() <= covered.len());
    }
    let mut values = Vec::new();
    if codec.decode_row(key, row, &all, &mut values).is_err() {
        return;
    }
    let (mut key, mut row) = (Vec::new(), Vec::new());
    codec.row_key(&values, &mut key).expect("the key of a row that was read");
    codec.encode_row(&values, &mut row).expect("a row that was read");
    let mut again = Vec::new();
    codec.decode_row(&key, &row, &all, &mut again).expect("a row that was written");
    assert_same(&values, &again);
    // A damaged row may have what its columns do not admit: then an index keeps what they do.
    if !TYPES.iter().zip(&values).all(|(column, value)| fits(*column, value)) {
        return;
    }
    let entry = codec.index_entry(0, &values, &key).expect("the entry of a row that was read");
    again.clear();
    codec.decode_index(0, &entry.key, &entry.value, &covered, &mut again).expect("an entry that was written");
    for (value, column) in again.iter().zip(covered) {
        assert_eq!(value.total_cmp(&values[column]), Ordering::Equal, "{value:?} {:?}", values[column]);
    }
}

fn fits((ty, modifier): (Type, Modifier), value: &Value) -> bool {
    modifier < 0
        || cast::fit(value.clone(), ty, modifier, false).is_ok_and(|fitted| fitted.is_identical(value))
}

fn assert_same(one: &[Value], other: &[Value]) {
    assert_eq!(one.len(), other.len());
    for (one, other) in one.iter().zip(other) {
        assert!(one.is_identical(other), "{one:?} {other:?}");
    }
}

/// Two values in a key: `type u8 | options u8 | key`.
pub fn key(data: &[u8]) {
    let [ty, options, key @ ..] = data else { return };
    let (ty, modifier) = TYPES[usize::from(*ty) % TYPES.len()];
    let [nullable, descending, nulls_first] = [1, 2, 4].map(|bit| options & bit != 0);
    let column = KeyColumn { ty, modifier, nullable, descending, nulls_first };
    let mut rest = key;
    let (Some(one), Some(other)) = (take(&column, &mut rest), take(&column, &mut rest)) else { return };
    let [x, y] = [&one, &other].map(|value| {
        let mut out = Vec::new();
        column.encode(value, &mut out).expect("a value that was read");
        let again = column.decode(&mut out.as_slice()).expect("a value that was written");
        // A damaged key may have more blanks than its column; they do not count.
        if is_lossless(ty, modifier) && ty != Type::Bpchar {
            assert_same(std::slice::from_ref(value), &[again]);
        } else {
            assert_eq!(value.total_cmp(&again), Ordering::Equal, "{value:?} {again:?}");
        }
        out
    });
    assert_eq!(x.cmp(&y), order(&column, &one, &other), "{one:?} {other:?}");
    assert!(x == y || !x.starts_with(&y) && !y.starts_with(&x));
}

/// A value of a key. Passing over it passes over the same bytes.
fn take(column: &KeyColumn, rest: &mut &[u8]) -> Option<Value> {
    let mut skipped = *rest;
    let skips = column.skip(&mut skipped).is_ok();
    let value = column.decode(rest).ok()?;
    assert!(skips && skipped == *rest);
    Some(value)
}

fn order(column: &KeyColumn, one: &Value, other: &Value) -> Ordering {
    match (one.is_null(), other.is_null()) {
        (true, true) => Ordering::Equal,
        (true, false) if column.nulls_first => Ordering::Less,
        (true, false) => Ordering::Greater,
        (false, true) => order(column, other, one).reverse(),
        (false, false) if column.descending => other.total_cmp(one),
        (false, false) => one.total_cmp(other),
    }
}

/// A value as clients send it: `type u8 | 0 for binary, 1 for text; the modifier above that u8 | value`.
pub fn value(data: &[u8]) {
    let [ty, options, bytes @ ..] = data else { return };
    let ty = Type::ALL[usize::from(*ty) % Type::ALL.len()];
    let modifier = if options >> 1 == 0 { NO_MODIFIER } else { modifier(ty, options >> 1) };
    let style = TextStyle::default();
    let read = match std::str::from_utf8(bytes) {
        Ok(text) if options & 1 == 1 => text::read(text, ty, modifier, &style),
        _ => binary::read(bytes, ty, modifier),
    };
    let Ok(value) = read else { return };
    // It has no binary form.
    if ty == Type::NodeTree {
        return;
    }
    let mut out = Vec::new();
    binary::write(&value, ty, &mut out);
    let again =
        binary::read(&out, ty, modifier).unwrap_or_else(|error| panic!("{value:?} of {ty:?}: {error}"));
    assert_eq!(value.total_cmp(&again), Ordering::Equal, "{value:?} {again:?}");
    let shown = text::to_text(&value, ty, &style);
    let again = text::read(&shown, ty, modifier, &style)
        .unwrap_or_else(|error| panic!("{shown:?} of {ty:?}: {error}"));
    assert_eq!(value.total_cmp(&again), Ordering::Equal, "{shown:?}: {value:?} {again:?}");
}

/// A modifier that a declaration of the type can have, made of 7 bits.
fn modifier(ty: Type, bits: u8) -> Modifier {
    let bits = Modifier::from(bits);
    match ty {
        Type::Numeric | Type::NumericArray => (((bits & 15) + 1) << 16 | bits >> 4) + 4,
        Type::Timestamp | Type::TimestampTz | Type::TimestampArray | Type::TimestampTzArray => bits % 7,
        Type::Varchar | Type::Bpchar | Type::VarcharArray | Type::BpcharArray => bits + 4,
        _ => NO_MODIFIER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Numeric;
    use gannet_base::corpus;
    use std::sync::Arc;

    #[test]
    fn kept_inputs_pass() {
        corpus::replay("row", row);
        corpus::replay("key", key);
        corpus::replay("value", value);
        corpus::replay("copy", copy);
        corpus::replay("catalog", catalog);
    }

    /// A value that a column of this type may have.
    fn sample(ty: Type, modifier: Modifier) -> Value {
        let value = match ty {
            Type::Bool => Value::Bool(true),
            Type::Float4 | Type::Float8 => Value::Float(-1.5),
            Type::Numeric => Value::Numeric(Numeric::new(-123_456, 3)),
            Type::Bpchar => Value::Padded("ab\u{e9} ".into()),
            Type::Text | Type::Varchar | Type::Name => Value::text("a\u{1}b"),
            Type::Bytea => Value::Bytes(Arc::from(&[0, 1, 2, 255][..])),
            _ => Value::Int(77),
        };
        if modifier < 0 { value } else { cast::fit(value, ty, modifier, true).unwrap() }
    }

    #[test]
    fn rows_and_keys_of_every_type_pass() {
        let codec = TableCodec::new(&table());
        let mut values: Vec<Value> = TYPES.iter().map(|(ty, modifier)| sample(*ty, *modifier)).collect();
        let mut rows = Vec::new();
        for null in [false, true] {
            if null {
                values[2..].fill(Value::Null);
            }
            let (mut key, mut row) = (Vec::new(), Vec::new());
            codec.row_key(&values, &mut key).unwrap();
            codec.encode_row(&values, &mut row).unwrap();
            rows.push([&[key.len() as u8][..], &key, &row].concat());
        }
        corpus::offer("row", &rows, row);
        let mut keys = Vec::new();
        for (number, (ty, modifier)) in (0..).zip(TYPES) {
            for options in [0, 3, 5] {
                let column = KeyColumn {
                    ty,
                    modifier,
                    nullable: options & 1 != 0,
                    descending: options & 2 != 0,
                    nulls_first: options & 4 != 0,
                };
                let mut seed = vec![number, options];
                column.encode(&sample(ty, modifier), &mut seed).unwrap();
                let value = if column.nullable { Value::Null } else { sample(ty, modifier) };
                column.encode(&value, &mut seed).unwrap();
                keys.push(seed);
            }
        }
        corpus::offer("key", &keys, key);
    }

    #[test]
    fn values_of_every_type_as_clients_send_them_pass() {
        let mut seeds = Vec::new();
        for (number, ty) in (0..).zip(Type::ALL) {
            let style = TextStyle::default();
            let texts = [
                "1",
                "t",
                "2024-02-29 12:34:56.789+01",
                "{1,NULL,2}",
                "[3:4]={t,f}",
                "-12345.678e3",
                "1 2",
                "a",
            ];
            for text in texts {
                if let Ok(value) = text::read(text, *ty, NO_MODIFIER, &style) {
                    seeds.push([&[number, 1][..], text.as_bytes()].concat());
                    let mut seed = vec![number, 0];
                    binary::write(&value, *ty, &mut seed);
                    seeds.push(seed);
                }
            }
        }
        corpus::offer("value", &seeds, value);
    }

    #[test]
    fn copied_rows_and_definitions_pass() {
        let text: &[&[u8]] = &[
            b"\0\t1\ta\\tb\t\\N\r\n2\t\t\\x41\\101\r\n\\.\r\n",
            b"\0|1|2\n\\\\|\\|\n",
            b"\x01,1,\"a\"\"b\nc\",\n,\"\",x\n\\.\n",
            b"\x07;\"1\";2\r\"3\r4\";\r",
        ];
        corpus::offer("copy", &text.iter().map(|seed| seed.to_vec()).collect::<Vec<_>>(), copy);
        let entry = |kind: u8, value: Vec<u8>| [&[kind][..], &value].concat();
        let table = crate::catalog::storage::encode(1, &table()).unwrap();
        let role = br#"{"oid":10,"name":"me","login":true,"superuser":true}"#;
        let sequence = br#"{"oid":20000,"name":"s","type":"int8","start":1,"increment":1,"minimum":1,"maximum":9,"cycle":false,"owner":10,"counter":3,"begin":[1,false]}"#;
        let revision = 1u64.to_le_bytes();
        let seeds = [
            entry(1, table),
            entry(2, [&revision[..], sequence].concat()),
            entry(3, [&revision[..], role].concat()),
        ];
        corpus::offer("catalog", &seeds, catalog);
    }
}
