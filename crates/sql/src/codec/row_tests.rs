//! Rows come back as they were, from every layout, and damaged ones are errors.

use super::*;
use crate::SqlState;
use crate::catalog::{IndexColumn, Layout, Storage};
use crate::types::{NO_MODIFIER, Numeric, Type};
use proptest::prelude::*;
use std::sync::Arc;

const TYPES: [(Type, Modifier); 15] = [
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
    (Type::TimestampTz, NO_MODIFIER),
    (Type::Oid, NO_MODIFIER),
    (Type::Numeric, NO_MODIFIER),
];

fn table(types: &[(Type, Modifier)], key: &[ColumnNumber]) -> Table {
    let columns = (1..)
        .zip(types)
        .map(|(number, (ty, modifier))| Column {
            number,
            name: format!("c{number}"),
            ty: *ty,
            modifier: *modifier,
            not_null: key.contains(&number),
            default: None,
            missing: None,
        })
        .collect();
    let key = if key.is_empty() { TableKey::RowId } else { TableKey::Columns(key.to_vec()) };
    Table {
        oid: 20000,
        name: "t".to_owned(),
        columns,
        storage: Storage::new("t".to_owned()),
        key,
        layouts: vec![Layout((1..=types.len() as ColumnNumber).collect())],
        indexes: Vec::new(),
        checks: Vec::new(),
        foreign_keys: Vec::new(),
        referenced_by: Vec::new(),
        owner: 10,
        next_column: types.len() as ColumnNumber + 1,
        revision: 0,
        codec: Default::default(),
    }
}

fn index(columns: &[ColumnNumber], unique: bool) -> Index {
    let column = |column| IndexColumn { column, descending: column % 2 == 1, nulls_first: false };
    Index {
        oid: 20001,
        name: "i".to_owned(),
        columns: columns.iter().copied().map(column).collect(),
        unique,
        primary: false,
        constraint: None,
        storage: Storage::new("i".to_owned()),
    }
}

fn value(ty: Type, modifier: Modifier) -> BoxedStrategy<Value> {
    let text = prop_oneof![".{0,9}", "[a-c ]{0,4}"];
    let plain = match ty {
        Type::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        Type::Int2 => any::<i16>().prop_map(|v| Value::Int(v.into())).boxed(),
        Type::Int4 | Type::Date => any::<i32>().prop_map(|v| Value::Int(v.into())).boxed(),
        Type::Oid => any::<u32>().prop_map(|v| Value::Int(v.into())).boxed(),
        Type::Float4 => any::<f32>().prop_map(|v| Value::Float(v.into())).boxed(),
        Type::Float8 => any::<f64>().prop_map(Value::Float).boxed(),
        Type::Bytea => any::<Vec<u8>>().prop_map(|v| Value::Bytes(Arc::from(v))).boxed(),
        Type::Bpchar if modifier < 0 => text.prop_map(|v| Value::Padded(v.into())).boxed(),
        Type::Bpchar => "[a-cß ]{5}".prop_map(|v| Value::Padded(v.into())).boxed(),
        Type::Numeric => {
            (any::<i64>(), 0u16..20).prop_map(|(d, s)| Value::Numeric(Numeric::new(d, s))).boxed()
        }
        Type::Int8 | Type::TimestampTz => any::<i64>().prop_map(Value::Int).boxed(),
        _ => text.prop_map(Value::text).boxed(),
    };
    prop_oneof![4 => plain, 1 => Just(Value::Null)].boxed()
}

fn a_row() -> impl Strategy<Value = Vec<Value>> {
    TYPES.iter().map(|(ty, modifier)| value(*ty, *modifier)).collect::<Vec<_>>()
}

/// With all bits of numbers and all blanks of strings.
fn exactly(values: &[Value]) -> String {
    format!("{values:?}")
}

fn all(count: usize) -> Vec<usize> {
    (0..count).collect()
}

proptest! {
    #[test]
    fn rows_come_back(mut row in a_row(), wanted in prop::collection::vec(0..TYPES.len(), 0..20), keyed: bool) {
        let key_columns: &[ColumnNumber] = if keyed { &[8, 1, 6] } else { &[] };
        for number in key_columns {
            if row[usize::from(*number) - 1].is_null() {
                row[usize::from(*number) - 1] =
                    if *number == 8 { Value::text("k") } else if *number == 1 { Value::Int(7) } else { Value::Float(-0.0) };
            }
        }
        let table = table(&TYPES, key_columns);
        let codec = table.codec();
        let (mut key, mut bytes, mut back) = (Vec::new(), Vec::new(), Vec::new());
        codec.row_key(&row, &mut key).unwrap();
        codec.encode_row(&row, &mut bytes).unwrap();
        codec.decode_row(&key, &bytes, &all(TYPES.len()), &mut back).unwrap();
        prop_assert_eq!(exactly(&back), exactly(&row));
        back.clear();
        codec.decode_row(&key, &bytes, &wanted, &mut back).unwrap();
        let some: Vec<Value> = wanted.iter().map(|at| row[*at].clone()).collect();
        prop_assert_eq!(exactly(&back), exactly(&some));
    }

    #[test]
    fn a_damaged_row_is_an_error_or_another_row(row in a_row(), cut in 0usize..80) {
        let table = table(&TYPES, &[]);
        let codec = table.codec();
        let mut bytes = Vec::new();
        codec.encode_row(&row, &mut bytes).unwrap();
        for at in 0..bytes.len() {
            for change in [0x01, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= change;
                if let Err(error) = codec.decode_row(&[0; 8], &damaged, &all(TYPES.len()), &mut Vec::new()) {
                    prop_assert_eq!(error.state(), SqlState::DATA_CORRUPTED);
                }
            }
        }
        bytes.truncate(cut.min(bytes.len()));
        if let Err(error) = codec.decode_row(&[0; 8], &bytes, &all(TYPES.len()), &mut Vec::new()) {
            prop_assert_eq!(error.state(), SqlState::DATA_CORRUPTED);
        }
    }

    #[test]
    fn index_entries_lead_to_their_row_and_give_their_columns_back(
        row in a_row(), columns in prop::sample::subsequence(vec![1u16, 2, 3, 8, 9, 11, 13], 1..4), unique: bool, keyed: bool,
        damage in any::<(u16, u8)>(),
    ) {
        let mut row = row;
        for at in [1, 4] {
            if row[at].is_null() {
                row[at] = if at == 1 { Value::text("") } else { Value::Int(-1) };
            }
        }
        let mut table = table(&TYPES, if keyed { &[2, 5] } else { &[] });
        table.indexes.push(index(&columns, unique));
        let codec = table.codec();
        let mut key = Vec::new();
        if keyed { codec.row_key(&row, &mut key).unwrap() } else { key.extend(77u64.to_be_bytes()) }
        let entry = codec.index_entry(0, &row, &key).unwrap();
        let null = columns.iter().any(|number| row[usize::from(*number) - 1].is_null());
        prop_assert_eq!(entry.conflicts, unique && !null);
        prop_assert_eq!(entry.value.is_empty(), !entry.conflicts);
        prop_assert_eq!(codec.index_row_key(0, &entry.key, &entry.value).unwrap(), &key);
        let covered: Vec<usize> = all(TYPES.len()).into_iter().rev().filter(|at| codec.index_covers(0, *at)).collect();
        prop_assert_eq!(covered.contains(&4), keyed);
        let mut back = Vec::new();
        codec.decode_index(0, &entry.key, &entry.value, &covered, &mut back).unwrap();
        let wanted: Vec<Value> = covered.iter().map(|at| row[*at].clone()).collect();
        prop_assert_eq!(exactly(&back), exactly(&wanted));
        let mut damaged = entry.key.clone();
        let at = usize::from(damage.0) % damaged.len();
        damaged[at] ^= damage.1;
        if let Err(error) = codec.decode_index(0, &damaged, &entry.value, &covered, &mut Vec::new()) {
            prop_assert_eq!(error.state(), SqlState::DATA_CORRUPTED);
        }
    }
}

#[test]
fn older_rows_have_their_columns_missing_value() {
    let mut table = table(&[(Type::Int4, -1), (Type::Text, -1)], &[1]);
    let (mut old, mut key) = (Vec::new(), Vec::new());
    let row = [Value::Int(1), Value::text("one")];
    table.codec().row_key(&row, &mut key).unwrap();
    table.codec().encode_row(&row, &mut old).unwrap();
    let mut newer = table.clone();
    for number in 3..=4 {
        let column = Column { number, name: format!("c{number}"), ..table.columns[0].clone() };
        newer.columns.push(column);
    }
    newer.layouts.push(Layout(vec![1, 2, 3, 4]));
    table = newer;
    let mut back = Vec::new();
    table.codec().decode_row(&key, &old, &[3, 1, 0], &mut back).unwrap();
    assert_eq!(back, [Value::Null, Value::text("one"), Value::Int(1)]);
    let row = [Value::Int(1), Value::text("one"), Value::Int(2), Value::Null];
    let mut bytes = Vec::new();
    table.codec().encode_row(&row, &mut bytes).unwrap();
    back.clear();
    table.codec().decode_row(&key, &bytes, &[0, 1, 2, 3], &mut back).unwrap();
    assert_eq!(back, row);
}

#[test]
fn columns_in_another_order_than_their_numbers() {
    let mut table = table(&[(Type::Text, -1), (Type::Text, -1), (Type::Int4, -1), (Type::Text, -1)], &[]);
    table.layouts[0] = Layout(vec![4, 3, 1, 2]);
    let row = [Value::text("first"), Value::Null, Value::Int(3), Value::text("last")];
    let (mut bytes, mut back) = (Vec::new(), Vec::new());
    table.codec().encode_row(&row, &mut bytes).unwrap();
    table.codec().decode_row(&[], &bytes, &[0, 1, 2, 3], &mut back).unwrap();
    assert_eq!(back, row);
}

#[test]
fn large_rows_have_wide_ends() {
    let table = table(&[(Type::Text, -1), (Type::Int4, -1), (Type::Text, -1)], &[]);
    let row = [Value::text("x".repeat(70_000)), Value::Int(5), Value::text("end")];
    let (mut bytes, mut back) = (Vec::new(), Vec::new());
    table.codec().encode_row(&row, &mut bytes).unwrap();
    table.codec().decode_row(&[], &bytes, &[2, 0, 1], &mut back).unwrap();
    assert_eq!(back, [row[2].clone(), row[0].clone(), row[1].clone()]);
}

#[test]
fn a_row_says_no_more_than_it_must() {
    let table = table(&[(Type::Int4, -1), (Type::Int4, -1), (Type::Bpchar, 4 + 84)], &[1]);
    let row = [Value::Int(1), Value::Int(2), padded(b"ab", 88).unwrap()];
    let mut bytes = Vec::new();
    table.codec().encode_row(&row, &mut bytes).unwrap();
    // Header, NULLs, the second column, an end, and the string without its blanks.
    assert_eq!(bytes, [2, 0, 2, 0, 0, 0, 2, 0, b'a', b'b']);
}

#[test]
fn rows_of_a_column_that_is_gone_are_refused_rather_than_misread() {
    let mut table = table(&[(Type::Int4, -1), (Type::Int4, -1), (Type::Int4, -1)], &[]);
    let mut bytes = Vec::new();
    table.codec().encode_row(&[Value::Int(1), Value::Int(2), Value::Int(3)], &mut bytes).unwrap();
    table = Table { columns: vec![table.columns[0].clone(), table.columns[2].clone()], ..table.clone() };
    let mut back = Vec::new();
    table.codec().decode_row(&[], &bytes, &[0], &mut back).unwrap();
    assert_eq!(back, [Value::Int(1)]);
    assert!(table.codec().decode_row(&[], &bytes, &[1], &mut back).is_err());
}

#[test]
fn many_layouts() {
    let mut table = table(&[(Type::Int4, -1)], &[]);
    table.layouts = vec![table.layouts[0].clone(); 300];
    let (mut bytes, mut back) = (Vec::new(), Vec::new());
    table.codec().encode_row(&[Value::Int(1)], &mut bytes).unwrap();
    table.codec().decode_row(&[], &bytes, &[0], &mut back).unwrap();
    assert_eq!((back, bytes.len()), (vec![Value::Int(1)], 7));
}
