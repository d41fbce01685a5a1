//! What a connection does again and again: statements with random numbers in them.
//!
//! A script is text, simpler than pgbench's:
//!
//! ```sql
//! \set account random(1, 100000)
//! begin;
//! update accounts set balance = balance + 1 where id = :account;
//! commit;
//! ```
//!
//! `\set NAME random(FROM, TO)`, on a line of its own, draws a number anew each time the script is run. `:NAME` stands for it in statements, outside of quotes. Statements end
//! with a semicolon; those that read or write rows are prepared once in each connection and then executed, others are sent as they are.

use crate::random::Random;
use anyhow::{Context, Result, bail};
use std::fmt::Write;

/// Statements that can be prepared, by their first word.
const PREPARED: [&str; 5] = ["select", "insert", "update", "delete", "with"];

/// What writes: of a statement that begins with `with`, any of its words.
const WRITES: [&str; 9] =
    ["insert", "update", "delete", "merge", "copy", "truncate", "create", "alter", "drop"];

/// What begins a transaction, or ends it.
const ENDS: [&str; 6] = ["begin", "start", "commit", "end", "rollback", "abort"];

/// A random number with a name.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Variable {
    name: String,
    from: i64,
    to: i64,
}

/// A statement.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Statement {
    /// With `$1`, `$2`, ... for variables.
    text: String,
    /// Which variables these are.
    variables: Vec<usize>,
    first_word: String,
}

/// A script.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Script {
    variables: Vec<Variable>,
    statements: Vec<Statement>,
}

/// A statement as it is to be sent, and whether it is one that waits for the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sent {
    /// The text.
    pub text: String,
    /// It is a COMMIT.
    pub is_commit: bool,
}

impl Script {
    /// Reads a script.
    ///
    /// # Errors
    /// What is wrong, with the line.
    pub fn parse(text: &str) -> Result<Self> {
        let mut script = Script { variables: Vec::new(), statements: Vec::new() };
        let mut rest = String::new();
        for (number, line) in text.lines().enumerate() {
            match line.trim().strip_prefix('\\') {
                Some(command) => {
                    let variable =
                        set(command).with_context(|| format!("line {}: \\{command}", number + 1))?;
                    if script.variables.iter().any(|other| other.name == variable.name) {
                        bail!("line {}: {} is set twice", number + 1, variable.name);
                    }
                    script.variables.push(variable);
                }
                None => rest.extend([line, "\n"]),
            }
        }
        script.read_statements(&rest)?;
        if script.statements.is_empty() {
            bail!("there is no statement in it: statements end with a semicolon");
        }
        Ok(script)
    }

    fn read_statements(&mut self, text: &str) -> Result<()> {
        let characters: Vec<char> = text.chars().collect();
        let (mut statement, mut variables) = (String::new(), Vec::new());
        let mut at = 0;
        while at < characters.len() {
            let (now, next) = (characters[at], characters.get(at + 1).copied());
            match now {
                '\'' | '"' => {
                    let end = (at + 1..characters.len()).find(|&end| characters[end] == now);
                    let end =
                        end.with_context(|| format!("a quote is not closed: {}", first_of(&statement)))?;
                    statement.extend(&characters[at..=end]);
                    at = end;
                }
                '-' if next == Some('-') => {
                    while characters.get(at + 1).is_some_and(|&next| next != '\n') {
                        at += 1;
                    }
                }
                ':' if next == Some(':') => {
                    statement.push_str("::");
                    at += 1;
                }
                ':' if next.is_some_and(|next| next.is_alphabetic() || next == '_') => {
                    let name: String = characters[at + 1..]
                        .iter()
                        .take_while(|&&next| next.is_alphanumeric() || next == '_')
                        .collect();
                    at += name.chars().count();
                    let found = self.variables.iter().position(|variable| variable.name == name);
                    let found =
                        found.with_context(|| format!(":{name} is not set: \\set {name} random(1, 1000)"))?;
                    let place = variables.iter().position(|&other| other == found).unwrap_or_else(|| {
                        variables.push(found);
                        variables.len() - 1
                    });
                    // Writing to a string does not fail.
                    let _ = write!(statement, "${}", place + 1);
                }
                ';' => self.end(&mut statement, &mut variables),
                other => statement.push(other),
            }
            at += 1;
        }
        if !statement.trim().is_empty() {
            bail!("the last statement does not end with a semicolon: {}", first_of(&statement));
        }
        Ok(())
    }

    fn end(&mut self, statement: &mut String, variables: &mut Vec<usize>) {
        let text = statement.trim().to_owned();
        let first_word =
            text.split(|next: char| !next.is_alphanumeric()).next().unwrap_or_default().to_lowercase();
        statement.clear();
        let variables = std::mem::take(variables);
        if !text.is_empty() {
            self.statements.push(Statement { text, variables, first_word });
        }
    }

    /// What a connection says before it runs the script for the first time; `number` tells scripts apart.
    pub fn prepare(&self, number: usize) -> Vec<String> {
        let prepared = self.statements.iter().enumerate().filter(|(_, statement)| statement.is_prepared());
        prepared
            .map(|(place, statement)| format!("prepare lab_{number}_{place} as {}", statement.text))
            .collect()
    }

    /// The statements of one time, with numbers drawn for it.
    pub fn draw(&self, number: usize, random: &mut Random) -> Vec<Sent> {
        let values: Vec<i64> = self.variables.iter().map(|variable| variable.draw(random)).collect();
        let sent = |(place, statement): (usize, &Statement)| {
            let is_commit = matches!(&*statement.first_word, "commit" | "end");
            let drawn: Vec<String> = statement.variables.iter().map(|&one| values[one].to_string()).collect();
            let text = match statement.is_prepared() {
                true if drawn.is_empty() => format!("execute lab_{number}_{place}"),
                true => format!("execute lab_{number}_{place}({})", drawn.join(", ")),
                false => statement.filled(&drawn),
            };
            Sent { text, is_commit }
        };
        self.statements.iter().enumerate().map(sent).collect()
    }

    /// The same, so that each prepared statement tells what it did instead of giving rows; without what begins or ends a transaction.
    pub fn draw_explained(&self, number: usize, random: &mut Random) -> Vec<Sent> {
        let sent = self.draw(number, random).into_iter().zip(&self.statements);
        sent.filter(|(_, statement)| !ENDS.contains(&&*statement.first_word))
            .map(|(sent, statement)| match statement.is_prepared() {
                true => {
                    Sent { text: format!("explain (analyze, buffers, format json) {}", sent.text), ..sent }
                }
                false => sent,
            })
            .collect()
    }

    /// Whether it writes, as far as its statements' words say.
    pub fn writes(&self) -> bool {
        self.statements.iter().any(|statement| match &*statement.first_word {
            "with" => {
                let mut words = statement.text.split(|next: char| !next.is_alphanumeric() && next != '_');
                words.any(|word| WRITES.contains(&&*word.to_lowercase()))
            }
            first => WRITES.contains(&first),
        })
    }

    /// Whether it has a COMMIT of its own, so that waiting for the log can be told from everything else.
    pub fn has_commit(&self) -> bool {
        self.statements.iter().any(|statement| matches!(&*statement.first_word, "commit" | "end"))
    }
}

impl Variable {
    fn draw(&self, random: &mut Random) -> i64 {
        let count = self.to.abs_diff(self.from).saturating_add(1);
        self.from.saturating_add_unsigned(random.below(count))
    }
}

impl Statement {
    fn is_prepared(&self) -> bool {
        PREPARED.contains(&&*self.first_word)
    }

    /// Its text with numbers in place of `$1`, ...
    fn filled(&self, drawn: &[String]) -> String {
        // From the last on, as $1 begins $10, too.
        let numbered = drawn.iter().enumerate().rev();
        numbered
            .fold(self.text.clone(), |text, (place, value)| text.replace(&format!("${}", place + 1), value))
    }
}

fn first_of(statement: &str) -> String {
    statement.trim().chars().take(60).collect()
}

/// `set NAME random(FROM, TO)`
fn set(command: &str) -> Result<Variable> {
    let form = "the form is \\set NAME random(FROM, TO)";
    let rest =
        command.strip_prefix("set").filter(|rest| rest.starts_with(char::is_whitespace)).context(form)?;
    let (name, range) = rest.trim().split_once(char::is_whitespace).context(form)?;
    let range = range.trim().strip_prefix("random(").and_then(|rest| rest.strip_suffix(')')).context(form)?;
    let (from, to) = range.split_once(',').context(form)?;
    let variable = Variable {
        name: name.to_owned(),
        from: from.trim().parse().context(form)?,
        to: to.trim().parse().context(form)?,
    };
    let is_name = |text: &str| {
        text.chars().all(|next| next.is_alphanumeric() || next == '_')
            && !text.starts_with(|next: char| next.is_numeric())
    };
    if variable.from > variable.to || !is_name(name) {
        bail!("{form}, FROM not above TO, and a NAME of letters");
    }
    Ok(variable)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\\set id random(5, 7)\n\\set amount random(-1, -1)\nBEGIN; -- a comment; with :nothing\n\
        update t set a = a + :amount, b = ':id;' where id = :id and c::int = :amount;\n\
        set work_mem = :id;\ncommit;\n";

    #[test]
    fn a_script_is_prepared_and_drawn() {
        let script = Script::parse(TEXT).unwrap();
        assert_eq!(
            script.prepare(2),
            ["prepare lab_2_1 as update t set a = a + $1, b = ':id;' where id = $2 and c::int = $1"]
        );
        let mut random = Random::new(1);
        for _ in 0..20 {
            let sent = script.draw(2, &mut random);
            let texts: Vec<&str> = sent.iter().map(|one| &*one.text).collect();
            let [begin, update, set, commit] = texts[..] else { panic!("{texts:?}") };
            assert_eq!((begin, commit), ("BEGIN", "commit"));
            let id = set.strip_prefix("set work_mem = ").unwrap();
            assert!((5..=7).contains(&id.parse::<i32>().unwrap()), "{set}");
            assert_eq!(update, format!("execute lab_2_1(-1, {id})"));
            assert_eq!(sent.iter().map(|one| one.is_commit).collect::<Vec<_>>(), [false, false, false, true]);
        }
        assert!(script.has_commit() && !Script::parse("select 1;").unwrap().has_commit());
    }

    #[test]
    fn a_script_that_writes_is_told_from_one_that_reads() {
        let writes = |text: &str| Script::parse(text).unwrap().writes();
        assert!(writes(TEXT) && writes("with gone as (DELETE from t returning a) select a from gone;"));
        assert!(!writes("begin; select updated from t; commit;"));
        assert!(!writes("with t as (select last_update from u) select last_update from t;"));
    }

    #[test]
    fn what_is_explained_stays_in_its_transaction() {
        let sent = Script::parse(TEXT).unwrap().draw_explained(2, &mut Random::new(1));
        let [update, set] = &sent[..] else { panic!("{sent:?}") };
        assert!(
            update.text.starts_with("explain (analyze, buffers, format json) execute lab_2_1(-1, "),
            "{sent:?}"
        );
        assert!(set.text.starts_with("set work_mem = "));
    }

    #[test]
    fn numbers_are_drawn_from_the_whole_range() {
        let script = Script::parse("\\set n random(1, 3)\nvalues (:n);").unwrap();
        let mut random = Random::new(1);
        let drawn: std::collections::BTreeSet<String> =
            (0..100).map(|_| script.draw(0, &mut random)[0].text.clone()).collect();
        assert_eq!(drawn.into_iter().collect::<Vec<_>>(), ["values (1)", "values (2)", "values (3)"]);
        let all = Variable { name: String::new(), from: i64::MIN, to: i64::MAX };
        assert_ne!(all.draw(&mut random), all.draw(&mut random));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, says) in [
            ("", "no statement"),
            ("select 1", "does not end with a semicolon: select 1"),
            ("select :x;", ":x is not set"),
            ("select 'x;", "a quote is not closed: select"),
            ("\\set x random(3, 1)\nselect 1;", "line 1"),
            ("\\set 1 random(1, 3)\nselect 1;", "line 1"),
            ("select 1;\n\\sleep 3", "line 2: \\sleep 3: the form is"),
            ("\\set x random(1, 3)\n\\set x random(1, 3)\nselect 1;", "line 2: x is set twice"),
        ] {
            let error = format!("{:#}", Script::parse(text).unwrap_err());
            assert!(error.contains(says), "{text:?}: {error}");
        }
    }
}
