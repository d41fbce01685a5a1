use super::*;
use proptest::prelude::*;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

fn number(text: &str) -> Numeric {
    Numeric::parse(text).unwrap()
}

fn hash(number: &Numeric) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(number)
}

/// The text of a result as the samples have it.
fn shown<T: fmt::Display>(result: Result<T>) -> String {
    match result {
        Ok(value) => value.to_string(),
        Err(error) => {
            let fields = error.fields();
            let detail = fields.detail.as_ref().map_or(String::new(), |detail| format!(" / {detail}"));
            format!("!{} {}{detail}", fields.state, fields.message)
        }
    }
}

fn float_text<T: std::str::FromStr + PartialEq + fmt::Debug>(result: Result<T>, expected: &str) -> String {
    // How floats are written is not the matter here: compare what the text means.
    match (result, expected.parse::<T>()) {
        (Ok(value), Ok(other)) if value == other => expected.to_owned(),
        (Ok(value), _) => format!("{value:?}"),
        (Err(error), _) => format!("!{} {error}", error.state()),
    }
}

fn evaluate(operation: &str, left: &str, right: &str, expected: &str) -> String {
    if operation == "parse" {
        return shown(Numeric::parse(&left.replace("\\t", "\t").replace("\\n", "\n")));
    }
    if operation == "from_double" {
        return shown(Numeric::from_f64(left.parse().unwrap()));
    }
    if operation == "from_real" {
        return shown(Numeric::from_f32(left.parse().unwrap()));
    }
    let a = number(left);
    let b = || number(right);
    match operation {
        "add" => shown(a.add(&b())),
        "sub" => shown(a.sub(&b())),
        "mul" => shown(a.mul(&b())),
        "div" => shown(a.div(&b())),
        "rem" => shown(a.rem(&b())),
        "quotient" => shown(a.div_trunc(&b())),
        "gcd" => shown(a.gcd(&b())),
        "lcm" => shown(a.lcm(&b())),
        "compare" => (a.cmp(&b()) as i32).to_string(),
        "log" => shown(b().log(&a)),
        "power" => shown(a.power(&b())),
        "sqrt" => shown(a.sqrt()),
        "exp" => shown(a.exp()),
        "ln" => shown(a.ln()),
        "log10" => shown(a.log10()),
        "ceil" => shown(a.ceil()),
        "floor" => shown(a.floor()),
        "abs" => a.abs().to_string(),
        "neg" => a.neg().to_string(),
        "sign" => a.sign().to_string(),
        "trim_scale" => a.trim_scale().to_string(),
        "text" => a.to_string(),
        "int" => shown(a.to_i32()),
        "bigint" => shown(a.to_i64()),
        "smallint" => shown(a.to_i16()),
        "double" => float_text(a.to_f64(), expected),
        "real" => float_text(a.to_f32(), expected),
        "round" => shown(a.round(right.parse().unwrap())),
        "trunc" => shown(a.trunc(right.parse().unwrap())),
        "fit" => {
            let (precision, scale) = right.split_once(',').unwrap();
            let (precision, scale): (i32, i32) = (precision.parse().unwrap(), scale.parse().unwrap());
            shown(a.fit(((precision << 16) | (scale & 0x7ff)) + 4))
        }
        other => panic!("no operation {other}"),
    }
}

#[test]
fn answers_are_those_of_postgresql() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in include_str!("samples.txt").lines().filter(|line| !line.starts_with('#')) {
        let [operation, left, right, expected] = line.split('|').collect::<Vec<_>>()[..] else {
            panic!("not a sample: {line}")
        };
        let mut expected = expected.to_owned();
        if matches!(operation, "double" | "real") && expected.starts_with('!') {
            expected = expected.split(" / ").next().unwrap().to_owned();
        }
        let found = evaluate(operation, left, right, &expected);
        count += 1;
        if found != expected {
            wrong.push(format!("{operation} {left} {right}\n  expected {expected}\n  found    {found}"));
        }
    }
    assert!(count > 1000);
    assert!(wrong.is_empty(), "{} of {count} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_number_is_no_larger_than_two_words() {
    assert!(size_of::<Numeric>() <= 16);
}

/// Sorting panics where this does not hold.
#[test]
fn numbers_of_all_scales_are_totally_ordered() {
    let texts = ["0", "1", "-1", "9", "-9", "1000000000000000000", "-9223372036854775807"];
    let mut numbers = Vec::new();
    for (rank, digits) in texts.iter().enumerate() {
        for scale in [0, 1, 2, 18, 19, 20, 21, 30, 40] {
            numbers.push((rank, scale, number(&format!("{digits}e-{scale}"))));
        }
    }
    for (a_rank, a_scale, a) in &numbers {
        for (b_rank, b_scale, b) in &numbers {
            assert_eq!(a.cmp(b), b.cmp(a).reverse(), "{a} {b}");
            if *a_rank == 0 && *b_rank == 0 {
                assert_eq!((a, hash(a)), (b, hash(b)), "{a_scale} {b_scale}");
            }
            for (_, _, c) in &numbers {
                assert!(a > b || b > c || a <= c, "{a} {b} {c}");
            }
        }
    }
}

#[test]
fn equal_values_are_equal_whatever_their_scales() {
    let long = format!("1{}", "0".repeat(30));
    for (a, b) in [
        ("1", "1.00"),
        ("0", "0.000"),
        ("-2.5", "-2.50000000000000000000000000000000000"),
        (long.as_str(), "1e30"),
        ("5", "5.0000000000000000000000000"),
        ("NaN", "nan"),
        ("9223372036854775808", "9223372036854775808.0"),
    ] {
        let (a, b) = (number(a), number(b));
        assert_eq!(a, b);
        assert_eq!(hash(&a), hash(&b), "{a} {b}");
    }
    assert_ne!(number("1"), number("1.0000000000000000000000000000001"));
}

#[test]
fn limits_are_those_of_the_format() {
    assert_eq!(number("1e131071").to_string().len(), 131_072);
    assert!(number("1e131071").mul(&number("10")).is_err());
    assert!(number("9e131071").add(&number("1e131071")).is_err());
    assert_eq!(number("1e-16383").mul(&number("0.1")).unwrap(), Numeric::ZERO);
    assert_eq!(number("1e-16383").scale(), Some(16383));
    assert!(Numeric::parse("1e131072").is_err());
    let nines = "9".repeat(131_072);
    assert_eq!(number(&nines).to_string(), nines);
    assert!(number(&nines).round(-1).is_err());
    assert!(number(&nines) > number("1e-16383"));
}

#[test]
fn the_extremes_of_machine_integers_survive() {
    for value in [i64::MIN, i64::MIN + 1, i64::MAX] {
        let number = Numeric::from(value);
        assert_eq!(number.to_i64().unwrap(), value);
        assert_eq!(number.neg().neg(), number);
        assert_eq!(number.neg().neg().to_i64().unwrap(), value);
        assert_eq!(number.abs().to_string(), value.unsigned_abs().to_string());
    }
    assert!(Numeric::from(i64::MIN).neg().to_i64().is_err());
}

#[test]
fn sums_keep_every_digit() {
    let mut sum = NumericSum::new();
    for text in ["1.5", "2.25", "-3", "1e30", "0.00000000000000000000000000000000001"] {
        sum.add(&number(text));
    }
    assert_eq!(
        sum.sum().unwrap().to_string(),
        "1000000000000000000000000000000.75000000000000000000000000000000001"
    );
    assert_eq!(sum.count(), 5);
    sum.add(&Numeric::INFINITY);
    assert_eq!(sum.sum().unwrap(), Numeric::INFINITY);
    sum.add(&Numeric::NEG_INFINITY);
    assert!(sum.sum().unwrap().is_nan());
    assert!(NumericSum::new().average().unwrap().is_none());
}

#[test]
fn variance_is_that_of_postgresql() {
    let (mut sum, mut squares) = (NumericSum::new(), NumericSum::new());
    for value in [1, 2, 4, 7] {
        sum.add_int(value);
        squares.add_int_square(value);
    }
    let shown = |sample, root| variance(&sum, &squares, sample, root).unwrap().unwrap().to_string();
    assert_eq!(sum.average().unwrap().unwrap().to_string(), "3.5000000000000000");
    assert_eq!(shown(true, false), "7.0000000000000000");
    assert_eq!(shown(false, false), "5.2500000000000000");
    assert_eq!(shown(true, true), "2.6457513110645906");
    assert_eq!(shown(false, true), "2.2912878474779200");
}

fn any_number() -> impl Strategy<Value = Numeric> {
    let digits = prop_oneof![
        any::<i64>().prop_map(i128::from),
        any::<i32>().prop_map(i128::from),
        (-1000_i128..1000),
        any::<i128>().prop_map(|digits| digits >> 2),
    ];
    (digits, prop_oneof![Just(0_u16), 0_u16..30])
        .prop_map(|(digits, scale)| Numeric::from_i128(digits, scale))
}

proptest! {
    #[test]
    fn whole_numbers_calculate_as_machine_integers(a in any::<i64>(), b in any::<i64>()) {
        let (x, y) = (Numeric::from(a), Numeric::from(b));
        let (a, b) = (i128::from(a), i128::from(b));
        prop_assert_eq!(x.add(&y).unwrap().to_string(), (a + b).to_string());
        prop_assert_eq!(x.sub(&y).unwrap().to_string(), (a - b).to_string());
        prop_assert_eq!(x.mul(&y).unwrap().to_string(), (a * b).to_string());
        prop_assert_eq!(x.cmp(&y), a.cmp(&b));
        if b != 0 {
            prop_assert_eq!(x.div_trunc(&y).unwrap().to_string(), (a / b).to_string());
            prop_assert_eq!(x.rem(&y).unwrap().to_string(), (a % b).to_string());
        }
    }

    #[test]
    fn text_and_base_10000_read_back(a in any_number()) {
        let read = number(&a.to_string());
        prop_assert_eq!(&read, &a);
        prop_assert_eq!(read.scale(), a.scale());
        let read = Numeric::from_base_10000(&a.to_base_10000()).unwrap();
        prop_assert_eq!(&read, &a);
        prop_assert_eq!(read.scale(), a.scale());
    }

    #[test]
    fn small_and_long_forms_agree(a in any_number(), b in any_number()) {
        // Adding and taking away a huge number goes through the long form.
        let huge = number("1e40");
        let sum = a.add(&huge).unwrap().add(&b).unwrap().sub(&huge).unwrap();
        prop_assert_eq!(&sum, &a.add(&b).unwrap());
        prop_assert_eq!(hash(&sum), hash(&a.add(&b).unwrap()));
        prop_assert_eq!(a.cmp(&b), a.sub(&b).unwrap().cmp(&Numeric::ZERO));
        let quotient_and_rest = if b.is_zero() { a.clone() } else {
            a.div_trunc(&b).unwrap().mul(&b).unwrap().add(&a.rem(&b).unwrap()).unwrap()
        };
        prop_assert_eq!(quotient_and_rest, a);
    }

    #[test]
    fn a_sum_does_not_depend_on_the_order(mut numbers in prop::collection::vec(any_number(), 0..20)) {
        let mut forward = NumericSum::new();
        numbers.iter().for_each(|number| forward.add(number));
        numbers.reverse();
        let (mut left, mut right) = (NumericSum::new(), NumericSum::new());
        for (index, number) in numbers.iter().enumerate() {
            if index % 2 == 0 { left.add(number) } else { right.add(number) }
        }
        left.merge(&right);
        prop_assert_eq!(forward.sum().unwrap(), left.sum().unwrap());
        let expected = numbers.iter().fold(Numeric::ZERO, |sum, number| sum.add(number).unwrap());
        prop_assert_eq!(forward.sum().unwrap(), expected);
    }

    #[test]
    fn rounding_goes_to_the_nearest(a in any_number(), scale in -5..20) {
        let rounded = a.round(scale).unwrap();
        let error = rounded.sub(&a).unwrap().abs().add(&rounded.sub(&a).unwrap().abs()).unwrap();
        let unit = if scale < 0 { number(&format!("1e{}", -scale)) } else { number(&format!("1e-{scale}")) };
        prop_assert!(error <= unit);
        let cut = a.trunc(scale).unwrap();
        prop_assert!(cut.abs() <= a.abs() && a.sub(&cut).unwrap().abs() < unit);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC*") {
        let _ = Numeric::parse(&text);
    }
}
