use super::*;

fn style(format: Format) -> Style {
    Style { format, expanded: Expanded::Off, null: String::new(), tuples_only: false, terminal_columns: None }
}

fn columns(of: &[(&str, u32)]) -> Vec<Column> {
    of.iter().map(|(name, oid)| Column { name: (*name).to_owned(), type_oid: *oid }).collect()
}

fn write(style: Style, of: &[(&str, u32)], rows: &[&[Option<&str>]]) -> String {
    let mut out = Vec::new();
    let mut writer = Writer::new(style, &columns(of));
    for row in rows {
        writer.row(row, &mut out).unwrap();
    }
    writer.finish(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

const INT: u32 = 23;
const TEXT: u32 = 25;

#[test]
fn a_table_looks_like_psqls() {
    let rows: &[&[Option<&str>]] =
        &[&[Some("1"), Some("x\ny"), None], &[Some("234"), Some("日本"), Some("z")]];
    let got = write(style(Format::Table), &[("a", INT), ("name", TEXT), ("c", TEXT)], rows);
    assert_eq!(
        got,
        "  a  | name | c \n-----+------+---\n   1 | x   +| \n     | y    | \n 234 | 日本 | z\n(2 rows)\n\n"
    );
    assert_eq!(write(style(Format::Table), &[("a", INT)], &[]), " a \n---\n(0 rows)\n\n");
}

#[test]
fn records_look_like_psqls() {
    let expanded = Style { expanded: Expanded::On, ..style(Format::Table) };
    let rows: &[&[Option<&str>]] = &[&[Some("1"), Some("a long text\nof two lines")], &[None, Some("x")]];
    let got = write(expanded.clone(), &[("a", INT), ("bc", TEXT)], rows);
    assert_eq!(
        got,
        "-[ RECORD 1 ]----\na  | 1\nbc | a long text +\n   | of two lines\n-[ RECORD 2 ]----\na  | \nbc | x\n\n"
    );
    let got = write(expanded, &[("a_very_long_name_of_a_column", INT)], &[&[Some("1")]]);
    assert_eq!(got, "-[ RECORD 1 ]----------------+--\na_very_long_name_of_a_column | 1\n\n");
}

#[test]
fn a_long_table_comes_in_windows() {
    let mut out = Vec::new();
    let mut writer = Writer::new(style(Format::Table), &columns(&[("a", TEXT), ("b", TEXT)]));
    for _ in 0..WINDOW_ROWS {
        writer.row(&[Some("x"), Some("y")], &mut out).unwrap();
    }
    assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), WINDOW_ROWS + 2);
    writer.row(&[Some("wide"), Some("y")], &mut out).unwrap();
    writer.finish(&mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.ends_with("\n x | y\n wide | y\n(1001 rows)\n\n"), "{}", &text[text.len() - 60..]);
}

#[test]
fn csv_is_quoted_where_a_reader_needs_it() {
    let rows: &[&[Option<&str>]] =
        &[&[Some("a,\"b"), Some("x\ny")], &[None, Some("\x1b[2J")], &[Some("\\."), Some("")]];
    let got = write(style(Format::Csv), &[("k", TEXT), ("v", TEXT)], rows);
    assert_eq!(got, "k,v\n\"a,\"\"b\",\"x\ny\"\n,\x1b[2J\n\"\\.\",\n");
    let terminal = Style { terminal_columns: Some(80), ..style(Format::Csv) };
    assert!(write(terminal, &[("k", TEXT)], &[&[Some("\x1b[2J")]]).contains("\\x1B[2J"));
}

#[test]
fn json_has_numbers_where_they_are_exact() {
    let of = [
        ("int", 23),
        ("big", 20),
        ("num", 1700),
        ("double", 701),
        ("bool", 16),
        ("text", 25),
        ("json", 114),
        ("text", 25),
    ];
    let row = [
        Some("-7"),
        Some("9007199254740993"),
        Some("12.50"),
        Some("NaN"),
        Some("t"),
        Some("a\"\\\n\u{1b}é"),
        Some("{\"a\": [1]}"),
        None,
    ];
    let got = write(style(Format::Json), &of, &[&row, &row]);
    let line = r#"{"int":-7,"big":"9007199254740993","num":12.50,"double":"NaN","bool":true,"text":"a\"\\\n\u001bé","json":{"a": [1]},"text_2":null}"#;
    assert_eq!(got, format!("[\n{line},\n{line}\n]\n"));
    assert!(serde_json::from_str::<serde_json::Value>(&got).is_ok());
    assert_eq!(write(style(Format::Json), &of, &[]), "[]\n");
    for (text, exact) in [
        ("0.1", true),
        ("1234567890.12345", true),
        ("1234567890.123456", false),
        ("NaN", false),
        ("1e5", false),
    ] {
        assert_eq!(is_exact_decimal(text), exact, "{text}");
    }
}
