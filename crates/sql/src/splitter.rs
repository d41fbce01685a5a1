//! Takes scripts apart: statements end at a `;` outside of quotes, comments, parentheses, and the body of a function or procedure that is written
//! as statements (`BEGIN ATOMIC ... END`); a backslash there begins a command of the shell, which goes to the end of its line.
//!
//! Lines are fed one after the other, so that a prompt can say what is still open. A statement whose end does not come is a matter of who feeds
//! them: [`Splitter::too_long`] tells.

use crate::bind::MAX_STATEMENT;

/// What a text is inside of.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Inside {
    Nothing,
    /// `'...'`; with backslash escapes in `E'...'`
    Quote {
        escapes: bool,
    },
    /// `"..."`
    Name,
    /// `$tag$...$tag$`, with both dollars
    Dollar(String),
    /// `/* ... */`, which nest
    Comment(u32),
}

/// What a statement is by its first words, as far as it matters: only one that makes a routine may have a body of statements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Head {
    Nothing,
    /// `CREATE`
    Create,
    /// `CREATE OR`
    Or,
    /// `CREATE OR REPLACE`
    Replace,
    /// `CREATE [OR REPLACE] {FUNCTION | PROCEDURE}`
    Routine,
    /// Something else.
    Other,
}

impl Head {
    /// What it is with one more word.
    fn with(self, word: &str) -> Head {
        let is = |expected: &str| word.eq_ignore_ascii_case(expected);
        match self {
            Head::Nothing if is("create") => Head::Create,
            Head::Create if is("or") => Head::Or,
            Head::Or if is("replace") => Head::Replace,
            Head::Create | Head::Replace if is("function") || is("procedure") => Head::Routine,
            Head::Routine => Head::Routine,
            _ => Head::Other,
        }
    }
}

/// A part of a script.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Piece {
    /// A statement, with its `;`.
    Statement(String),
    /// A command of the shell, without its backslash.
    Meta(String),
}

/// Takes lines, gives statements.
#[derive(Debug)]
pub struct Splitter {
    /// The statement so far.
    statement: String,
    /// Whether there is more to it than comments.
    begun: bool,
    inside: Inside,
    parentheses: u32,
    head: Head,
    /// Of a routine's body: how many `BEGIN` and `CASE` have no `END` yet.
    bodies: u32,
    /// What was fed and not looked at yet.
    line: String,
    at: usize,
}

impl Default for Splitter {
    fn default() -> Self {
        Splitter {
            statement: String::new(),
            begun: false,
            inside: Inside::Nothing,
            parentheses: 0,
            head: Head::Nothing,
            bodies: 0,
            line: String::new(),
            at: 0,
        }
    }
}

impl Splitter {
    /// Takes the next line, whose line feed may be missing. What was fed before has to be taken out.
    pub fn feed(&mut self, line: &str) {
        debug_assert!(self.at == self.line.len(), "the line before was taken apart");
        self.line.clear();
        self.line.push_str(line.strip_suffix('\n').unwrap_or(line));
        self.line.push('\n');
        self.at = 0;
    }

    /// The next piece that ended; `None`: more lines are needed.
    pub fn next_piece(&mut self) -> Option<Piece> {
        while let Some(character) = self.line[self.at..].chars().next() {
            let from = self.at;
            self.at += character.len_utf8();
            match self.inside {
                Inside::Nothing => {
                    if let Some(piece) = self.outside(character, from) {
                        return Some(piece);
                    }
                    continue;
                }
                Inside::Quote { escapes } => match character {
                    '\'' if self.line[self.at..].starts_with('\'') => self.at += 1,
                    '\'' => self.inside = Inside::Nothing,
                    '\\' if escapes => {
                        self.at += self.line[self.at..].chars().next().map_or(0, char::len_utf8)
                    }
                    _ => {}
                },
                Inside::Name if character == '"' => self.inside = Inside::Nothing,
                Inside::Name => {}
                Inside::Dollar(ref tag) => {
                    if character == '$' && self.line[from..].starts_with(tag.as_str()) {
                        self.at = from + tag.len();
                        self.inside = Inside::Nothing;
                    }
                }
                Inside::Comment(depth) => {
                    let rest = &self.line[from..];
                    if rest.starts_with("*/") {
                        self.at = from + 2;
                        self.inside = if depth == 1 { Inside::Nothing } else { Inside::Comment(depth - 1) };
                    } else if rest.starts_with("/*") {
                        self.at = from + 2;
                        self.inside = Inside::Comment(depth + 1);
                    }
                }
            }
            self.statement.push_str(&self.line[from..self.at]);
        }
        if !self.begun && self.inside == Inside::Nothing {
            // Comments between statements belong to none.
            self.statement.clear();
        }
        None
    }

    /// Looks at a character outside of quotes and comments.
    fn outside(&mut self, character: char, from: usize) -> Option<Piece> {
        let rest = &self.line[from..];
        match character {
            ';' if self.parentheses == 0 && self.bodies == 0 => {
                self.head = Head::Nothing;
                let begun = std::mem::take(&mut self.begun);
                let mut statement = std::mem::take(&mut self.statement);
                // Messages that show the statement show all of it, as with psql.
                statement.push(';');
                return begun.then_some(Piece::Statement(statement));
            }
            '\\' => {
                let text = rest[1..].trim_end().to_owned();
                self.at = self.line.len();
                return Some(Piece::Meta(text));
            }
            _ if rest.starts_with("--") => {
                // The line feed stays: it separates.
                self.at = self.line.len() - 1;
                self.statement.push_str(&self.line[from..self.at]);
                return None;
            }
            _ if rest.starts_with("/*") => {
                self.at = from + 2;
                self.inside = Inside::Comment(1);
                self.statement.push_str("/*");
                return None;
            }
            blank if blank.is_whitespace() => {
                if !self.statement.is_empty() {
                    self.statement.push(blank);
                }
                return None;
            }
            '\'' => self.inside = Inside::Quote { escapes: self.escapes(from) },
            '"' => self.inside = Inside::Name,
            '(' => self.parentheses += 1,
            ')' => self.parentheses = self.parentheses.saturating_sub(1),
            '$' if !self.line[..from].chars().next_back().is_some_and(in_name) => {
                if let Some(tag) = dollar_tag(rest) {
                    self.at = from + tag.len();
                    self.inside = Inside::Dollar(tag.to_owned());
                }
            }
            first if in_name(first) => {
                let len = rest.find(|character: char| !in_name(character)).unwrap_or(rest.len());
                self.at = from + len;
                self.word(from);
            }
            _ => {}
        }
        self.begun = true;
        self.statement.push_str(&self.line[from..self.at]);
        None
    }

    /// Looks at a word that ends here. As with psql, `BEGIN` need not be followed by `ATOMIC`.
    fn word(&mut self, from: usize) {
        let word = &self.line[from..self.at];
        self.head = self.head.with(word);
        if self.head != Head::Routine || self.parentheses > 0 {
            return;
        }
        if word.eq_ignore_ascii_case("begin") || (self.bodies > 0 && word.eq_ignore_ascii_case("case")) {
            self.bodies += 1;
        } else if word.eq_ignore_ascii_case("end") {
            self.bodies = self.bodies.saturating_sub(1);
        }
    }

    /// Whether the quote here is one of `E'...'`.
    fn escapes(&self, quote: usize) -> bool {
        let mut before = self.line[..quote].chars().rev();
        matches!(before.next(), Some('e' | 'E')) && !before.next().is_some_and(in_name)
    }

    /// What a prompt shows for what is open.
    pub fn mark(&self) -> char {
        match self.inside {
            Inside::Quote { .. } => '\'',
            Inside::Name => '"',
            Inside::Dollar(_) => '$',
            Inside::Comment(_) => '*',
            Inside::Nothing if self.parentheses > 0 => '(',
            Inside::Nothing if self.statement.is_empty() => '=',
            Inside::Nothing => '-',
        }
    }

    /// Says so where the statement so far is longer than any may be: its end may never come.
    pub fn too_long(&self) -> Option<String> {
        let open = self.missing().filter(|_| self.statement.len() > MAX_STATEMENT)?;
        Some(format!("a statement of more than {MAX_STATEMENT} bytes, which has not ended: {open}"))
    }

    /// What is missing at the end of the input; `None`: nothing.
    pub fn missing(&self) -> Option<&'static str> {
        match self.inside {
            Inside::Quote { .. } => Some("unterminated quoted string"),
            Inside::Name => Some("unterminated quoted identifier"),
            Inside::Dollar(_) => Some("unterminated dollar-quoted string"),
            Inside::Comment(_) => Some("unterminated /* comment"),
            Inside::Nothing if !self.begun => None,
            Inside::Nothing if self.parentheses > 0 => Some("unterminated statement: a parenthesis is open"),
            Inside::Nothing if self.bodies > 0 => {
                Some("unterminated statement: the END of a body is missing")
            }
            Inside::Nothing => Some("unterminated statement: \";\" is missing"),
        }
    }

    /// The statement so far.
    pub fn statement(&self) -> &str {
        &self.statement
    }

    /// Takes the statement as it is, ended or not; `None` when there is none.
    pub fn take(&mut self) -> Option<String> {
        let statement = std::mem::take(&mut self.statement);
        let begun = self.begun;
        self.reset();
        begun.then_some(statement)
    }

    /// Forgets everything.
    pub fn reset(&mut self) {
        *self = Splitter { line: std::mem::take(&mut self.line), ..Splitter::default() };
        self.at = self.line.len();
    }
}

/// Whether a name can go on with this.
fn in_name(character: char) -> bool {
    character == '_' || character == '$' || character.is_ascii_alphanumeric() || !character.is_ascii()
}

/// `$tag$` at the beginning of a text.
pub(crate) fn dollar_tag(text: &str) -> Option<&str> {
    let end = text[1..].find('$')? + 1;
    let tag = &text[1..end];
    let fits = tag.chars().all(|character| character != '$' && in_name(character))
        && !tag.starts_with(|first: char| first.is_ascii_digit());
    fits.then(|| &text[..=end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(script: &str) -> (Vec<Piece>, Splitter) {
        let mut splitter = Splitter::default();
        let mut pieces = Vec::new();
        for line in script.split_inclusive('\n') {
            splitter.feed(line);
            while let Some(piece) = splitter.next_piece() {
                pieces.push(piece);
            }
        }
        (pieces, splitter)
    }

    fn statements(script: &str) -> Vec<String> {
        let (pieces, splitter) = split(script);
        assert_eq!(splitter.missing(), None, "{script}");
        pieces
            .into_iter()
            .map(|piece| match piece {
                Piece::Statement(text) => text,
                Piece::Meta(text) => format!("\\{text}"),
            })
            .collect()
    }

    #[test]
    fn statements_end_outside_of_quotes_only() {
        for whole in [
            "select ';'",
            "select ''';'",
            "select E'\\';'",
            "select e'\\\\'",
            "select E'a''\\';'",
            "select \";\"",
            "select \";\"\";\"",
            "select $$;$$",
            "select $a$;$$;$b$;$a$",
            "select /* ; /* ; */ ; */ 1",
            "select (1;2)",
            "select 'a\nb;\n'",
            "select nameE';'",
            "select 'é;€'",
            "select '\\'",
        ] {
            let whole = format!("{whole};");
            assert_eq!(statements(&whole), [whole.as_str()], "{whole}");
        }
        assert_eq!(
            statements("select 1;select 2 ; ;; select\n3;\n"),
            ["select 1;", "select 2 ;", "select\n3;"]
        );
        assert_eq!(statements("select a$b$;select 2;"), ["select a$b$;", "select 2;"]);
        assert_eq!(statements("select $1;select $2;"), ["select $1;", "select $2;"]);
        assert_eq!(statements("select 1 -- ;\n;"), ["select 1 -- ;\n;"]);
    }

    #[test]
    fn the_statements_of_a_body_are_part_of_their_routine() {
        for whole in [
            "create function f() returns int begin atomic delete from b; select 1; end",
            "CREATE OR REPLACE PROCEDURE p(a int)\nLANGUAGE sql\nBEGIN ATOMIC\n DELETE FROM b;\n UPDATE b SET a = CASE WHEN a > 1 THEN 2 ELSE 3 END;\nEND",
            "create function f() begin atomic begin; select (case a when 1 then 2 end); end; select 'end', \"end\"; end",
            "create procedure p() begin atomic select 1; /* end; */ select $$end$$; -- end\nselect 2; end",
        ] {
            let script = format!("select 1;{whole};select 2;");
            assert_eq!(statements(&script), ["select 1;", &format!("{whole};"), "select 2;"]);
        }
        // It is a matter of these only.
        for script in [
            "begin;delete from b;end;",
            "create table \"function\" (begin int);select begin from b;",
            "create table begin (a int);select 1;",
            "create index function on b (a);begin;commit;",
            "create function f() as 'begin';select case when a then b end;",
            "create function f(begin int) as $$ begin; end $$;select 1;",
        ] {
            let apart: Vec<_> = script.split_inclusive(';').collect();
            let apart: Vec<_> = if script.contains("$$") {
                vec!["create function f(begin int) as $$ begin; end $$;", "select 1;"]
            } else {
                apart
            };
            assert_eq!(statements(script), apart);
        }
        let (_, mut splitter) = split("create function f() begin atomic select 1;\n");
        assert_eq!(splitter.missing(), Some("unterminated statement: the END of a body is missing"));
        assert_eq!(splitter.mark(), '-');
        splitter.reset();
        assert_eq!(splitter.missing(), None);
    }

    #[test]
    fn comments_between_statements_belong_to_none() {
        assert_eq!(statements("-- a; b\n/* c;\n d */ \nselect 1;\n-- end\n"), ["select 1;"]);
        assert!(statements("/* only */").is_empty());
    }

    #[test]
    fn commands_of_the_shell_take_the_rest_of_their_line() {
        assert_eq!(statements("\\dt x;y\nselect 1;\\x\n"), ["\\dt x;y", "select 1;", "\\x"]);
        let (pieces, splitter) = split("select '\\d';select 2 \\g out\n");
        assert_eq!(pieces, [Piece::Statement("select '\\d';".into()), Piece::Meta("g out".into())]);
        assert_eq!(splitter.statement(), "select 2 ");
    }

    #[test]
    fn the_prompt_says_what_is_open() {
        for (text, mark, ended) in [
            ("", '=', true),
            ("  ", '=', true),
            ("-- x", '=', true),
            ("select", '-', false),
            ("select '", '\'', false),
            ("select \"", '"', false),
            ("select $x$ $y$", '$', false),
            ("/* /* */", '*', false),
            ("select (", '(', false),
        ] {
            let (_, splitter) = split(text);
            assert_eq!(splitter.mark(), mark, "{text}");
            assert_eq!(splitter.missing().is_none(), ended, "{text}");
        }
    }

    #[test]
    fn a_statement_can_be_given_up() {
        let (_, mut splitter) = split("select '(");
        splitter.reset();
        assert_eq!((splitter.mark(), splitter.missing()), ('=', None));
        splitter.feed("select 1");
        assert_eq!(splitter.next_piece(), None);
        assert_eq!(splitter.take().as_deref(), Some("select 1\n"));
        assert_eq!(splitter.take(), None);
    }
}
