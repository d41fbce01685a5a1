//! Statements of a script, judged: which are run, which do not matter here, and which are to be said otherwise.

/// What is done with a statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Judged {
    /// It is run as it is.
    Run,
    /// Instead of it this is run; what is to be said about that.
    Instead(String, &'static str),
    /// Data follows.
    Copy,
    /// It cannot be loaded; what it is.
    Refused(&'static str),
    /// It does not matter here; its kind.
    PassedOver(&'static str),
    /// It does not matter anywhere here, and is not worth a word.
    Nothing,
}

/// Words that are looked at, but for COPY, whose columns may be many.
const MOST_WORDS: usize = 64;

/// The first words of a statement, in upper case but for quoted names; parentheses, commas and semicolons stand alone.
pub(super) fn words(text: &str) -> Vec<String> {
    let upper = |(_, word): (usize, &str)| {
        if word.contains(['"', '\'']) { word.to_owned() } else { word.to_uppercase() }
    };
    let mut words = Words { text, at: 0 }.map(upper);
    let mut taken: Vec<String> = words.by_ref().take(MOST_WORDS).collect();
    if taken.first().is_some_and(|first| first == "COPY") {
        taken.extend(words);
    }
    taken
}

/// The words of a statement as they are written, and where; comments are passed over.
struct Words<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Iterator for Words<'t> {
    type Item = (usize, &'t str);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let rest = self.text[self.at..].trim_start();
            self.at = self.text.len() - rest.len();
            let first = rest.chars().next()?;
            if rest.starts_with("--") {
                self.at += rest.find('\n').unwrap_or(rest.len());
                continue;
            }
            if rest.starts_with("/*") {
                self.at += rest.find("*/").map_or(rest.len(), |end| end + 2);
                continue;
            }
            let len = if "(),;".contains(first) { 1 } else { word_end(rest) };
            let start = self.at;
            self.at += len;
            return Some((start, &rest[..len]));
        }
    }
}

/// Where the first word ends: a name with a dot and quotes is one.
fn word_end(text: &str) -> usize {
    let mut quote = None;
    for (at, character) in text.char_indices() {
        match quote {
            Some(open) if character == open => quote = None,
            Some(_) => {}
            None if matches!(character, '"' | '\'') => quote = Some(character),
            None if at > 0 && (character.is_whitespace() || "(),;".contains(character)) => return at,
            None => {}
        }
    }
    text.len()
}

/// Judges a statement by its words.
pub(super) fn judge(text: &str) -> Judged {
    let words = words(text);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let has = |pair: [&str; 2]| words.windows(2).any(|found| found == pair);
    match words.as_slice() {
        ["COPY", ..] if words.windows(2).any(|pair| pair == ["FROM", "STDIN"]) => Judged::Copy,
        ["SELECT", set_config, "(", "'search_path'", ..] if set_config.ends_with("SET_CONFIG") => {
            Judged::Nothing
        }
        ["ALTER", "DEFAULT", "PRIVILEGES", ..] => Judged::PassedOver("ALTER DEFAULT PRIVILEGES"),
        ["ALTER", "TABLE", ..] if has(["GENERATED", "ALWAYS"]) => by_default(text),
        ["ALTER", ..] if has(["OWNER", "TO"]) && !is_renamed(&words) => Judged::PassedOver("OWNER TO"),
        ["ALTER", "TABLE", ..] if has(["CLUSTER", "ON"]) => Judged::PassedOver("CLUSTER ON"),
        ["ALTER", "TABLE", ..] if has(["REPLICA", "IDENTITY"]) => Judged::PassedOver("REPLICA IDENTITY"),
        ["ALTER", "TABLE", ..] if has(["SET", "STATISTICS"]) => Judged::PassedOver("SET STATISTICS"),
        ["ALTER", "TABLE", ..] if has(["SET", "STORAGE"]) => Judged::PassedOver("SET STORAGE"),
        ["COMMENT", "ON", ..] => Judged::PassedOver("COMMENT"),
        ["GRANT", ..] => Judged::PassedOver("GRANT"),
        ["REVOKE", ..] => Judged::PassedOver("REVOKE"),
        ["SECURITY", "LABEL", ..] => Judged::PassedOver("SECURITY LABEL"),
        ["CREATE" | "DROP", "EXTENSION", ..] if words.contains(&"PLPGSQL") => {
            Judged::PassedOver("EXTENSION plpgsql")
        }
        ["CREATE", "SCHEMA", "PUBLIC", ..] | ["CREATE", "SCHEMA", "IF", "NOT", "EXISTS", "PUBLIC", ..] => {
            Judged::PassedOver("CREATE SCHEMA public")
        }
        ["COMMIT", "PREPARED", ..] => Judged::Refused("COMMIT PREPARED"),
        ["PREPARE", "TRANSACTION", ..] => Judged::Refused("PREPARE TRANSACTION"),
        ["ROLLBACK", ..] => Judged::Refused("ROLLBACK"),
        ["ABORT", ..] => Judged::Refused("ABORT"),
        ["SAVEPOINT", ..] => Judged::Refused("SAVEPOINT"),
        ["RELEASE", ..] => Judged::Refused("RELEASE SAVEPOINT"),
        // Jobs of their own, a load among them.
        ["BACKUP" | "CHECK" | "COMPACT" | "DUMP" | "LOAD" | "STAT" | "SWEEP", "DATABASE", ..] => {
            Judged::Refused("a statement that is a job")
        }
        // Whatever follows: what a statement does is durable before the next one.
        ["BEGIN" | "COMMIT" | "END", ..] | ["START", "TRANSACTION", ..] => Judged::PassedOver("transaction"),
        _ => Judged::Run,
    }
}

/// Whether it is `ALTER ... RENAME ...`, in which any word may be a name.
fn is_renamed(words: &[&str]) -> bool {
    // Before it stand at least ALTER, what is altered, and its name.
    words.iter().skip(3).any(|word| *word == "RENAME")
}

/// The statement with `GENERATED BY DEFAULT` for its `GENERATED ALWAYS`.
fn by_default(text: &str) -> Judged {
    let words: Vec<_> = Words { text, at: 0 }.collect();
    let is = |(_, word): (usize, &str), expected| word.eq_ignore_ascii_case(expected);
    let always = words.windows(2).find(|pair| is(pair[0], "GENERATED") && is(pair[1], "ALWAYS"));
    let Some(&(at, always)) = always.map(|pair| &pair[1]) else { return Judged::Run };
    let text = format!("{}BY DEFAULT{}", &text[..at], &text[at + always.len()..]);
    Judged::Instead(text, "GENERATED ALWAYS taken as BY DEFAULT")
}

/// Of `CREATE TABLE t (...)` the table, as it is written.
pub(super) fn created_table(words: &[String]) -> Option<&str> {
    match words {
        [create, table, name, ..] if create == "CREATE" && table == "TABLE" => Some(name),
        _ => None,
    }
}

/// Of `ALTER TABLE [ONLY] t ADD CONSTRAINT c PRIMARY KEY (...)` the table, as it is written.
pub(super) fn primary_key_of(words: &[String]) -> Option<&str> {
    let rest = match words {
        [alter, table, only, rest @ ..] if alter == "ALTER" && table == "TABLE" && only == "ONLY" => rest,
        [alter, table, rest @ ..] if alter == "ALTER" && table == "TABLE" => rest,
        _ => return None,
    };
    match rest {
        [name, add, constraint, _, primary, key, ..]
            if [add, constraint, primary, key] == ["ADD", "CONSTRAINT", "PRIMARY", "KEY"] =>
        {
            Some(name)
        }
        _ => None,
    }
}

/// Whether the statement may change rows that are there.
pub(super) fn changes_rows(words: &[String]) -> bool {
    let changing = ["INSERT", "UPDATE", "DELETE", "TRUNCATE", "MERGE", "WITH", "DROP"];
    words.first().is_some_and(|first| changing.contains(&first.as_str()))
        || (words.first().is_some_and(|first| first == "ALTER") && words.iter().any(|word| word == "DROP"))
}

/// Of `CREATE INDEX i ON [ONLY] t ...` the table, as it is written. One that is unique is not meant: whether it can be made is a
/// matter of the rows.
pub(super) fn index_of(words: &[String]) -> Option<&str> {
    let rest = match words {
        [create, index, _, on, rest @ ..] if [create, index, on] == ["CREATE", "INDEX", "ON"] => rest,
        _ => return None,
    };
    rest.iter().find(|word| *word != "ONLY").map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_told_apart() {
        for (text, judged) in [
            ("COPY public.t (a, b) FROM stdin;", Judged::Copy),
            ("SELECT pg_catalog.set_config('search_path', '', false);", Judged::Nothing),
            ("ALTER TABLE public.t OWNER TO someone;", Judged::PassedOver("OWNER TO")),
            ("COMMENT ON TABLE t IS 'a; OWNER TO b';", Judged::PassedOver("COMMENT")),
            (
                "CREATE EXTENSION IF NOT EXISTS plpgsql WITH SCHEMA pg_catalog;",
                Judged::PassedOver("EXTENSION plpgsql"),
            ),
            ("CREATE EXTENSION hstore;", Judged::Run),
            ("ALTER TABLE ONLY public.t ADD CONSTRAINT p PRIMARY KEY (a);", Judged::Run),
            ("CREATE TABLE grant (a int);", Judged::Run),
        ] {
            assert_eq!(judge(text), judged, "{text}");
        }
    }

    #[test]
    fn every_form_of_a_transaction_is_judged() {
        for text in [
            "BEGIN;",
            "begin work;",
            "BEGIN TRANSACTION READ WRITE;",
            "BEGIN ISOLATION LEVEL SERIALIZABLE;",
            "/* all of it */ START TRANSACTION;",
            "COMMIT;",
            "commit work and chain;",
            "END;",
            "END TRANSACTION;",
        ] {
            assert_eq!(judge(text), Judged::PassedOver("transaction"), "{text}");
        }
        for text in ["rollback;", "ROLLBACK TO SAVEPOINT a;", "ABORT;", "SAVEPOINT a;", "RELEASE a;"] {
            assert!(matches!(judge(text), Judged::Refused(_)), "{text}");
        }
        assert_eq!(judge("COMMIT PREPARED 'a';"), Judged::Refused("COMMIT PREPARED"));
    }

    #[test]
    fn a_column_called_owner_is_renamed() {
        assert_eq!(judge("ALTER TABLE t RENAME COLUMN owner TO x;"), Judged::Run);
        assert_eq!(judge("ALTER TABLE rename OWNER TO x;"), Judged::PassedOver("OWNER TO"));
    }

    #[test]
    fn copy_of_many_columns_is_copy() {
        let columns: Vec<_> = (0..100).map(|number| format!("c{number}")).collect();
        assert_eq!(judge(&format!("COPY t ({}) FROM stdin;", columns.join(", "))), Judged::Copy);
    }

    #[test]
    fn always_is_by_default_here() {
        // Upper case of the first letter has another length.
        let text = "ALTER TABLE public.\u{131}\u{131} ALTER COLUMN id add generated always AS IDENTITY (\n    START WITH 5\n);";
        let expected = text.replace("always", "BY DEFAULT");
        assert_eq!(judge(text), Judged::Instead(expected, "GENERATED ALWAYS taken as BY DEFAULT"));
    }

    #[test]
    fn a_primary_key_is_found_for_its_table() {
        let words = words("ALTER TABLE ONLY public.\"a b\"\n    ADD CONSTRAINT p PRIMARY KEY (a, b);");
        assert_eq!(primary_key_of(&words), Some("public.\"a b\""));
        assert_eq!(
            created_table(&super::words("CREATE TABLE public.\"a b\" (\n a int);")),
            Some("public.\"a b\"")
        );
    }

    #[test]
    fn an_index_is_found_for_its_table() {
        let of = |text: &str| index_of(&words(text)).map(str::to_owned);
        assert_eq!(
            of("CREATE INDEX i ON public.\"a b\" USING btree (a);").as_deref(),
            Some("public.\"a b\"")
        );
        assert_eq!(of("create index i on only public.t (a)").as_deref(), Some("PUBLIC.T"));
        assert_eq!(of("CREATE UNIQUE INDEX i ON public.t (a);"), None);
    }
}
