//! CREATE, ALTER and DROP ROLE.

use super::Utility;
use super::reader::Reader;
use crate::{Error, Result, SqlState};
use sqlparser::keywords::Keyword as K;
use sqlparser::tokenizer::Token;

/// What is said of a role; `None` where nothing was said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoleOptions {
    /// LOGIN
    pub login: Option<bool>,
    /// SUPERUSER
    pub superuser: Option<bool>,
    /// PASSWORD; within, `None`: PASSWORD NULL.
    pub password: Option<Option<String>>,
}

pub(super) fn parse(reader: &mut Reader<'_>) -> Result<Utility> {
    let command = reader.keyword(0);
    let user = reader.keyword(1) == K::USER;
    if user && reader.is_word(2, "mapping") {
        return reader.unsupported_to_end(&format!("{command:?} USER MAPPING"));
    }
    reader.skip(2);
    if command == K::DROP {
        let if_exists = reader.accept_words(&["if", "exists"]);
        let mut names = vec![reader.name()?];
        while reader.accept_token(&Token::Comma) {
            names.push(reader.name()?);
        }
        return Ok(Utility::DropRole { names, if_exists });
    }
    let name = reader.name()?;
    if command == K::ALTER {
        for words in [&["rename"][..], &["set"], &["reset"], &["in"], &["add", "user"], &["drop", "user"]] {
            if reader.is_words(words) {
                let what = format!("ALTER ROLE ... {}", words.join(" ").to_uppercase());
                return reader.unsupported_to_end(&what);
            }
        }
    }
    reader.accept(K::WITH);
    let options = options(reader)?;
    Ok(if command == K::CREATE {
        let login = options.login.or(user.then_some(true));
        Utility::CreateRole { name, options: RoleOptions { login, ..options } }
    } else {
        Utility::AlterRole { name, options }
    })
}

fn options(reader: &mut Reader<'_>) -> Result<RoleOptions> {
    let mut options = RoleOptions::default();
    while !reader.at_end() {
        let position = reader.position();
        if reader.accept(K::PASSWORD) || reader.accept_words(&["encrypted", "password"]) {
            let password = if reader.accept(K::NULL) { None } else { Some(reader.string()?) };
            if options.password.replace(password).is_some() {
                return Err(
                    Error::new(SqlState::SYNTAX_ERROR, "conflicting or redundant options").at(position)
                );
            }
            continue;
        }
        let word = reader.name()?;
        let slot = match word.as_str() {
            "login" | "nologin" => &mut options.login,
            "superuser" | "nosuperuser" => &mut options.superuser,
            // What a role here may or may not do anyway.
            "inherit" | "nocreatedb" | "nocreaterole" | "noreplication" | "nobypassrls" => continue,
            "createdb" | "createrole" | "replication" | "bypassrls" | "noinherit" | "connection"
            | "valid" | "in" | "role" | "admin" | "user" | "sysid" => {
                return Err(Error::unsupported(format!("role option {}", word.to_uppercase())).at(position));
            }
            _ => {
                let message = format!("unrecognized role option \"{word}\"");
                return Err(Error::new(SqlState::SYNTAX_ERROR, message).at(position));
            }
        };
        if slot.replace(!word.starts_with("no")).is_some() {
            return Err(Error::new(SqlState::SYNTAX_ERROR, "conflicting or redundant options").at(position));
        }
    }
    Ok(options)
}
