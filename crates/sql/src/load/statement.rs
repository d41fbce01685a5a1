//! Statements of a script, judged: which are run, which do not matter here, and which are to be said otherwise.

/// What is done with a statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Judged {
    /// It is run as it is.
    Run,
    /// Instead of it these are run, one after the other; what is to be said about that.
    Instead(Vec<String>, Option<&'static str>),
    /// Data follows.
    Copy,
    /// It does not matter here; its kind.
    PassedOver(&'static str),
    /// It does not matter anywhere here, and is not worth a word.
    Nothing,
}

/// Words that are looked at.
const MOST_WORDS: usize = 64;

/// The first words of a statement, in upper case but for quoted names; parentheses, commas and semicolons stand alone.
pub(super) fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next().filter(|_| words.len() < MOST_WORDS) {
        let end = match first {
            '(' | ')' | ',' | ';' => 1,
            '-' if rest.starts_with("--") => {
                rest = rest.find('\n').map_or("", |at| &rest[at..]).trim_start();
                continue;
            }
            _ => word_end(rest),
        };
        let word = &rest[..end];
        words.push(if word.contains(['"', '\'']) { word.to_owned() } else { word.to_uppercase() });
        rest = rest[end..].trim_start();
    }
    words
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
        ["ALTER", "TABLE", ..] if has(["ADD", "GENERATED"]) => identity(text, &words),
        ["ALTER", ..] if has(["OWNER", "TO"]) => Judged::PassedOver("OWNER TO"),
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
        ["BEGIN" | "COMMIT" | "END", ";"]
        | ["BEGIN" | "COMMIT", "TRANSACTION", ..]
        | ["START", "TRANSACTION", ..] => Judged::PassedOver("transaction"),
        _ => Judged::Run,
    }
}

/// `ALTER TABLE t ALTER COLUMN c ADD GENERATED ... AS IDENTITY (SEQUENCE NAME s ...)` as it is understood here: options in their order, and
/// the name given afterwards.
fn identity(text: &str, words: &[&str]) -> Judged {
    let place = |word: &str| words.iter().position(|found| *found == word);
    let (Some(add), Some(column)) = (place("ADD"), place("COLUMN")) else { return Judged::Run };
    let Some(open) = words.iter().position(|word| *word == "(") else { return Judged::Run };
    let always = words.get(add + 2) == Some(&"ALWAYS");
    let options = &words[open + 1..];
    let behind = |pattern: &[&str]| {
        let at = options.windows(pattern.len()).position(|found| found == pattern)?;
        options.get(at + pattern.len()).copied()
    };
    let mut ordered = String::new();
    for (name, patterns) in [
        ("INCREMENT BY", [&["INCREMENT", "BY"][..], &["INCREMENT"]]),
        ("MINVALUE", [&["MINVALUE"], &["MINVALUE"]]),
        ("MAXVALUE", [&["MAXVALUE"], &["MAXVALUE"]]),
        ("START WITH", [&["START", "WITH"], &["START"]]),
    ] {
        let value = patterns.iter().find_map(|pattern| behind(pattern));
        // NO MINVALUE is followed by another word.
        if let Some(value) = value.filter(|value| value.parse::<i64>().is_ok()) {
            ordered += &format!(" {name} {value}");
        }
    }
    let no_cycle = options.windows(2).any(|pair| pair == ["NO", "CYCLE"]);
    if options.contains(&"CYCLE") && !no_cycle {
        ordered += " CYCLE";
    }
    // As they were written, whose words may be in lower case.
    let head_end = text.to_uppercase().find(" ADD ").filter(|at| text.is_char_boundary(*at));
    let Some(head_end) = head_end else { return Judged::Run };
    let head = &text[..head_end];
    let mut statements = vec![match ordered.trim() {
        "" => format!("{head} ADD GENERATED BY DEFAULT AS IDENTITY;"),
        ordered => format!("{head} ADD GENERATED BY DEFAULT AS IDENTITY ({ordered});"),
    }];
    let table = words.iter().skip(2).find(|word| !matches!(**word, "ONLY" | "IF" | "EXISTS"));
    if let (Some(name), Some(table), Some(column)) =
        (behind(&["SEQUENCE", "NAME"]), table, words.get(column + 1))
    {
        let last = |name: &str| name.rsplit('.').next().unwrap_or(name).trim_matches('"').to_owned();
        let plain = |name: &str| if name.contains('"') { last(name) } else { last(name).to_lowercase() };
        let (usual, wanted) = (format!("{}_{}_seq", plain(table), plain(column)), plain(name));
        if usual != wanted {
            statements.push(format!("ALTER SEQUENCE public.\"{usual}\" RENAME TO \"{wanted}\";"));
        }
    }
    Judged::Instead(statements, always.then_some("GENERATED ALWAYS taken as BY DEFAULT"))
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
    fn identity_is_said_in_our_words() {
        let text = "ALTER TABLE public.u ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (\n    SEQUENCE NAME public.other\n    \
                    START WITH 5\n    INCREMENT BY -1\n    NO MINVALUE\n    MAXVALUE 9\n    CACHE 1\n);";
        let Judged::Instead(statements, told) = judge(text) else { panic!("{:?}", judge(text)) };
        assert_eq!(
            statements,
            [
                "ALTER TABLE public.u ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (INCREMENT BY -1 MAXVALUE 9 START WITH 5);",
                "ALTER SEQUENCE public.\"u_id_seq\" RENAME TO \"other\";"
            ]
        );
        assert!(told.is_some());
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
