//! Keys are ordered as values are, whatever the column.

use super::super::range::{Next, Range, key_range};
use super::*;
use crate::types::{NO_MODIFIER, Numeric};
use proptest::prelude::*;
use std::cmp::Ordering;
use std::sync::Arc;

fn column(ty: Type, modifier: Modifier, descending: bool, nulls_first: bool) -> KeyColumn {
    KeyColumn { ty, modifier, nullable: true, descending, nulls_first }
}

fn float() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<f64>(),
        -3.0..3.0,
        prop::sample::select(vec![0.0, -0.0, f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY]),
    ]
}

/// Types with their modifiers, and two values of each.
fn typed_pair() -> impl Strategy<Value = (Type, Modifier, Value, Value)> {
    let pair = |ty: Type, modifier: Modifier, values: BoxedStrategy<Value>| {
        let values = prop_oneof![8 => values, 1 => Just(Value::Null)].boxed();
        (values.clone(), values).prop_map(move |(a, b)| (ty, modifier, a, b)).boxed()
    };
    let int = |ty: Type, bits: u32| {
        let least = i64::MIN >> (64 - bits);
        let values = prop_oneof![least..=!least, -3i64..3, Just(least), Just(!least)];
        pair(ty, NO_MODIFIER, values.prop_map(Value::Int).boxed())
    };
    // Strings of few characters, so that one is often the beginning of the other.
    let text =
        prop::collection::vec(prop::sample::select(vec!['\0', '\u{1}', '\u{2}', ' ', 'a', 'ß', '😀']), 0..5)
            .prop_map(|chars| chars.into_iter().collect::<String>());
    let number = (-9999i64..9999, 0u16..4).prop_map(|(digits, scale)| Numeric::new(digits, scale));
    let bytes = prop::collection::vec(prop::sample::select(vec![0u8, 1, 2, 3, 254, 255]), 0..5);
    prop_oneof![
        pair(Type::Bool, NO_MODIFIER, any::<bool>().prop_map(Value::Bool).boxed()),
        int(Type::Int2, 16),
        int(Type::Int4, 32),
        int(Type::Date, 32),
        int(Type::Int8, 64),
        int(Type::Timestamp, 64),
        pair(Type::Oid, NO_MODIFIER, (0..=i64::from(u32::MAX)).prop_map(Value::Int).boxed()),
        pair(Type::Float8, NO_MODIFIER, float().prop_map(Value::Float).boxed()),
        pair(
            Type::Float4,
            NO_MODIFIER,
            float().prop_map(|f| Value::Float(f64::from(nearest_float4(f)))).boxed()
        ),
        pair(Type::Numeric, NO_MODIFIER, number.clone().prop_map(Value::Numeric).boxed()),
        pair(
            Type::Numeric,
            (20 << 16 | 2) + 4,
            (-9999i64..9999).prop_map(|d| Value::Numeric(Numeric::new(d, 2))).boxed()
        ),
        pair(Type::Text, NO_MODIFIER, text.clone().prop_map(Value::text).boxed()),
        pair(Type::Name, NO_MODIFIER, text.clone().prop_map(Value::text).boxed()),
        pair(Type::Bpchar, 4 + 6, text.prop_map(|text| padded(text.as_bytes(), 10).unwrap()).boxed()),
        pair(Type::Bytea, NO_MODIFIER, bytes.prop_map(|b| Value::Bytes(Arc::from(b))).boxed()),
    ]
}

/// The order that a column wants.
fn wanted(column: &KeyColumn, a: &Value, b: &Value) -> Ordering {
    match (a.is_null(), b.is_null()) {
        (true, true) => Ordering::Equal,
        (true, false) if column.nulls_first => Ordering::Less,
        (true, false) => Ordering::Greater,
        (false, true) => wanted(column, b, a).reverse(),
        (false, false) if column.descending => b.total_cmp(a),
        (false, false) => a.total_cmp(b),
    }
}

fn encoded(column: &KeyColumn, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    column.encode(value, &mut out).unwrap();
    out
}

fn in_range(range: Option<&Range>, key: &[u8]) -> bool {
    range.is_some_and(|range| {
        key >= &range.lower[..] && range.upper.as_ref().is_none_or(|upper| key < &upper[..])
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn keys_are_ordered_as_values_are(
        (ty, modifier, a, b) in typed_pair(), descending: bool, nulls_first: bool,
    ) {
        let column = column(ty, modifier, descending, nulls_first);
        let (x, y) = (encoded(&column, &a), encoded(&column, &b));
        prop_assert_eq!(x.cmp(&y), wanted(&column, &a, &b));
        prop_assert!(x == y || !x.starts_with(&y) && !y.starts_with(&x), "{:?} {:?}", x, y);
    }

    #[test]
    fn values_come_back((ty, modifier, a, b) in typed_pair(), descending: bool, nulls_first: bool) {
        let column = column(ty, modifier, descending, nulls_first);
        let mut key = encoded(&column, &a);
        column.encode(&b, &mut key).unwrap();
        let mut input = key.as_slice();
        for value in [&a, &b] {
            let mut skipped = input;
            column.skip(&mut skipped).unwrap();
            let back = column.decode(&mut input).unwrap();
            prop_assert_eq!(&back, value);
            prop_assert_eq!(skipped, input);
            if is_lossless(ty, modifier) {
                prop_assert_eq!(format!("{back:?}"), format!("{value:?}"));
            }
        }
        prop_assert!(input.is_empty());
    }

    #[test]
    fn ranges_hold_what_the_condition_says(
        (ty, modifier, bound, value) in typed_pair(), descending: bool, nulls_first: bool, included: bool,
    ) {
        let column = column(ty, modifier, descending, nulls_first);
        // A second column, which nothing is demanded of.
        let columns = [column, self::column(Type::Int4, NO_MODIFIER, false, false)];
        let mut key = encoded(&column, &value);
        columns[1].encode(&Value::Int(5), &mut key).unwrap();
        let order = value.total_cmp(&bound);
        let known = !bound.is_null() && !value.is_null();
        let range = |equal: &[Value], next: &Next<'_>| key_range(&columns, equal.iter(), next).unwrap();
        let equal = range(std::slice::from_ref(&bound), &Next::default());
        prop_assert_eq!(in_range(equal.as_ref(), &key), known && order == Ordering::Equal);
        let above = range(&[], &Next { lower: Some((std::slice::from_ref(&bound), included)), ..Next::default() });
        let inside = order == Ordering::Greater || included && order == Ordering::Equal;
        prop_assert_eq!(in_range(above.as_ref(), &key), known && inside);
        let below = range(&[], &Next { upper: Some((std::slice::from_ref(&bound), included)), ..Next::default() });
        let inside = order == Ordering::Less || included && order == Ordering::Equal;
        prop_assert_eq!(in_range(below.as_ref(), &key), known && inside);
        let null = range(&[], &Next { is_null: true, ..Next::default() });
        prop_assert_eq!(in_range(null.as_ref(), &key), value.is_null());
        let not_null = range(&[], &Next { not_null: true, ..Next::default() });
        prop_assert_eq!(in_range(not_null.as_ref(), &key), !value.is_null());
        prop_assert!(in_range(range(&[], &Next::default()).as_ref(), &key));
    }

    /// All rows that a comparison of rows is true for; besides none but those that are NULL in the second column, where they stand among them.
    #[test]
    fn ranges_hold_what_a_comparison_of_rows_says(
        (ty, modifier, bound, value) in typed_pair(), (ty2, modifier2, bound2, value2) in typed_pair(), descending: bool,
        nulls_first: [bool; 2], included: bool, is_equal: bool,
    ) {
        let value = if is_equal { bound.clone() } else { value };
        let columns = [
            column(ty, modifier, descending, nulls_first[0]),
            column(ty2, modifier2, descending, nulls_first[1]),
        ];
        let mut key = encoded(&columns[0], &value);
        columns[1].encode(&value2, &mut key).unwrap();
        let bounds = [bound.clone(), bound2.clone()];
        let compared = |a: &Value, b: &Value| (!a.is_null() && !b.is_null()).then(|| a.total_cmp(b));
        for (is_lower, beyond) in [(true, Ordering::Greater), (false, Ordering::Less)] {
            let next = match is_lower {
                true => Next { lower: Some((&bounds, included)), ..Next::default() },
                false => Next { upper: Some((&bounds, included)), ..Next::default() },
            };
            let range = key_range(&columns, [].iter(), &next).unwrap();
            let wanted = match compared(&value, &bound) {
                Some(Ordering::Equal) => match compared(&value2, &bound2) {
                    Some(order) => order == beyond || included && order == Ordering::Equal,
                    None => value2.is_null() && !bound2.is_null() && nulls_first[1] != (is_lower != descending),
                },
                order => order == Some(beyond),
            };
            prop_assert_eq!(in_range(range.as_ref(), &key), wanted, "lower: {}", is_lower);
        }
    }

    #[test]
    fn a_bound_beyond_the_columns_type_is_still_right(
        bound in prop_oneof![any::<i64>(), -40000i64..40000], value: i16, included: bool, descending: bool,
    ) {
        let column = column(Type::Int2, NO_MODIFIER, descending, false);
        let key = encoded(&column, &Value::Int(i64::from(value)));
        let bound_value = Value::Int(bound);
        let range = |equal: &[Value], next: &Next<'_>| key_range(&[column], equal.iter(), next).unwrap();
        let equal = range(std::slice::from_ref(&bound_value), &Next::default());
        prop_assert_eq!(in_range(equal.as_ref(), &key), i64::from(value) == bound);
        let above = range(&[], &Next { lower: Some((std::slice::from_ref(&bound_value), included)), ..Next::default() });
        let inside = i64::from(value) > bound || included && i64::from(value) == bound;
        prop_assert_eq!(in_range(above.as_ref(), &key), inside);
        let below = range(&[], &Next { upper: Some((std::slice::from_ref(&bound_value), included)), ..Next::default() });
        let inside = i64::from(value) < bound || included && i64::from(value) == bound;
        prop_assert_eq!(in_range(below.as_ref(), &key), inside);
    }

    #[test]
    fn a_bound_between_two_numbers_of_type_real(bound in float(), value: f32, descending: bool) {
        let column = column(Type::Float4, NO_MODIFIER, descending, false);
        let value = Value::Float(f64::from(value));
        let key = encoded(&column, &value);
        let bound = Value::Float(bound);
        for included in [false, true] {
            let next = Next { lower: Some((std::slice::from_ref(&bound), included)), ..Next::default() };
            let above = key_range(&[column], [].iter(), &next).unwrap();
            let inside = value > bound || included && value == bound;
            prop_assert_eq!(in_range(above.as_ref(), &key), inside);
        }
    }

    #[test]
    fn any_bytes_are_a_key_or_an_error((ty, modifier, ..) in typed_pair(), bytes: Vec<u8>, descending: bool) {
        let column = column(ty, modifier, descending, false);
        let _ = column.decode(&mut bytes.as_slice());
        let _ = column.skip(&mut bytes.as_slice());
        let plain = KeyColumn { nullable: false, ..column };
        let _ = plain.decode(&mut bytes.as_slice());
    }
}

#[test]
fn a_primary_key_of_an_integer_is_four_bytes() {
    let column = KeyColumn { nullable: false, ..column(Type::Int4, NO_MODIFIER, false, false) };
    assert_eq!(encoded(&column, &Value::Int(1)), [0x80, 0, 0, 1]);
    assert_eq!(encoded(&column, &Value::Int(-1)), [0x7f, 0xff, 0xff, 0xff]);
}

#[test]
fn the_successor_is_above_all_that_begin_alike() {
    let mut key = vec![1, 0xff, 0xff];
    assert!(successor(&mut key));
    assert_eq!(key, [2]);
    assert!(!successor(&mut vec![0xff, 0xff]) && !successor(&mut Vec::new()));
}

#[test]
fn a_key_that_is_too_long_is_refused_with_its_sizes() {
    let error = check_length(&[0; 2049], 2048, "t_pkey").unwrap_err();
    assert_eq!(error.to_string(), "index row size 2049 exceeds maximum 2048 for index \"t_pkey\"");
    assert_eq!(error.state(), SqlState::PROGRAM_LIMIT_EXCEEDED);
    check_length(&[0; 2048], 2048, "t_pkey").unwrap();
}
