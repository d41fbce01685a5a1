//! Statements that are written for PostgreSQL and Gannet, as Firebird takes them; and what it says, as a workload sees it.
//!
//! It is no parser of SQL: it knows the words that our own workloads use.

use crate::scan::VALUE_LEN;
use crate::tpcc::connection::Datum;
use std::fmt::Write;

/// Firebird takes no longer text of a statement than 65,535 bytes.
const LONGEST_BLOCK: usize = 60_000;
/// Values of a block that inserts rows: with more of them it takes long to be prepared.
const MOST_VALUES: usize = 1_000;
/// Rows of a block: a statement may name 255 tables, each time it names one.
const MOST_ROWS: usize = 120;

/// A statement in Firebird's words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Translated {
    /// Its text, with a question mark for each value.
    pub sql: String,
    /// Which parameter each question mark stands for, from 0.
    pub parameters: Vec<usize>,
}

impl Translated {
    /// The values of the question marks.
    ///
    /// # Errors
    /// There are fewer parameters than the statement names.
    pub fn values<'p>(&self, parameters: &'p [Datum]) -> anyhow::Result<Vec<&'p Datum>> {
        let value = |&at: &usize| {
            parameters.get(at).ok_or_else(|| anyhow::anyhow!("{:?} has no parameter ${}", self.sql, at + 1))
        };
        self.parameters.iter().map(value).collect()
    }
}

/// A piece of a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Token<'s> {
    /// A name or a keyword.
    Word(&'s str),
    /// `$n`
    Parameter(usize),
    /// Anything else: spaces, numbers, signs, quoted text.
    Other(&'s str),
}

fn tokens(sql: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let mut rest = sql;
    while let Some(first) = rest.chars().next() {
        let length = |is: fn(char) -> bool| rest[1..].find(|c| !is(c)).map_or(rest.len(), |at| at + 1);
        let (token, end) = match first {
            'a'..='z' | 'A'..='Z' | '_' => {
                let end = length(|c| c.is_ascii_alphanumeric() || c == '_' || c == '$');
                (Token::Word(&rest[..end]), end)
            }
            '$' => {
                let end = length(|c| c.is_ascii_digit());
                let number = rest[1..end].parse().unwrap_or(0_usize);
                (number.checked_sub(1).map_or(Token::Other(&rest[..end]), Token::Parameter), end)
            }
            '\'' | '"' => {
                let end = rest[1..].find(first).map_or(rest.len(), |at| at + 2);
                (Token::Other(&rest[..end]), end)
            }
            // A number is no begin of a word.
            '0'..='9' => {
                let end = length(|c| c.is_ascii_digit());
                (Token::Other(&rest[..end]), end)
            }
            other => (Token::Other(&rest[..other.len_utf8()]), other.len_utf8()),
        };
        found.push(token);
        rest = &rest[end..];
    }
    found
}

fn is(token: Option<&Token<'_>>, word: &str) -> bool {
    matches!(token, Some(Token::Word(found)) if found.eq_ignore_ascii_case(word))
}

/// A statement in Firebird's words: `?` for `$n`, `rows` for `limit`, `with lock` for `for update`, `substring` for `substr`, `varchar` for `text`, a table for
/// a select that has none; and the table `rows` in quotes, as that is a keyword.
pub fn translate(sql: &str) -> Translated {
    let tokens = tokens(sql);
    let (mut out, mut parameters) = (String::with_capacity(sql.len() + 32), Vec::new());
    // The depth of brackets in which each `substr` has its arguments, and how many commas have come there.
    let (mut depth, mut cuts): (usize, Vec<(usize, usize)>) = (0, Vec::new());
    let mut at = 0;
    while let Some(&token) = tokens.get(at) {
        at += 1;
        match token {
            Token::Parameter(number) => {
                parameters.push(number);
                out.push('?');
            }
            Token::Word(word) => match word.to_ascii_lowercase().as_str() {
                "limit" => out.push_str("rows"),
                "rows" => out.push_str("\"rows\""),
                "for" if is(tokens.get(at + 1), "update") => {
                    out.push_str("with lock");
                    at += 2;
                }
                "substr" => {
                    out.push_str("substring");
                    cuts.push((depth + 1, 0));
                }
                "text" => {
                    // Writing to a string does not fail.
                    let _ = write!(out, "varchar({VALUE_LEN})");
                }
                _ => out.push_str(word),
            },
            Token::Other("(") => {
                depth += 1;
                out.push('(');
            }
            Token::Other(")") => {
                cuts.pop_if(|cut| cut.0 == depth);
                depth = depth.saturating_sub(1);
                out.push(')');
            }
            Token::Other(",") if cuts.last().is_some_and(|cut| cut.0 == depth) => {
                let cut = cuts.last_mut().map_or(0, |cut| {
                    cut.1 += 1;
                    cut.1
                });
                out.push_str(if cut == 1 { " from" } else { " for" });
            }
            Token::Other(other) => out.push_str(other),
        }
    }
    if is(tokens.first(), "select") && !tokens.iter().any(|token| is(Some(token), "from")) {
        out.push_str(" from rdb$database");
    }
    Translated { sql: out, parameters }
}

/// A statement that changes rows and gives none, made to give one: so Firebird answers at once, and need not be asked how many rows it has changed. `None` where
/// it gives rows anyway.
pub fn with_answer(sql: &str) -> Option<String> {
    let tokens = tokens(sql);
    let changes = ["insert", "update", "delete"].iter().any(|word| is(tokens.first(), word));
    let answers = tokens.iter().any(|token| is(Some(token), "returning"));
    (changes && !answers).then(|| format!("{sql} returning 1"))
}

/// A name as Firebird has stored it, where it was not quoted; [`translate`] quotes `rows`.
pub fn stored(name: &str) -> String {
    if name == "rows" { name.to_owned() } else { name.to_ascii_uppercase() }
}

/// A statement that inserts so many rows at once; its values come row by row.
fn block_of(table: &str, columns: &[String], rows: usize) -> String {
    let (mut head, mut body, mut value) = (String::new(), String::new(), 0);
    for _ in 0..rows {
        let first = value;
        for column in columns {
            let comma = if value == 0 { "" } else { "," };
            // Writing to a string does not fail.
            let _ = write!(head, "{comma}a{value} type of column \"{table}\".\"{column}\"=?");
            value += 1;
        }
        let values: Vec<String> = (first..value).map(|value| format!(":a{value}")).collect();
        let _ = write!(body, "insert into \"{table}\" values({});", values.join(","));
    }
    format!("execute block({head})as begin {body} end")
}

/// A statement that inserts as many rows at once as one can, or `most` of them, and how many these are; its values come row by row. The table's name and those of
/// its columns as they are stored.
pub fn insert_block(table: &str, columns: &[String], most: usize) -> (String, usize) {
    let mut rows = (MOST_VALUES / columns.len().max(1)).min(MOST_ROWS).min(most).max(1);
    loop {
        let sql = block_of(table, columns, rows);
        if sql.len() <= LONGEST_BLOCK || rows == 1 {
            return (sql, rows);
        }
        rows -= 1;
    }
}

/// The values of a line of COPY.
pub fn line_values(line: &str) -> impl Iterator<Item = Option<&str>> {
    line.split('\t').map(|value| (value != "\\N").then_some(value))
}

/// An exact number of money, or of a share in ten-thousandths, from what the client gives for it, which is a floating-point number: of two decimals where
/// it is one of these, else of four.
pub fn decimal(value: f64) -> Datum {
    let cents = value * 100.0;
    match (cents - cents.round()).abs() < 1e-3 {
        true => Datum::Decimal(cents.round() as i64, 2),
        false => Datum::Decimal((value * 10_000.0).round() as i64, 4),
    }
}

/// What Firebird's complaint means to a workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Complaint {
    /// Somebody else has changed a row since it was read, and committed: under read committed the statement can be run again, within its transaction. Or it is a
    /// deadlock.
    Changed,
    /// A deadlock, or a lock that is not to be had.
    Conflict,
    /// A statement that was to give a row gives none.
    NoRow,
    /// A statement that was to give one row gives more.
    ManyRows,
    /// Anything else.
    Other,
}

/// What a message means: the client gives no code of an error.
pub fn complaint(message: &str) -> Complaint {
    let has = |words: &str| message.contains(words);
    match () {
        () if has("update conflicts with concurrent update") => Complaint::Changed,
        () if has("deadlock") || has("lock conflict") || has("lock time-out") => Complaint::Conflict,
        () if has("attempt to fetch past the last record") => Complaint::NoRow,
        () if has("multiple rows in singleton select") => Complaint::ManyRows,
        () => Complaint::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sql(text: &str) -> String {
        translate(text).sql
    }

    #[test]
    fn parameters_stand_where_they_are_named_and_as_often() {
        let text = "update c set b = b - $4, y = y + $4 where w = $1 and d = $2 and n <> '$3' and i = $3 returning b";
        let translated = translate(text);
        assert_eq!(
            translated.sql,
            "update c set b = b - ?, y = y + ? where w = ? and d = ? and n <> '$3' and i = ? returning b"
        );
        assert_eq!(translated.parameters, [3, 3, 0, 1, 2]);
        let given = [1, 2, 3, 4].map(Datum::Int);
        let values = translated.values(&given).unwrap();
        assert_eq!(values, [4, 4, 1, 2, 3].map(Datum::Int).iter().collect::<Vec<_>>());
        assert!(translated.values(&given[..2]).is_err());
    }

    #[test]
    fn limits_locks_and_functions_have_their_own_words() {
        assert_eq!(
            sql("select o from n where w = $1 order by o limit 1 for update"),
            "select o from n where w = ? order by o rows 1 with lock"
        );
        assert_eq!(
            sql("update c set d = substr($1 || max(d, 2), 1, 500) where (a, b) returning substr(d, 1, 200)"),
            "update c set d = substring(? || max(d, 2) from 1 for 500) where (a, b) returning substring(d from 1 for 200)"
        );
        assert_eq!(sql("select current_date"), "select current_date from rdb$database");
        assert_eq!(
            sql("create table rows (k bigint primary key, v text not null)"),
            "create table \"rows\" (k bigint primary key, v varchar(184) not null)"
        );
        assert_eq!(
            sql("select 'rows of text, limit 1' from rows_of"),
            "select 'rows of text, limit 1' from rows_of"
        );
    }

    #[test]
    fn what_changes_rows_is_made_to_answer() {
        assert_eq!(with_answer("delete from t").as_deref(), Some("delete from t returning 1"));
        assert_eq!(with_answer("update t set a = 1 returning a"), None);
        assert_eq!(with_answer("select a from t"), None);
    }

    #[test]
    fn blocks_of_inserts_are_as_long_as_they_may_be() {
        let columns = ["A".to_owned(), "B".to_owned()];
        let (sql, rows) = insert_block("T", &columns, 2);
        assert_eq!(rows, 2);
        assert_eq!(
            sql,
            "execute block(a0 type of column \"T\".\"A\"=?,a1 type of column \"T\".\"B\"=?,a2 type of column \"T\".\"A\"=?,\
             a3 type of column \"T\".\"B\"=?)as begin insert into \"T\" values(:a0,:a1);insert into \"T\" values(:a2,:a3); end"
        );
        assert_eq!(insert_block("T", &columns, usize::MAX).1, MOST_ROWS);
        let long: Vec<String> = (0..20).map(|number| format!("A_LONG_NAME_OF_A_COLUMN_{number}")).collect();
        let (sql, rows) = insert_block("A_LONG_NAME_OF_A_TABLE", &long, usize::MAX);
        assert!(rows > 20 && sql.len() <= LONGEST_BLOCK, "{rows} rows, {} bytes", sql.len());
        assert_eq!((stored("order_line"), stored("rows")), ("ORDER_LINE".to_owned(), "rows".to_owned()));
    }

    #[test]
    fn lines_have_values_and_nulls() {
        let values: Vec<Option<&str>> = line_values("1\tabc\t\\N\t").collect();
        assert_eq!(values, [Some("1"), Some("abc"), None, Some("")]);
    }

    #[test]
    fn money_comes_back_to_the_cent() {
        for cents in [0, 1, -1, 7, 123_456_789, -99_999_999_999, 999_999_999_999] {
            assert_eq!(decimal(cents as f64 / 100.0), Datum::Decimal(cents, 2));
        }
        assert_eq!(decimal(0.1234), Datum::Decimal(1234, 4));
        assert_eq!(decimal(0.0001), Datum::Decimal(1, 4));
        assert_eq!(decimal(0.12), Datum::Decimal(12, 2));
    }

    #[test]
    fn complaints_are_told_apart() {
        let changed =
            "deadlock\n-update conflicts with concurrent update\n-concurrent transaction number is 7";
        assert_eq!(complaint(changed), Complaint::Changed);
        assert_eq!(complaint("deadlock"), Complaint::Conflict);
        assert_eq!(complaint("lock conflict on no wait transaction\n-deadlock"), Complaint::Conflict);
        assert_eq!(complaint("multiple rows in singleton select"), Complaint::ManyRows);
        assert_eq!(complaint("Dynamic SQL Error"), Complaint::Other);
    }
}
