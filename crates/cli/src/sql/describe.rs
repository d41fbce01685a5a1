//! What there is: `\d` and its kin, answered from the system's tables, and shown as psql does.

use super::format::Writer;
use super::printer::Collected;
use super::shell::{Shell, Step};
use gannet_server::frontend::Column;
use std::fmt::Write as _;

/// Why there is nothing to show.
pub(super) enum NotFound {
    /// It failed, and the user knows.
    Told(Step),
    /// There is no such thing.
    Nothing(String),
}

impl From<Step> for NotFound {
    fn from(step: Step) -> Self {
        NotFound::Told(step)
    }
}

type Described = Result<Step, NotFound>;

// ---- patterns ----------------------------------------------------------------------------------------------------------

/// A pattern as a regular expression for the schema, if it names one, and one for the name: `*` and `?` stand for any characters, letters
/// outside of quotes are small.
fn regexes(pattern: &str) -> (Option<String>, String) {
    let mut parts = vec![String::new()];
    let mut quoted = false;
    for character in pattern.chars() {
        let Some(part) = parts.last_mut() else { break };
        match character {
            '"' => quoted = !quoted,
            '.' if !quoted => parts.push(String::new()),
            '*' if !quoted => part.push_str(".*"),
            '?' if !quoted => part.push('.'),
            special if ".*?\\+()[]{}|^$".contains(special) => {
                part.push('\\');
                part.push(special);
            }
            other if quoted => part.push(other),
            other => part.extend(other.to_lowercase()),
        }
    }
    let anchored = |part: &str| format!("^({part})$");
    match parts.as_slice() {
        [name] => (None, anchored(name)),
        // A database before the schema is this one.
        [.., schema, name] => (Some(anchored(schema)), anchored(name)),
        [] => (None, anchored("")),
    }
}

/// A text as an SQL literal.
fn literal(text: &str) -> String {
    let escaped = text.replace('\'', "''");
    if escaped.contains('\\') {
        format!("E'{}'", escaped.replace('\\', "\\\\"))
    } else {
        format!("'{escaped}'")
    }
}

/// The conditions of a pattern on `pg_class c` and `pg_namespace n`.
fn conditions(pattern: &str) -> String {
    let (schema, name) = regexes(pattern);
    let mut text = format!(" AND c.relname ~ {}", literal(&name));
    match schema {
        Some(schema) => {
            let _ = write!(text, " AND n.nspname ~ {}", literal(&schema));
        }
        None => text.push_str(" AND pg_catalog.pg_table_is_visible(c.oid)"),
    }
    text
}

// ---- lists -------------------------------------------------------------------------------------------------------------

/// Lists relations of the kinds that `kinds` has letters of, as `pg_class.relkind` has them.
pub(super) fn list(shell: &mut Shell, kinds: &str, pattern: Option<&str>, system: bool) -> Described {
    let kind_list: Vec<String> = kinds.chars().map(|kind| format!("'{kind}'")).collect();
    let indexes = kinds.contains('i');
    let (column, join) = if indexes {
        (
            ", c2.relname AS \"Table\"",
            " LEFT JOIN pg_catalog.pg_index i ON i.indexrelid = c.oid \
             LEFT JOIN pg_catalog.pg_class c2 ON i.indrelid = c2.oid",
        )
    } else {
        ("", "")
    };
    let narrowed = match pattern {
        Some(pattern) => conditions(pattern),
        None if system => " AND pg_catalog.pg_table_is_visible(c.oid)".to_owned(),
        None => " AND n.nspname <> 'pg_catalog' AND n.nspname <> 'information_schema' \
                  AND pg_catalog.pg_table_is_visible(c.oid)"
            .to_owned(),
    };
    let sql = format!(
        "SELECT n.nspname AS \"Schema\", c.relname AS \"Name\", \
         CASE c.relkind WHEN 'r' THEN 'table' WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view' \
         WHEN 'i' THEN 'index' WHEN 'S' THEN 'sequence' WHEN 'f' THEN 'foreign table' \
         WHEN 'p' THEN 'partitioned table' WHEN 'I' THEN 'partitioned index' END AS \"Type\", \
         pg_catalog.pg_get_userbyid(c.relowner) AS \"Owner\"{column} \
         FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace{join} \
         WHERE c.relkind IN ({}){narrowed} ORDER BY 1, 2",
        kind_list.join(", ")
    );
    let rows = shell.ask(&sql)?;
    let things = match kinds {
        "rp" => "tables",
        "iI" => "indexes",
        "v" => "views",
        "S" => "sequences",
        _ => "relations",
    };
    if rows.rows.is_empty() {
        let thing = &things[..things.len() - if indexes { 2 } else { 1 }];
        return Err(NotFound::Nothing(match pattern {
            Some(pattern) => format!("Did not find any {thing} named \"{pattern}\"."),
            None => format!("Did not find any {things}."),
        }));
    }
    Ok(show(shell, &rows, Some("List of relations".to_owned()), None))
}

/// Lists databases.
pub(super) fn databases(shell: &mut Shell, pattern: Option<&str>) -> Described {
    let narrowed = pattern
        .map_or(String::new(), |pattern| format!(" WHERE d.datname ~ {}", literal(&regexes(pattern).1)));
    let sql = format!(
        "SELECT d.datname AS \"Name\", pg_catalog.pg_get_userbyid(d.datdba) AS \"Owner\", \
         pg_catalog.pg_encoding_to_char(d.encoding) AS \"Encoding\", d.datcollate AS \"Collate\", \
         d.datctype AS \"Ctype\" FROM pg_catalog.pg_database d{narrowed} ORDER BY 1"
    );
    let rows = shell.ask(&sql)?;
    Ok(show(shell, &rows, Some("List of databases".to_owned()), None))
}

/// Lists roles.
pub(super) fn roles(shell: &mut Shell, pattern: Option<&str>) -> Described {
    let narrowed = match pattern {
        Some(pattern) => format!(" WHERE r.rolname ~ {}", literal(&regexes(pattern).1)),
        None => " WHERE r.rolname !~ '^pg_'".to_owned(),
    };
    let sql = format!(
        "SELECT r.rolname, r.rolsuper, r.rolcreaterole, r.rolcreatedb, r.rolcanlogin, r.rolreplication, \
         r.rolbypassrls FROM pg_catalog.pg_roles r{narrowed} ORDER BY 1"
    );
    let found = shell.ask(&sql)?;
    const ATTRIBUTES: [&str; 6] =
        ["Superuser", "Create role", "Create DB", "Cannot login", "Replication", "Bypass RLS"];
    let rows = found
        .rows
        .iter()
        .map(|row| {
            let is = |index: usize| row.get(index + 1).and_then(Option::as_deref) == Some("t");
            // The fourth one is the other way round.
            let attributes: Vec<&str> = (0..ATTRIBUTES.len())
                .filter(|index| is(*index) != (*index == 3))
                .map(|index| ATTRIBUTES[index])
                .collect();
            vec![row[0].clone(), Some(attributes.join(", "))]
        })
        .collect();
    let table = Collected { columns: text_columns(&["Role name", "Attributes"]), rows };
    Ok(show(shell, &table, Some("List of roles".to_owned()), None))
}

// ---- one relation -------------------------------------------------------------------------------------------------------

/// Describes every relation that a pattern fits.
pub(super) fn relations(shell: &mut Shell, pattern: &str) -> Described {
    let sql = format!(
        "SELECT c.oid, n.nspname, c.relname, c.relkind FROM pg_catalog.pg_class c \
         LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE true{} ORDER BY 2, 3",
        conditions(pattern)
    );
    let found = shell.ask(&sql)?;
    if found.rows.is_empty() {
        return Err(NotFound::Nothing(format!("Did not find any relation named \"{pattern}\".")));
    }
    for row in &found.rows {
        let cell = |index: usize| row.get(index).and_then(Option::as_deref).unwrap_or_default();
        let name = format!("{}.{}", cell(1), cell(2));
        let step = match cell(3) {
            "i" | "I" => index(shell, cell(0), &name)?,
            "S" => sequence(shell, cell(0), &name)?,
            "p" => table(shell, cell(0), &format!("Partitioned table \"{name}\""))?,
            "v" | "m" => table(shell, cell(0), &format!("View \"{name}\""))?,
            _ => table(shell, cell(0), &format!("Table \"{name}\""))?,
        };
        if step != Step::Fine {
            return Ok(step);
        }
    }
    Ok(Step::Fine)
}

/// A table, or a view: its columns, and what belongs to it.
fn table(shell: &mut Shell, oid: &str, title: &str) -> Described {
    let found = shell.ask(&format!(
        "SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), \
         (SELECT c.collname FROM pg_catalog.pg_collation c, pg_catalog.pg_type t \
          WHERE c.oid = a.attcollation AND t.oid = a.atttypid AND a.attcollation <> t.typcollation), \
         a.attnotnull, a.attidentity, a.attgenerated, \
         (SELECT pg_catalog.pg_get_expr(d.adbin, d.adrelid, true) FROM pg_catalog.pg_attrdef d \
          WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum AND a.atthasdef) \
         FROM pg_catalog.pg_attribute a \
         WHERE a.attrelid = {oid} AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
    ))?;
    let rows = found
        .rows
        .into_iter()
        .map(|row| {
            let cell = |index: usize| row.get(index).and_then(Option::as_deref).unwrap_or_default();
            let default = match (cell(4), cell(5)) {
                ("a", _) => "generated always as identity".to_owned(),
                ("d", _) => "generated by default as identity".to_owned(),
                (_, "s") => format!("generated always as ({}) stored", cell(6)),
                _ => cell(6).to_owned(),
            };
            let nullable = if cell(3) == "t" { "not null" } else { "" };
            [cell(0), cell(1), cell(2), nullable, &default].map(|text| Some(text.to_owned())).to_vec()
        })
        .collect();
    let columns = text_columns(&["Column", "Type", "Collation", "Nullable", "Default"]);
    let mut footers = Vec::new();
    indexes(shell, oid, &mut footers)?;
    for (head, kind, column, prefix) in [
        ("Check constraints:", "contype = 'c' AND conrelid", "NULL", ""),
        ("Foreign-key constraints:", "contype = 'f' AND conrelid", "NULL", ""),
        ("Referenced by:", "contype = 'f' AND confrelid", "conrelid::pg_catalog.regclass", "TABLE "),
    ] {
        let found = shell.ask(&format!(
            "SELECT conname, pg_catalog.pg_get_constraintdef(oid, true), {column} \
             FROM pg_catalog.pg_constraint WHERE {kind} = {oid} ORDER BY conname"
        ))?;
        if !found.rows.is_empty() {
            footers.push(head.to_owned());
        }
        for row in &found.rows {
            let cell = |index: usize| row.get(index).and_then(Option::as_deref).unwrap_or_default();
            let table = if prefix.is_empty() {
                String::new()
            } else {
                // The name comes as one would write it; psql quotes it once more.
                format!("{prefix}\"{}\" CONSTRAINT ", cell(2))
            };
            footers.push(format!("    {table}\"{}\" {}", cell(0), cell(1)));
        }
    }
    Ok(show(shell, &Collected { columns, rows }, Some(title.to_owned()), Some(footers)))
}

/// The lines about a table's indexes.
fn indexes(shell: &mut Shell, oid: &str, footers: &mut Vec<String>) -> Result<(), NotFound> {
    let found = shell.ask(&format!(
        "SELECT c2.relname, i.indisprimary, i.indisunique, i.indisvalid, \
         pg_catalog.pg_get_indexdef(i.indexrelid, 0, true), con.contype \
         FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c2 ON i.indexrelid = c2.oid \
         LEFT JOIN pg_catalog.pg_constraint con \
         ON con.conrelid = i.indrelid AND con.conindid = i.indexrelid AND con.contype IN ('p', 'u', 'x') \
         WHERE i.indrelid = {oid} ORDER BY i.indisprimary DESC, c2.relname"
    ))?;
    if !found.rows.is_empty() {
        footers.push("Indexes:".to_owned());
    }
    for row in &found.rows {
        let cell = |index: usize| row.get(index).and_then(Option::as_deref).unwrap_or_default();
        let kind = match (cell(1), cell(2), cell(5)) {
            ("t", _, _) => "PRIMARY KEY, ",
            (_, _, "u") => "UNIQUE CONSTRAINT, ",
            (_, "t", _) => "UNIQUE, ",
            _ => "",
        };
        let definition = cell(4);
        let method = definition.split_once(" USING ").map_or(definition, |(_, method)| method);
        let invalid = if cell(3) == "f" { " INVALID" } else { "" };
        footers.push(format!("    \"{}\" {kind}{method}{invalid}", cell(0)));
    }
    Ok(())
}

fn index(shell: &mut Shell, oid: &str, name: &str) -> Described {
    let found = shell.ask(&format!(
        "SELECT a.attname AS \"Column\", pg_catalog.format_type(a.atttypid, a.atttypmod) AS \"Type\", \
         CASE WHEN a.attnum <= (SELECT i.indnkeyatts FROM pg_catalog.pg_index i WHERE i.indexrelid = {oid}) \
         THEN 'yes' ELSE 'no' END AS \"Key?\", \
         pg_catalog.pg_get_indexdef(a.attrelid, a.attnum, true) AS \"Definition\" \
         FROM pg_catalog.pg_attribute a \
         WHERE a.attrelid = {oid} AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
    ))?;
    let about = shell.ask(&format!(
        "SELECT i.indisprimary, i.indisunique, n.nspname, c.relname, am.amname \
         FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indrelid \
         JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
         JOIN pg_catalog.pg_class c2 ON c2.oid = i.indexrelid \
         LEFT JOIN pg_catalog.pg_am am ON am.oid = c2.relam WHERE i.indexrelid = {oid}"
    ))?;
    let footers = about
        .rows
        .iter()
        .map(|row| {
            let cell = |index: usize| row.get(index).and_then(Option::as_deref).unwrap_or_default();
            let kind = match (cell(0), cell(1)) {
                ("t", _) => "primary key, ",
                (_, "t") => "unique, ",
                _ => "",
            };
            format!("{kind}{}, for table \"{}.{}\"", cell(4), cell(2), cell(3))
        })
        .collect();
    Ok(show(shell, &found, Some(format!("Index \"{name}\"")), Some(footers)))
}

fn sequence(shell: &mut Shell, oid: &str, name: &str) -> Described {
    let found = shell.ask(&format!(
        "SELECT pg_catalog.format_type(seqtypid, NULL) AS \"Type\", seqstart AS \"Start\", seqmin AS \"Minimum\", \
         seqmax AS \"Maximum\", seqincrement AS \"Increment\", \
         CASE WHEN seqcycle THEN 'yes' ELSE 'no' END AS \"Cycles?\", seqcache AS \"Cache\" \
         FROM pg_catalog.pg_sequence WHERE seqrelid = {oid}"
    ))?;
    let owner = shell.ask(&format!(
        "SELECT n.nspname, c.relname, a.attname FROM pg_catalog.pg_depend d \
         JOIN pg_catalog.pg_class c ON c.oid = d.refobjid \
         JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
         JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = d.refobjsubid \
         WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.objid = {oid} AND d.deptype = 'a'"
    ))?;
    let footers = owner
        .rows
        .iter()
        .map(|row| {
            let words: Vec<&str> = row.iter().map(|cell| cell.as_deref().unwrap_or_default()).collect();
            format!("Owned by: {}", words.join("."))
        })
        .collect();
    Ok(show(shell, &found, Some(format!("Sequence \"{name}\"")), Some(footers)))
}

// ---- output ------------------------------------------------------------------------------------------------------------

fn text_columns(names: &[&str]) -> Vec<Column> {
    names.iter().map(|name| Column { name: (*name).to_owned(), type_oid: 25 }).collect()
}

fn show(shell: &mut Shell, table: &Collected, title: Option<String>, footers: Option<Vec<String>>) -> Step {
    let mut text = Vec::new();
    let mut writer = Writer::new(shell.style(), &table.columns).with_title(title, footers);
    let mut written = Ok(());
    for row in &table.rows {
        let row: Vec<Option<&str>> = row.iter().map(Option::as_deref).collect();
        written = written.and_then(|()| writer.row(&row, &mut text));
    }
    // Writing into memory does not fail.
    let _ = written.and_then(|()| writer.finish(&mut text));
    shell.say(&String::from_utf8_lossy(&text), Step::Fine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_become_regular_expressions() {
        for (pattern, schema, name) in [
            ("T", None, "^(t)$"),
            ("t*?", None, "^(t.*.)$"),
            ("S.t", Some("^(s)$"), "^(t)$"),
            ("\"A.b\"", None, "^(A\\.b)$"),
            ("\"S\".\"t*\"", Some("^(S)$"), "^(t\\*)$"),
            ("a$b", None, "^(a\\$b)$"),
        ] {
            assert_eq!(regexes(pattern), (schema.map(str::to_owned), name.to_owned()), "{pattern}");
        }
    }

    #[test]
    fn literals_hold_anything() {
        assert_eq!(literal("it's"), "'it''s'");
        assert_eq!(literal("a\\.b'"), "E'a\\\\.b'''");
    }
}
