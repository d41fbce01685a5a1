//! Statements of a script, judged: which are run, which do not matter here, and which are to be said otherwise.

use crate::splitter::dollar_tag;
use std::borrow::Cow;
use std::ops::Range;

/// What is done with a statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Judged {
    /// It is run as it is.
    Run,
    /// Instead of it this, or the same, is run; what is to be said about that, several things with [`AND`] between them.
    Instead(String, String),
    /// Data follows.
    Copy,
    /// It cannot be loaded; what it is.
    Refused(&'static str),
    /// It does not matter here; its kind.
    PassedOver(&'static str),
    /// It does not matter anywhere here, and is not worth a word.
    Nothing,
}

/// What stands between things that are to be said about one statement.
pub(super) const AND: &str = "; ";

/// Words that tell what a statement is. All of them are looked at where it matters, but only so many are kept: there may be millions.
const FIRST_WORDS: usize = 16;
/// Words that tell what an action of ALTER TABLE is.
const ACTION_WORDS: usize = 8;
/// Bytes of a word beyond which it is no name, and stays as it is.
const LONG_WORD: usize = 1 << 10;

/// The words of a statement, in upper case but for quoted names; parentheses, commas and semicolons stand alone.
pub(super) fn words(text: &str) -> impl Iterator<Item = Cow<'_, str>> {
    Words { text, at: 0 }.map(|(_, word)| upper(word))
}

fn upper(word: &str) -> Cow<'_, str> {
    let stays = word.len() > LONG_WORD
        || word.contains(['"', '\''])
        || word.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_lowercase());
    if stays { word.into() } else { word.to_uppercase().into() }
}

/// The words of a statement as they are written, and where; comments are passed over.
#[derive(Clone)]
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
    let (mut escapes, mut is_escaped) = (false, false);
    let mut literal_to = 0;
    for (at, character) in text.char_indices() {
        if at < literal_to {
            continue;
        }
        match quote {
            Some(_) if is_escaped => is_escaped = false,
            Some(_) if escapes && character == '\\' => is_escaped = true,
            Some(open) if character == open => quote = None,
            Some(_) => {}
            None if matches!(character, '"' | '\'') => {
                quote = Some(character);
                escapes = character == '\'' && ends_with_escape_mark(&text[..at]);
            }
            None if character == '$' && !text[..at].ends_with(in_name) => {
                if let Some(tag) = dollar_tag(&text[at..]) {
                    let within = at + tag.len();
                    literal_to = text[within..].find(tag).map_or(text.len(), |end| within + end + tag.len());
                }
            }
            None if at > 0 && (character.is_whitespace() || "(),;".contains(character)) => return at,
            None => {}
        }
    }
    text.len()
}

/// Whether a string that begins behind this has backslash escapes: `E'...'`.
fn ends_with_escape_mark(text: &str) -> bool {
    text.strip_suffix(['e', 'E']).is_some_and(|before| !before.ends_with(in_name))
}

fn in_name(character: char) -> bool {
    character == '_' || character == '$' || character.is_alphanumeric()
}

/// Judges a statement by its words.
pub(super) fn judge(text: &str) -> Judged {
    let first: Vec<_> = words(text).take(FIRST_WORDS).collect();
    let first: Vec<&str> = first.iter().map(|word| &**word).collect();
    match first.as_slice() {
        ["COPY", ..] if takes_data(text) => Judged::Copy,
        ["SELECT", set_config, "(", "'search_path'", ..] if set_config.ends_with("SET_CONFIG") => {
            Judged::Nothing
        }
        ["ALTER", "DEFAULT", "PRIVILEGES", ..] => Judged::PassedOver("ALTER DEFAULT PRIVILEGES"),
        ["ALTER", "TABLE", ..] => without_idle_actions(text),
        ["ALTER", ..] if is_owner_alone(text) => Judged::PassedOver("OWNER TO"),
        // A load goes to one database, which is there.
        ["CREATE", "DATABASE", ..] => Judged::PassedOver("CREATE DATABASE"),
        ["ALTER", "DATABASE", ..] => Judged::PassedOver("ALTER DATABASE"),
        ["DROP", "DATABASE", ..] => Judged::PassedOver("DROP DATABASE"),
        ["ALTER", "ROLE", _, "IN", "DATABASE", ..] => Judged::PassedOver("ALTER ROLE IN DATABASE"),
        ["SET" | "RESET", "SESSION", "AUTHORIZATION", ..] => Judged::PassedOver("SESSION AUTHORIZATION"),
        ["INSERT", ..] => without_overriding(text),
        ["COMMENT", "ON", ..] => Judged::PassedOver("COMMENT"),
        ["GRANT", ..] => Judged::PassedOver("GRANT"),
        ["REVOKE", ..] => Judged::PassedOver("REVOKE"),
        ["SECURITY", "LABEL", ..] => Judged::PassedOver("SECURITY LABEL"),
        ["CREATE" | "DROP", "EXTENSION", ..] if first.contains(&"PLPGSQL") => {
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
        ["BACKUP" | "CHECK" | "COMPACT" | "DUMP" | "LOAD" | "RESTORE" | "STAT" | "SWEEP", "DATABASE", ..]
        | ["VERIFY", "BACKUP" | "ARCHIVE", ..] => Judged::Refused("a statement that is a job"),
        // Whatever follows: what a statement does is durable before the next one.
        ["BEGIN" | "COMMIT" | "END", ..] | ["START", "TRANSACTION", ..] => Judged::PassedOver("transaction"),
        ["CREATE", "TABLE", ..]
        | ["CREATE" | "ALTER", "SEQUENCE", ..]
        | ["CREATE", "UNLOGGED", "TABLE" | "SEQUENCE", ..]
        | ["CREATE", "INDEX", ..]
        | ["CREATE", "UNIQUE", "INDEX", ..] => nearest(text),
        _ => Judged::Run,
    }
}

/// Whether it has `FROM STDIN`.
fn takes_data(text: &str) -> bool {
    let mut is_behind_from = false;
    words(text).any(|word| std::mem::replace(&mut is_behind_from, word == "FROM") && word == "STDIN")
}

/// Whether it ends with `OWNER TO name`, and is no `ALTER ... RENAME ...`, in which any word may be a name.
fn is_owner_alone(text: &str) -> bool {
    let is = |word: &str, expected: &str| word.eq_ignore_ascii_case(expected);
    let mut last = [""; 4];
    for (place, (_, word)) in (Words { text, at: 0 }).enumerate() {
        // Before it stand at least ALTER, what is altered, and its name.
        if place >= 3 && is(word, "RENAME") {
            return false;
        }
        last = [last[1], last[2], last[3], word];
    }
    let [first, second, third, end] = last;
    is(second, "OWNER") && is(third, "TO") || is(first, "OWNER") && is(second, "TO") && end == ";"
}

/// What does not matter here among the actions of an ALTER TABLE; its kind.
fn idle_action(words: &[&str]) -> Option<&'static str> {
    Some(match words {
        ["OWNER", "TO", _] => "OWNER TO",
        ["CLUSTER", "ON", _] => "CLUSTER ON",
        ["REPLICA", "IDENTITY", ..] => "REPLICA IDENTITY",
        ["ALTER", "COLUMN", _, set @ ..] | ["ALTER", _, set @ ..] => match set {
            ["SET", "STATISTICS", ..] => "SET STATISTICS",
            ["SET", "STORAGE", _] => "SET STORAGE",
            ["SET", "COMPRESSION", _] => "SET COMPRESSION",
            ["SET" | "RESET", "(", ..] => "options of columns",
            _ => return None,
        },
        _ => return None,
    })
}

/// An action of an ALTER TABLE.
struct Action<'t> {
    /// Its first words.
    first: Vec<Cow<'t, str>>,
    /// Where it stands, if it has words.
    place: Option<Range<usize>>,
    is_last: bool,
}

impl<'t> Action<'t> {
    /// The next one: what stands before a comma outside of parentheses.
    fn next(words: &mut impl Iterator<Item = (usize, &'t str)>) -> Self {
        let mut action = Action { first: Vec::new(), place: None, is_last: true };
        let mut depth = 0_usize;
        for (at, word) in words {
            match word {
                "(" => depth += 1,
                ")" => depth = depth.saturating_sub(1),
                "," if depth == 0 => {
                    action.is_last = false;
                    break;
                }
                _ => {}
            }
            if action.first.len() < ACTION_WORDS {
                action.first.push(upper(word));
            }
            let start = action.place.map_or(at, |place| place.start);
            action.place = Some(start..at + word.len());
        }
        action
    }

    /// What does not matter here; its kind.
    fn idle(&self) -> Option<&'static str> {
        let first: Vec<&str> = self.first.iter().map(|word| &**word).collect();
        idle_action(&first)
    }
}

/// An ALTER TABLE without those of its actions that do not matter here; passed over where nothing else is left of it.
fn without_idle_actions(text: &str) -> Judged {
    let mut words = Words { text, at: 0 }.filter(|(_, word)| *word != ";");
    let front: Vec<_> = words.clone().take(FIRST_WORDS).collect();
    let is = |place: usize, expected: &[&str]| {
        expected.iter().enumerate().all(|(behind, expected)| {
            front.get(place + behind).is_some_and(|(_, word)| word.eq_ignore_ascii_case(expected))
        })
    };
    // Before the actions: ALTER TABLE [IF EXISTS] [ONLY] name.
    let mut name = 2;
    name += if is(name, &["IF", "EXISTS"]) { 2 } else { 0 };
    name += if is(name, &["ONLY"]) { 1 } else { 0 };
    let Some((at, name)) = words.nth(name) else { return nearest(text) };
    let (mut rest, mut left_out) = (String::new(), Vec::new());
    loop {
        let action = Action::next(&mut words);
        match (action.idle(), action.place) {
            (Some(kind), _) if left_out.contains(&kind) => {}
            (Some(kind), _) => left_out.push(kind),
            (None, Some(place)) => {
                rest.push_str(if rest.is_empty() { "" } else { ", " });
                rest.push_str(&text[place]);
            }
            // The parser says what is wrong with it.
            (None, None) => return nearest(text),
        }
        if action.is_last {
            break;
        }
    }
    let Some(first) = left_out.first() else { return nearest(text) };
    if rest.is_empty() {
        return Judged::PassedOver(first);
    }
    let text = format!("{} {rest};", &text[..at + name.len()]);
    drop(rest);
    let (text, told) = match nearest(&text) {
        Judged::Instead(text, told) => (text, Some(told)),
        _ => (text, None),
    };
    let told: Vec<_> = left_out.into_iter().map(str::to_owned).chain(told).collect();
    Judged::Instead(text, told.join(AND))
}

/// An INSERT without its `OVERRIDING SYSTEM VALUE`: all identity columns take what they are given. (`USER VALUE` would have other rows.)
fn without_overriding(text: &str) -> Judged {
    let mut depth = 0_usize;
    let mut last: [(usize, &str); 2] = [(0, ""); 2];
    for (at, word) in (Words { text, at: 0 }) {
        let is = |place: usize, expected: &str| last[place].1.eq_ignore_ascii_case(expected);
        match word {
            "(" => depth += 1,
            ")" => depth = depth.saturating_sub(1),
            _ if depth > 0 => {}
            _ if word.eq_ignore_ascii_case("VALUE") && is(0, "OVERRIDING") && is(1, "SYSTEM") => {
                let text = format!("{}{}", &text[..last[0].0], text[at + word.len()..].trim_start());
                return Judged::Instead(text, "OVERRIDING SYSTEM VALUE".to_owned());
            }
            // Rows begin.
            _ if ["VALUES", "SELECT", "DEFAULT", "WITH", "TABLE"]
                .iter()
                .any(|first| word.eq_ignore_ascii_case(first)) =>
            {
                break;
            }
            _ => {}
        }
        last = [last[1], (at, word)];
    }
    Judged::Run
}

/// A definition as it can be made here, and what of it has another meaning or none.
fn nearest(text: &str) -> Judged {
    let is =
        |word: Option<&str>, expected: &str| word.is_some_and(|word| word.eq_ignore_ascii_case(expected));
    let mut words = Words { text, at: 0 };
    let (mut changed, mut taken, mut told) = (String::new(), 0, Vec::new());
    let (mut before, mut place, mut is_altered, mut may_close) = (None, 0_usize, false, true);
    while let Some((at, word)) = words.next() {
        is_altered |= place == 0 && is(Some(word), "ALTER");
        let (this, last) = (Some(word), before.replace(word));
        place += 1;
        let mut behind = words.clone().map(|(_, word)| word);
        let mut instead = |text_instead: &str, end: usize| {
            changed.push_str(&text[taken..at]);
            changed.push_str(text_instead);
            taken = end;
        };
        let what = if place == 2 && is(this, "UNLOGGED") {
            instead("", at + word.len());
            "UNLOGGED"
        } else if is(last, "GENERATED") && is(this, "ALWAYS") {
            if is(behind.next(), "AS") && is(behind.next(), "(") {
                // A column that is computed.
                continue;
            }
            instead("BY DEFAULT", at + word.len());
            "GENERATED ALWAYS taken as BY DEFAULT"
        } else if is(last, "CACHE") && word.parse().is_ok_and(|values: u64| values > 1) {
            "CACHE of a sequence"
        } else if (is(this, "WITH") || is(this, "SET") || is(this, "RESET")) && is(behind.next(), "(") {
            // Those of a key are not read.
            if may_close && is_altered && is(this, "WITH") {
                let end = words.clone().find(|(_, word)| *word == ")");
                may_close = end.is_some();
                if let Some((end, _)) = end {
                    instead("", end + 1);
                    words.at = end + 1;
                }
            }
            "storage parameters"
        } else {
            continue;
        };
        if !told.contains(&what) {
            told.push(what);
        }
    }
    if told.is_empty() {
        return Judged::Run;
    }
    changed.push_str(&text[taken..]);
    Judged::Instead(changed, told.join(AND))
}

/// Words with which statements begin.
const VERBS: [&str; 23] = [
    "ALTER", "ANALYZE", "BEGIN", "COMMENT", "COMMIT", "COPY", "CREATE", "DELETE", "DROP", "EXECUTE",
    "EXPLAIN", "GRANT", "INSERT", "MERGE", "REFRESH", "RESET", "REVOKE", "SELECT", "SET", "TRUNCATE",
    "UPDATE", "VACUUM", "WITH",
];
/// Words that may stand before the kind of an object.
const BEFORE_KINDS: [&str; 10] = [
    "OR",
    "REPLACE",
    "GLOBAL",
    "LOCAL",
    "TEMP",
    "TEMPORARY",
    "UNLOGGED",
    "UNIQUE",
    "MATERIALIZED",
    "FOREIGN",
];
/// Kinds of objects whose names are told.
const KINDS: [&str; 11] = [
    "DOMAIN",
    "EXTENSION",
    "FUNCTION",
    "INDEX",
    "PROCEDURE",
    "SCHEMA",
    "SEQUENCE",
    "TABLE",
    "TRIGGER",
    "TYPE",
    "VIEW",
];
/// Kinds of which nothing else is told: passwords may follow.
const ROLES: [&str; 3] = ["GROUP", "ROLE", "USER"];
/// Words that may stand between a kind and a name.
const BEFORE_NAMES: [&str; 5] = ["CONCURRENTLY", "IF", "NOT", "EXISTS", "ONLY"];

/// What is shown of a statement to whoever sees the job: its kind, and the name of its object. No other text of it, which may be a password,
/// or somebody's data.
pub(super) fn shown(text: &str) -> String {
    let mut words = Words { text, at: 0 }.map(|(_, word)| word).peekable();
    let is_one_of = |word: &str, of: &[&str]| of.iter().any(|other| word.eq_ignore_ascii_case(other));
    let verb = words.next().unwrap_or_default().to_uppercase();
    if !VERBS.contains(&verb.as_str()) {
        return "a statement".to_owned();
    }
    let (mut shown, mut is_named) = (verb, false);
    match shown.as_str() {
        "CREATE" | "ALTER" | "DROP" => {
            while words.next_if(|word| is_one_of(word, &BEFORE_KINDS)).is_some() {}
            if let Some(kind) = words.next_if(|word| is_one_of(word, &KINDS) || is_one_of(word, &ROLES)) {
                shown = format!("{shown} {}", kind.to_uppercase());
                is_named = is_one_of(kind, &KINDS);
            }
        }
        "INSERT" => is_named = words.next_if(|word| is_one_of(word, &["INTO"])).is_some(),
        "DELETE" => is_named = words.next_if(|word| is_one_of(word, &["FROM"])).is_some(),
        "UPDATE" => is_named = true,
        "TRUNCATE" => {
            let _ = words.next_if(|word| is_one_of(word, &["TABLE"]));
            is_named = true;
        }
        _ => {}
    }
    if is_named {
        while words.next_if(|word| is_one_of(word, &BEFORE_NAMES)).is_some() {}
        // An index may have none.
        let name =
            words.next().filter(|word| !is_one_of(word, &["ON"])).map(leading_name).unwrap_or_default();
        if !name.is_empty() {
            shown = format!("{shown} {name}");
        }
    }
    shown
}

/// The name with which a word begins, with its schema: what stands in quotes, and what needs none.
fn leading_name(word: &str) -> &str {
    let mut is_quoted = false;
    let mut before = '.';
    for (at, character) in word.char_indices() {
        match character {
            '"' => is_quoted = !is_quoted,
            _ if is_quoted || character == '.' => {}
            _ if in_name(character) && (before != '.' || !(character.is_numeric() || character == '$')) => {}
            _ => return &word[..at],
        }
        before = character;
    }
    word
}

/// Of `CREATE TABLE t (...)` the table, as it is written.
pub(super) fn created_table(text: &str) -> Option<Cow<'_, str>> {
    let mut words = words(text);
    begins(&mut words, &["CREATE", "TABLE"]).then(|| words.next()).flatten()
}

/// Whether these are the next words.
fn begins<'t>(words: &mut impl Iterator<Item = Cow<'t, str>>, expected: &[&str]) -> bool {
    expected.iter().all(|expected| words.next().is_some_and(|word| word == *expected))
}

/// Of `ALTER TABLE [ONLY] t ADD CONSTRAINT c PRIMARY KEY (...)` the table, as it is written. One that does anything else as well is not meant:
/// what that is may need the rows.
pub(super) fn primary_key_of(text: &str) -> Option<Cow<'_, str>> {
    let mut words = words(text).peekable();
    let is_alter = begins(&mut words, &["ALTER", "TABLE"]);
    let _ = words.next_if(|word| word == "ONLY");
    let name = words.next().filter(|_| is_alter)?;
    let is_constraint = begins(&mut words, &["ADD", "CONSTRAINT"]) && words.next().is_some();
    let is_key = is_constraint && begins(&mut words, &["PRIMARY", "KEY"]);
    (is_key && is_all_of_a_key(&mut words)).then_some(name)
}

/// Whether these are the columns of a key, and its storage parameters, with which the statement ends.
fn is_all_of_a_key<'t>(words: &mut impl Iterator<Item = Cow<'t, str>>) -> bool {
    if !are_in_parentheses(words) {
        return false;
    }
    let with = words.next();
    match with.as_deref() {
        Some("WITH") => are_in_parentheses(words) && words.all(|word| word == ";"),
        Some(";") => words.all(|word| word == ";"),
        other => other.is_none(),
    }
}

/// Whether parentheses are next, which are taken to their end.
fn are_in_parentheses<'t>(words: &mut impl Iterator<Item = Cow<'t, str>>) -> bool {
    words.next().is_some_and(|word| word == "(") && words.any(|word| word == ")")
}

/// Whether the statement may change rows that are there, or what tables and columns are called.
pub(super) fn changes_rows(text: &str) -> bool {
    let mut words = words(text);
    let first = words.next();
    match first.as_deref() {
        Some("INSERT" | "UPDATE" | "DELETE" | "TRUNCATE" | "MERGE" | "WITH" | "DROP") => true,
        Some("ALTER") => words.any(|word| matches!(&*word, "DROP" | "RENAME")),
        _ => false,
    }
}

/// Of `CREATE INDEX i ON [ONLY] t ...` the table, as it is written. One that is unique is not meant: whether it can be made is a
/// matter of the rows.
pub(super) fn index_of(text: &str) -> Option<Cow<'_, str>> {
    let mut words = words(text);
    let is_index = begins(&mut words, &["CREATE", "INDEX"]) && words.next().is_some();
    (is_index && begins(&mut words, &["ON"])).then(|| words.find(|word| word != "ONLY")).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALWAYS: &str = "GENERATED ALWAYS taken as BY DEFAULT";

    fn instead(text: &str, told: &str) -> Judged {
        Judged::Instead(text.to_owned(), told.to_owned())
    }

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
            (
                "CREATE TABLE t (a text CHECK (a <> $$x with ( y ) z$$), b text DEFAULT $x$is generated always$x$);",
                Judged::Run,
            ),
            ("CREATE TABLE t (a text DEFAULT $$it's$$, c text DEFAULT 'x generated always y');", Judged::Run),
            ("CREATE TABLE t (a$b$ int, c text DEFAULT $$$$, d text DEFAULT 'with (e)');", Judged::Run),
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
    fn jobs_within_a_job_are_refused() {
        for text in [
            "BACKUP DATABASE TO '/b';",
            "load database from '/d.sql';",
            "RESTORE DATABASE '/b' TO '/n.gnt';",
            "VERIFY BACKUP '/b';",
            "verify archive '/a';",
        ] {
            assert_eq!(judge(text), Judged::Refused("a statement that is a job"), "{text}");
        }
    }

    #[test]
    fn a_password_of_a_script_was_shown_to_whoever_sees_the_job() {
        for (text, expected) in [
            ("CREATE ROLE app LOGIN PASSWORD 'secret';", "CREATE ROLE"),
            ("/* so */ alter user app password 'secret'", "ALTER USER"),
            ("CREATE TABLE t (a text DEFAULT 'secret');", "CREATE TABLE t"),
            ("create unlogged table if not exists public.\"T, x\"(a int);", "CREATE TABLE public.\"T, x\""),
            ("CREATE UNIQUE INDEX i ON t (a);", "CREATE INDEX i"),
            ("CREATE INDEX ON t (a);", "CREATE INDEX"),
            ("DROP TABLE IF EXISTS t;", "DROP TABLE t"),
            ("ALTER TABLE ONLY public.t ADD CHECK (a <> 'secret');", "ALTER TABLE public.t"),
            ("INSERT INTO t VALUES ('secret');", "INSERT t"),
            ("INSERT INTO t/*secret*/ VALUES (1);", "INSERT t"),
            ("UPDATE 'secret';", "UPDATE"),
            ("UPDATE $$secret$$;", "UPDATE"),
            ("SELECT 'secret';", "SELECT"),
            ("CREATE 'secret';", "CREATE"),
            ("SET x = 'secret';", "SET"),
            ("secret;", "a statement"),
            ("'secret';", "a statement"),
            ("", "a statement"),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn of_an_alter_table_only_what_does_not_matter_is_left_out() {
        for (text, expected, told) in [
            (
                "ALTER TABLE t ADD CHECK (a > 0), OWNER TO bob;",
                "ALTER TABLE t ADD CHECK (a > 0);",
                "OWNER TO",
            ),
            (
                "alter table if exists only public.\"T, x\" alter a set statistics 100,\n add column c int;",
                "alter table if exists only public.\"T, x\" add column c int;",
                "SET STATISTICS",
            ),
            (
                "ALTER TABLE t ALTER a SET (n_distinct = 5, x = 1), ADD UNIQUE (a, b), ALTER COLUMN b SET STORAGE PLAIN, ALTER b SET STORAGE PLAIN",
                "ALTER TABLE t ADD UNIQUE (a, b);",
                "options of columns; SET STORAGE",
            ),
            (
                "ALTER TABLE t OWNER TO bob, ALTER i ADD GENERATED ALWAYS AS IDENTITY;",
                "ALTER TABLE t ALTER i ADD GENERATED BY DEFAULT AS IDENTITY;",
                "OWNER TO; GENERATED ALWAYS taken as BY DEFAULT",
            ),
        ] {
            assert_eq!(judge(text), instead(expected, told), "{text}");
        }
        for text in [
            "ALTER TABLE n ADD FOREIGN KEY (c) REFERENCES cluster ON DELETE CASCADE;",
            "ALTER TABLE t ADD CHECK (f(owner, to)), ADD CONSTRAINT replica UNIQUE (identity);",
            "ALTER TABLE t ALTER a SET DEFAULT 'x, OWNER TO y';",
            "ALTER TABLE t DROP COLUMN a, ADD COLUMN storage int DEFAULT 5;",
            "ALTER TABLE t ADD COLUMN cluster int, ,",
            "ALTER FUNCTION f(owner int, to int) COST 5;",
            "ALTER TABLE",
        ] {
            assert_eq!(judge(text), Judged::Run, "{text}");
        }
        for (text, kind) in [
            (
                "ALTER TABLE ONLY t ALTER COLUMN a SET STATISTICS 5, ALTER b SET STATISTICS -1;",
                "SET STATISTICS",
            ),
            ("ALTER TABLE t CLUSTER ON t_pkey;", "CLUSTER ON"),
            ("ALTER TABLE ONLY t REPLICA IDENTITY USING INDEX i;", "REPLICA IDENTITY"),
            ("ALTER SEQUENCE public.s OWNER TO \"B, b\";", "OWNER TO"),
            ("ALTER FUNCTION public.f(integer, text) OWNER TO bob;", "OWNER TO"),
        ] {
            assert_eq!(judge(text), Judged::PassedOver(kind), "{text}");
        }
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
        assert_eq!(judge(text), instead(&expected, ALWAYS));
    }

    #[test]
    fn always_within_a_table_is_by_default_but_for_columns_that_are_computed() {
        let many: Vec<_> = (0..100).map(|number| format!("c{number} int")).collect();
        let text = format!(
            "CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, {}, other int generated always as identity (start 5))",
            many.join(", ")
        );
        let expected = text.replace("ALWAYS", "BY DEFAULT").replace("always", "BY DEFAULT");
        assert_eq!(judge(&text), instead(&expected, ALWAYS));
        for text in [
            "CREATE TABLE t (a int, b int GENERATED ALWAYS AS (a * 2) STORED);",
            "ALTER TABLE t ADD COLUMN b int GENERATED ALWAYS AS(a * 2) STORED;",
            "CREATE TABLE t (a text DEFAULT E'it\\'s GENERATED ALWAYS AS IDENTITY');",
            "CREATE TABLE t (a text DEFAULT 'GENERATED ALWAYS AS IDENTITY', \"generated always as identity\" int);",
            "ALTER TABLE t RENAME COLUMN generated TO always;",
        ] {
            assert_eq!(judge(text), Judged::Run, "{text}");
        }
    }

    #[test]
    fn overriding_is_cut_where_it_stands_before_the_rows() {
        for (text, expected) in [
            (
                "INSERT INTO public.a OVERRIDING SYSTEM VALUE VALUES (1, 'x');",
                "INSERT INTO public.a VALUES (1, 'x');",
            ),
            (
                "insert into a (id, t) overriding system value\nselect 1, 2",
                "insert into a (id, t) select 1, 2",
            ),
            (
                "INSERT INTO \"OVERRIDING SYSTEM VALUE\" (\"overriding\") /* OVERRIDING */ OVERRIDING SYSTEM VALUE VALUES (1);",
                "INSERT INTO \"OVERRIDING SYSTEM VALUE\" (\"overriding\") /* OVERRIDING */ VALUES (1);",
            ),
        ] {
            assert_eq!(judge(text), instead(expected, "OVERRIDING SYSTEM VALUE"), "{text}");
        }
        for text in [
            "INSERT INTO a VALUES (1, ' OVERRIDING SYSTEM VALUE VALUES ');",
            "INSERT INTO a (t) VALUES ('it''s', ' '' ', ' OVERRIDING SYSTEM VALUE ');",
            "INSERT INTO a SELECT overriding system FROM value OVERRIDING SYSTEM VALUE;",
            "INSERT INTO a (overriding, system, value) VALUES (1, 2, 3);",
            // Its rows are other ones.
            "INSERT INTO a OVERRIDING USER VALUE VALUES (1);",
        ] {
            assert_eq!(judge(text), Judged::Run, "{text}");
        }
    }

    #[test]
    fn what_concerns_databases_and_sessions_is_passed_over() {
        for (text, kind) in [
            ("SET SESSION AUTHORIZATION DEFAULT;", "SESSION AUTHORIZATION"),
            ("SET SESSION AUTHORIZATION 'someone';", "SESSION AUTHORIZATION"),
            ("RESET SESSION AUTHORIZATION;", "SESSION AUTHORIZATION"),
            ("CREATE DATABASE \"My shop\" WITH TEMPLATE = template0 ENCODING = 'UTF8';", "CREATE DATABASE"),
            ("DROP DATABASE IF EXISTS shop;", "DROP DATABASE"),
            ("ALTER DATABASE shop OWNER TO app;", "OWNER TO"),
            ("ALTER DATABASE shop CONNECTION LIMIT = 5;", "ALTER DATABASE"),
            ("ALTER DATABASE shop SET work_mem TO '8MB';", "ALTER DATABASE"),
            ("ALTER ROLE app IN DATABASE shop SET work_mem TO '8MB';", "ALTER ROLE IN DATABASE"),
            ("ALTER TABLE ONLY public.a ALTER COLUMN t SET COMPRESSION pglz;", "SET COMPRESSION"),
            ("ALTER TABLE ONLY public.a ALTER COLUMN t SET (n_distinct=5);", "options of columns"),
        ] {
            assert_eq!(judge(text), Judged::PassedOver(kind), "{text}");
        }
    }

    #[test]
    fn what_has_no_effect_is_told() {
        let unlogged = "CREATE UNLOGGED TABLE public.u (unlogged int);";
        assert_eq!(judge(unlogged), instead("CREATE  TABLE public.u (unlogged int);", "UNLOGGED"));
        for (text, told) in [
            ("CREATE SEQUENCE s START WITH 1 CACHE 30;", "CACHE of a sequence"),
            ("ALTER SEQUENCE s CACHE 2;", "CACHE of a sequence"),
            (
                "CREATE TABLE t (a int)\nWITH (fillfactor='70', autovacuum_enabled='false');",
                "storage parameters",
            ),
            ("ALTER TABLE t SET (fillfactor = 70);", "storage parameters"),
            ("CREATE UNIQUE INDEX i ON t USING btree (a) WITH (fillfactor='80');", "storage parameters"),
        ] {
            assert_eq!(judge(text), instead(text, told), "{text}");
        }
        let key = "ALTER TABLE ONLY t ADD CONSTRAINT p PRIMARY KEY (a) WITH (fillfactor='70');";
        let expected = "ALTER TABLE ONLY t ADD CONSTRAINT p PRIMARY KEY (a) ;";
        assert_eq!(judge(key), instead(expected, "storage parameters"));
        let both = "ALTER TABLE t ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (CACHE 20);";
        let expected = both.replace("ALWAYS", "BY DEFAULT");
        assert_eq!(
            judge(both),
            instead(&expected, "GENERATED ALWAYS taken as BY DEFAULT; CACHE of a sequence")
        );
        for text in [
            "CREATE SEQUENCE s CACHE 1;",
            "CREATE TABLE t (cache int, b timestamp(3) with time zone);",
            "CREATE INDEX i ON t (a);",
        ] {
            assert_eq!(judge(text), Judged::Run, "{text}");
        }
    }

    #[test]
    fn a_primary_key_is_found_for_its_table() {
        let text = "ALTER TABLE ONLY public.\"a b\"\n    ADD CONSTRAINT p PRIMARY KEY (a, b);";
        assert_eq!(primary_key_of(text).as_deref(), Some("public.\"a b\""));
        let of = |behind: &str| {
            let text = format!("ALTER TABLE t ADD CONSTRAINT p PRIMARY KEY {behind}");
            primary_key_of(&text).is_some()
        };
        for behind in ["(a)", "(\"x), y\", b) ;", "(a) WITH (fillfactor='70', x = 1);"] {
            assert!(of(behind), "{behind}");
        }
        for behind in [
            "(a), ADD CHECK (b > 0);",
            "(a) WITH (x), DROP b;",
            "(a) DEFERRABLE",
            "USING INDEX i;",
            "(a) USING (b)",
            "",
        ] {
            assert!(!of(behind), "{behind}");
        }
        let text = "CREATE TABLE public.\"a b\" (\n a int);";
        assert_eq!(created_table(text).as_deref(), Some("public.\"a b\""));
    }

    #[test]
    fn an_index_is_found_for_its_table() {
        let of = |text: &str| index_of(text).map(Cow::into_owned);
        assert_eq!(
            of("CREATE INDEX i ON public.\"a b\" USING btree (a);").as_deref(),
            Some("public.\"a b\"")
        );
        assert_eq!(of("create index i on only public.t (a)").as_deref(), Some("PUBLIC.T"));
        assert_eq!(of("CREATE UNIQUE INDEX i ON public.t (a);"), None);
    }

    #[test]
    fn storage_parameters_within_others_ended_the_load_by_a_panic() {
        let text = "ALTER TABLE t ADD CONSTRAINT p PRIMARY KEY (a) WITH (x WITH (y));";
        let expected = "ALTER TABLE t ADD CONSTRAINT p PRIMARY KEY (a) );";
        assert_eq!(judge(text), instead(expected, "storage parameters"));
        let open = "ALTER TABLE t ADD CONSTRAINT p PRIMARY KEY (a) WITH (WITH (y;";
        assert_eq!(judge(open), instead(open, "storage parameters"));
    }

    #[test]
    fn a_statement_of_many_words_was_kept_word_by_word() {
        let many = "c int, ".repeat(100_000);
        // What stands far behind counts all the same.
        assert_eq!(judge(&format!("COPY t ({many} d) FROM stdin;")), Judged::Copy);
        assert_eq!(
            judge(&format!("ALTER FUNCTION f({many} d int) OWNER TO bob;")),
            Judged::PassedOver("OWNER TO")
        );
        assert_eq!(judge(&format!("ALTER FUNCTION f({many} d int) RENAME TO owner;")), Judged::Run);
        assert!(changes_rows(&format!("ALTER TABLE t {many} DROP COLUMN d;")));
        let idle = "ALTER a SET STORAGE PLAIN, ALTER b SET STATISTICS 5, ".repeat(10_000);
        let text = format!("ALTER TABLE t {idle} ADD CHECK (a > 0), {idle} OWNER TO bob;");
        let told = "SET STORAGE; SET STATISTICS; OWNER TO";
        assert_eq!(judge(&text), instead("ALTER TABLE t ADD CHECK (a > 0);", told));
        // No name, but a string: it stays where it is.
        let string = format!("$${}$$", "x".repeat(LONG_WORD));
        assert!(matches!(upper(&string), Cow::Borrowed(_)));
    }
}
