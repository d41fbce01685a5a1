//! What PostgreSQL's clients send and `sqlparser` cannot read is made readable here, token by token; and depth is limited before
//! any recursion begins.
//!
//! # Guarantees
//! 1. Whatever the text, parsing what [`bridge`] lets pass, and walking or dropping the tree, recurses at most [`DEPTH_LIMIT`] steps of cost.
//! 2. AND and OR are free: long chains of them are regrouped into balanced trees, which mean the same.
//!
//! | written | given to the parser as |
//! |---|---|
//! | `FOR NO KEY UPDATE` | `FOR UPDATE`: the two are one lock here |
//! | `FOR KEY SHARE`, `OF a, b` | `FOR SHARE OF "`[`KEY_SHARE`]`"`, one clause for each table |
//! | `BETWEEN SYMMETRIC a AND b` | `BETWEEN "`[`SYMMETRIC`]`"(a) AND b` |
//! | `BETWEEN ASYMMETRIC a AND b` | `BETWEEN a AND b`, which means the same |
//! | `NOT EXISTS (...)` | `NOT (EXISTS (...))`, as NOT binds more loosely than what may follow |
//! | `SELECT 1 FOR UPDATE` | `SELECT 1 WHERE TRUE FOR UPDATE`, as FOR might be an alias |
//! | `ONLY` | nothing: there is no inheritance |
//! | `TABLE t` | `SELECT * FROM t` |
//! | `TRIM(LEADING FROM a)` | `TRIM(LEADING a)` |
//! | `TRIM(LEADING a, b)` | `LTRIM(a, b)`: the parser loses the word |
//! | `a OPERATOR(s.+) b` | `a` [`Token::CustomBinaryOperator`]`("s.+") b`, which binds as PostgreSQL's does |
//! | `x ISNULL` | `x IS NULL` |
//! | `DROP INDEX CONCURRENTLY` | `DROP INDEX` |
//! | `((SELECT 1) UNION (SELECT 2))`, `(VALUES (1))` | with `WITH "`[`QUERY`]`" AS (VALUES (NULL))` behind the parenthesis |
//! | `AS IDENTITY (START 5 SEQUENCE NAME s)` | `AS IDENTITY (CACHE $)`, where `$` is [`IDENTITY`] and the options' text, as they come in any order |
//! | `IN ((SELECT 1), 2)` | `IN ("`[`LIST`]`", (SELECT 1), 2)` |

use super::lookahead::{closing, operator_name, symmetric_end, trims_list};
use super::parentheses::{Mark, marks};
use super::tokens::{Lexeme, near};
use crate::{Error, Result, SqlState};
use sqlparser::ast;
use sqlparser::keywords::Keyword as K;
use sqlparser::tokenizer::{Span, Token, TokenWithSpan};
use std::iter::Peekable;
use std::vec::IntoIter;

/// First part of the name in `FOR SHARE OF`, which makes FOR KEY SHARE of it. No text can have it: it holds a NUL.
pub(super) const KEY_SHARE: &str = "\0key share";

/// Function around the lower bound of BETWEEN SYMMETRIC.
pub(super) const SYMMETRIC: &str = "\0symmetric";

/// The WITH query that tells the parser of a query in parentheses.
const QUERY: &str = "\0query";

/// The item that tells the parser of a list.
const LIST: &str = "\0list";

/// What the options of an identity column begin with.
const IDENTITY: &str = "\0identity ";

/// The options of an identity column, as they were written.
pub(crate) fn identity_text(options: &[ast::SequenceOptions]) -> Option<String> {
    match options {
        [ast::SequenceOptions::Cache(text)] => text.to_string().strip_prefix(IDENTITY).map(str::to_owned),
        _ => None,
    }
}

/// The WITH of a query, if it was written.
pub(super) fn with_clause(query: &ast::Query) -> Option<&ast::With> {
    let own =
        |with: &&ast::With| !matches!(with.cte_tables.as_slice(), [cte] if cte.alias.name.value == QUERY);
    query.with.as_ref().filter(own)
}

/// The items of an IN as they were written.
pub(super) fn list_items(list: &[ast::Expr]) -> &[ast::Expr] {
    match list {
        [ast::Expr::Identifier(first), rest @ ..] if first.value == LIST => rest,
        _ => list,
    }
}

/// How deep a statement may be: a subquery costs 16, a parenthesis, prefix or postfix operator 4, a binary operator 1. What binds to an
/// operand of a chain alone, as casts and products in a sum do, makes the chain no longer: only the deepest of these operands counts.
const DEPTH_LIMIT: usize = 512;

/// Up to this cost of nesting the parser's recursion fits on any stack; deeper statements are parsed on one of their own.
pub(super) const SHALLOW: usize = 120;

/// Chains of AND and OR longer than this are regrouped.
const CHAIN: usize = 48;

/// Tokens for the parser, and the cost of their nesting.
pub(super) struct Bridged {
    pub(super) tokens: Vec<TokenWithSpan>,
    pub(super) nesting: usize,
}

/// A nesting level: parentheses, brackets, or CASE.
#[derive(Default)]
struct Level {
    /// What it adds to the cost of nesting.
    cost: usize,
    /// Operators since the last comma or clause.
    chain: usize,
    /// Cost of casts of the operand at hand, and the most of them.
    casts: usize,
    most_casts: usize,
    /// Factors of the product at hand, and the most of them.
    products: usize,
    most_products: usize,
    /// Cost of prefix operators since the last comma or clause.
    prefixes: usize,
    /// Cost of UNION and its kin.
    unions: usize,
    /// BETWEENs whose AND is still to come.
    betweens: usize,
    /// The first lexeme of the expression.
    start: usize,
    ands: Vec<usize>,
    ors: Vec<usize>,
    case: bool,
    /// The SET of an UPDATE: what stands before the first `=` is no expression.
    set: bool,
}

impl Level {
    fn depth(&self) -> usize {
        self.chain + self.most_products + self.most_casts + self.prefixes + self.unions
    }

    /// No operator stands in the expression at hand.
    fn end_chain(&mut self) {
        self.chain = 0;
        (self.casts, self.most_casts) = (0, 0);
        (self.products, self.most_products) = (0, 0);
        self.prefixes = 0;
    }

    /// A comma or clause ends an expression.
    fn end_expression(&mut self, at: usize, groups: &mut Groups) {
        if self.ands.len() + self.ors.len() > CHAIN {
            regroup(self.start, at, &self.ands, &self.ors, groups);
        }
        self.ands.clear();
        self.ors.clear();
        self.end_chain();
        self.betweens = 0;
        self.start = at + 1;
    }
}

/// Makes tokens for the parser of a statement's lexemes.
pub(super) fn bridge(lexemes: &[Lexeme]) -> Result<Bridged> {
    let (nesting, groups) = measure(lexemes)?;
    let marks = marks(lexemes).into_iter().peekable();
    let mut writer =
        Writer { out: Vec::with_capacity(lexemes.len() + 1), groups, next_group: 0, trailing: None, marks };
    let mut at = 0;
    while at < lexemes.len() {
        at = writer.step(lexemes, at)?;
    }
    if let Some(last) = lexemes.last() {
        writer.parentheses(lexemes.len(), last);
        writer.close(lexemes.len(), last);
    }
    Ok(Bridged { tokens: writer.out, nesting })
}

/// Parentheses to be put in before the lexeme of a number: so many closing and so many opening ones.
type Groups = Vec<(usize, usize, usize)>;

fn too_deep(lexeme: &Lexeme) -> Error {
    Error::new(SqlState::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded")
        .detail("The statement is nested too deeply, or has too many operators in a row.")
        .at(lexeme.characters.start)
}

/// The cost of nesting, and where chains of AND and OR are regrouped.
fn measure(lexemes: &[Lexeme]) -> Result<(usize, Groups)> {
    let mut levels = vec![Level::default()];
    // Cost of all levels, and of what stands in those below the last.
    let (mut below, mut deepest) = (0, 0);
    let mut groups = Groups::new();
    for (at, lexeme) in lexemes.iter().enumerate() {
        if at > 0 && lexemes[at - 1].token == Token::Comma && begins_clause(lexeme) {
            return Err(near(&word_of(lexeme), lexeme.characters.start));
        }
        let level = levels.last_mut().expect("the outermost level stays");
        match classify(lexemes, at) {
            Class::Open { cost, case } => {
                below += level.depth() + cost;
                levels.push(Level { cost, case, start: at + 1, ..Level::default() });
            }
            Class::Close { case } => {
                level.end_expression(at, &mut groups);
                // What does not match is the parser's to complain about.
                if level.case == case && levels.len() > 1 {
                    below -= levels.pop().expect("more than one").cost;
                    below -= levels.last().expect("the outermost level stays").depth();
                }
            }
            Class::Boundary => {
                level.end_expression(at, &mut groups);
                level.set = lexeme.keyword() == K::SET || level.set && lexeme.token == Token::Comma;
            }
            Class::Union => {
                level.end_expression(at, &mut groups);
                level.unions += 1;
            }
            Class::Between => {
                level.betweens += 1;
                level.chain += 4;
            }
            Class::And if level.betweens > 0 => level.betweens -= 1,
            Class::And | Class::Or if level.set => level.chain += 1,
            class @ (Class::And | Class::Or) => {
                if matches!(class, Class::And) {
                    level.ands.push(at)
                } else {
                    level.ors.push(at)
                }
                level.end_chain();
            }
            Class::Operator => {
                level.casts = 0;
                if lexeme.token != Token::Caret {
                    // All others bind more loosely than a product.
                    level.products = 0;
                }
                level.chain += 1;
            }
            Class::Product => {
                level.casts = 0;
                level.products += 1;
                level.most_products = level.most_products.max(level.products);
            }
            Class::Cast => {
                level.casts += 4;
                level.most_casts = level.most_casts.max(level.casts);
            }
            Class::Postfix => level.chain += 4,
            Class::Prefix => level.prefixes += 4,
            Class::Operand => {}
        }
        let level = levels.last().expect("the outermost level stays");
        if below + level.depth() > DEPTH_LIMIT {
            return Err(too_deep(lexeme));
        }
        deepest = deepest.max(below + level.prefixes + level.unions);
    }
    while let Some(mut level) = levels.pop() {
        level.end_expression(lexemes.len(), &mut groups);
    }
    groups.sort_by_key(|group| group.0);
    Ok((deepest, groups))
}

/// Whether no item of a list can begin like that. (The parser forgives a comma behind the last item.)
fn begins_clause(lexeme: &Lexeme) -> bool {
    matches!(
        lexeme.keyword(),
        K::FROM
            | K::WHERE
            | K::GROUP
            | K::ORDER
            | K::HAVING
            | K::LIMIT
            | K::OFFSET
            | K::UNION
            | K::EXCEPT
            | K::INTERSECT
            | K::INTO
            | K::RETURNING
            | K::USING
            | K::ON
            | K::AS
    )
}

fn word_of(lexeme: &Lexeme) -> String {
    lexeme.token.to_string()
}

/// What a token does to depth.
#[derive(Clone, Copy)]
enum Class {
    Open {
        cost: usize,
        case: bool,
    },
    Close {
        case: bool,
    },
    Boundary,
    Union,
    Between,
    And,
    Or,
    Operator,
    /// `*`, `/`, `%`
    Product,
    /// `::`
    Cast,
    /// An operator that is bound by recursion on its left side.
    Postfix,
    Prefix,
    Operand,
}

fn classify(lexemes: &[Lexeme], at: usize) -> Class {
    let lexeme = &lexemes[at];
    let previous = at.checked_sub(1).map(|at| &lexemes[at]);
    match &lexeme.token {
        Token::LParen => {
            let subquery = lexemes
                .get(at + 1)
                .is_some_and(|next| matches!(next.keyword(), K::SELECT | K::VALUES | K::WITH | K::TABLE));
            Class::Open { cost: if subquery { 16 } else { 4 }, case: false }
        }
        Token::LBracket => Class::Open { cost: 4, case: false },
        Token::RParen | Token::RBracket => Class::Close { case: false },
        Token::Comma => Class::Boundary,
        Token::Word(word) if word.quote_style.is_some() => Class::Operand,
        // Behind a dot or AS any word is a name.
        Token::Word(_) if previous.is_some_and(is_name) => Class::Operand,
        Token::Word(word) => classify_word(lexemes, at, word.keyword),
        Token::Number(..)
        | Token::SingleQuotedString(_)
        | Token::EscapedStringLiteral(_)
        | Token::DollarQuotedString(_)
        | Token::UnicodeStringLiteral(_)
        | Token::NationalStringLiteral(_)
        | Token::HexStringLiteral(_)
        | Token::SingleQuotedByteStringLiteral(_)
        | Token::Placeholder(_)
        | Token::Period
        | Token::Colon => Class::Operand,
        Token::DoubleColon => Class::Cast,
        Token::Mul | Token::Div | Token::Mod if previous.is_some_and(ends_operand) => Class::Product,
        _ if previous.is_some_and(ends_operand) => Class::Operator,
        _ => Class::Prefix,
    }
}

fn classify_word(lexemes: &[Lexeme], at: usize, keyword: K) -> Class {
    let before = |back: usize| at.checked_sub(back).map_or(K::NoKeyword, |at| lexemes[at].keyword());
    let call = lexemes.get(at + 1).is_some_and(|next| next.token == Token::LParen);
    match keyword {
        K::CASE => Class::Open { cost: 4, case: true },
        K::END => Class::Close { case: true },
        K::AND => Class::And,
        K::OR => Class::Or,
        K::NOT => {
            // In NOT IN, NOT LIKE, IS NOT it is part of the operator.
            let operand = at > 0 && ends_operand(&lexemes[at - 1]) || before(1) == K::IS;
            if operand { Class::Operand } else { Class::Prefix }
        }
        K::BETWEEN => Class::Between,
        K::IS | K::LIKE | K::ILIKE | K::SIMILAR | K::IN | K::NOTNULL | K::COLLATE | K::AT | K::OPERATOR => {
            Class::Postfix
        }
        K::UNION | K::EXCEPT | K::INTERSECT => Class::Union,
        K::FROM if before(1) == K::DISTINCT && matches!(before(2), K::IS | K::NOT) => Class::Operand,
        K::SELECT
        | K::FROM
        | K::WHERE
        | K::ON
        | K::HAVING
        | K::GROUP
        | K::ORDER
        | K::BY
        | K::LIMIT
        | K::OFFSET
        | K::FETCH
        | K::FOR
        | K::WHEN
        | K::THEN
        | K::ELSE
        | K::AS
        | K::RETURNING
        | K::VALUES
        | K::WINDOW
        | K::USING
        | K::CHECK => Class::Boundary,
        K::SET if at > 1 => Class::Boundary,
        K::JOIN | K::INNER | K::LEFT | K::RIGHT | K::FULL | K::CROSS | K::NATURAL if !call => Class::Boundary,
        _ if lexemes[at].is_word("isnull") => Class::Postfix,
        _ => Class::Operand,
    }
}

/// Whether ONLY may follow: a table is named, or rows were counted.
fn ends_before_only(previous: &Lexeme) -> bool {
    let tables = matches!(
        previous.keyword(),
        K::FROM | K::JOIN | K::UPDATE | K::TABLE | K::TRUNCATE | K::EXISTS | K::ON
    );
    tables
        || matches!(previous.keyword(), K::ROW | K::ROWS)
        || matches!(previous.token, Token::Comma | Token::LParen)
}

/// Whether an operator behind this is a binary one.
pub(super) fn ends_operand(lexeme: &Lexeme) -> bool {
    match &lexeme.token {
        Token::Word(word) => {
            word.quote_style.is_some()
                || !matches!(
                    word.keyword,
                    K::SELECT
                        | K::DISTINCT
                        | K::WHERE
                        | K::ON
                        | K::HAVING
                        | K::BY
                        | K::LIMIT
                        | K::OFFSET
                        | K::WHEN
                        | K::THEN
                        | K::ELSE
                        | K::CASE
                        | K::RETURNING
                        | K::AND
                        | K::OR
                        | K::NOT
                        | K::BETWEEN
                        | K::LIKE
                        | K::ILIKE
                        | K::IN
                        | K::IS
                        | K::FROM
                        | K::CHECK
                )
        }
        Token::RParen
        | Token::RBracket
        | Token::Number(..)
        | Token::SingleQuotedString(_)
        | Token::EscapedStringLiteral(_)
        | Token::DollarQuotedString(_)
        | Token::UnicodeStringLiteral(_)
        | Token::NationalStringLiteral(_)
        | Token::HexStringLiteral(_)
        | Token::SingleQuotedByteStringLiteral(_)
        | Token::Placeholder(_) => true,
        _ => false,
    }
}

/// Terms of a chain that go into one pair of parentheses.
const FAN: usize = 32;

/// Regroups the expression `start..end`: a chain of ORs of chains of ANDs.
fn regroup(start: usize, end: usize, ands: &[usize], ors: &[usize], groups: &mut Groups) {
    let terms = split(start, end, ors);
    for term in &terms {
        let from = ands.partition_point(|at| *at < term.0);
        let to = ands.partition_point(|at| *at < term.1);
        balance(split(term.0, term.1, &ands[from..to]), groups);
    }
    balance(terms, groups);
}

fn split(start: usize, end: usize, at: &[usize]) -> Vec<(usize, usize)> {
    let mut terms = Vec::with_capacity(at.len() + 1);
    let mut from = start;
    for &at in at {
        terms.push((from, at));
        from = at + 1;
    }
    terms.push((from, end));
    terms
}

fn balance(mut terms: Vec<(usize, usize)>, groups: &mut Groups) {
    while terms.len() > FAN {
        terms = terms
            .chunks(FAN)
            .map(|chunk| {
                let whole = (chunk[0].0, chunk[chunk.len() - 1].1);
                groups.push((whole.0, 0, 1));
                groups.push((whole.1, 1, 0));
                whole
            })
            .collect();
    }
}

/// Writes the tokens for the parser.
struct Writer {
    out: Vec<TokenWithSpan>,
    groups: Groups,
    next_group: usize,
    /// Parentheses to be closed before the AND of BETWEEN SYMMETRIC, and behind NOT EXISTS: the lexemes' numbers.
    trailing: Option<Vec<usize>>,
    /// What the parser has to be told behind parentheses.
    marks: Peekable<IntoIter<(usize, Mark)>>,
}

impl Writer {
    fn put(&mut self, token: Token, at: &Lexeme) {
        let span = at.located().span;
        self.out.push(TokenWithSpan::new(token, Span::new(span.start, span.start)));
    }

    fn parentheses(&mut self, before: usize, at: &Lexeme) {
        while let Some(&(position, closing, opening)) = self.groups.get(self.next_group) {
            if position > before {
                break;
            }
            for _ in 0..closing {
                self.put(Token::RParen, at);
            }
            for _ in 0..opening {
                self.put(Token::LParen, at);
            }
            self.next_group += 1;
        }
    }

    fn close(&mut self, before: usize, at: &Lexeme) {
        while let Some(trailing) = &mut self.trailing
            && trailing.last() == Some(&before)
        {
            trailing.pop();
            self.put(Token::RParen, at);
        }
    }

    /// Writes the lexeme, or what it becomes; gives the number of the next one.
    fn step(&mut self, lexemes: &[Lexeme], at: usize) -> Result<usize> {
        let lexeme = &lexemes[at];
        self.parentheses(at, lexeme);
        self.close(at, lexeme);
        if let Some(end) = identity_end(lexemes, at) {
            let options: Vec<_> = lexemes[at + 1..end].iter().map(written).collect();
            self.out.push(lexeme.located());
            self.put(Token::make_keyword("CACHE"), lexeme);
            self.put(Token::Placeholder(format!("{IDENTITY}{}", options.join(" "))), lexeme);
            return Ok(end);
        }
        let named = at > 0 && is_name(&lexemes[at - 1]);
        if !matches!(lexeme.token, Token::Word(_)) || named {
            self.out.push(lexeme.located());
            if let Some((_, mark)) = self.marks.next_if(|(marked, _)| *marked == at) {
                self.mark(mark, &lexemes[at + 1]);
            }
            return Ok(at + 1);
        }
        self.step_word(lexemes, at)
    }

    fn mark(&mut self, mark: Mark, at: &Lexeme) {
        let name = |name| Token::make_word(name, Some('"'));
        let tokens = match mark {
            Mark::Query => vec![
                Token::make_keyword("WITH"),
                name(QUERY),
                Token::make_keyword("AS"),
                Token::LParen,
                Token::make_keyword("VALUES"),
                Token::LParen,
                Token::make_keyword("NULL"),
                Token::RParen,
                Token::RParen,
            ],
            Mark::List => vec![name(LIST), Token::Comma],
        };
        tokens.into_iter().for_each(|token| self.put(token, at));
    }

    fn step_word(&mut self, lexemes: &[Lexeme], at: usize) -> Result<usize> {
        let lexeme = &lexemes[at];
        let keyword = |ahead: usize| lexemes.get(at + ahead).map_or(K::NoKeyword, Lexeme::keyword);
        let previous = at.checked_sub(1).map(|at| &lexemes[at]);
        let unsupported = |what: &str| Err(Error::unsupported(what).at(lexeme.characters.start));
        match lexeme.keyword() {
            K::FOR if matches!(keyword(1), K::UPDATE | K::SHARE | K::NO | K::KEY) => {
                return self.lock_clause(lexemes, at);
            }
            K::BETWEEN if keyword(1) == K::SYMMETRIC => {
                self.out.push(lexeme.located());
                self.put(Token::make_word(SYMMETRIC, Some('"')), lexeme);
                self.put(Token::LParen, lexeme);
                if let Some(and) = symmetric_end(lexemes, at + 2) {
                    self.trailing.get_or_insert_default().push(and);
                }
                return Ok(at + 2);
            }
            K::BETWEEN if keyword(1) == K::ASYMMETRIC => {
                self.out.push(lexeme.located());
                return Ok(at + 2);
            }
            K::EXISTS
                if previous.is_some_and(|p| p.keyword() == K::NOT)
                    && at.checked_sub(2).is_none_or(|at| lexemes[at].keyword() != K::IF) =>
            {
                if let Some(end) = closing(lexemes, at + 1) {
                    self.put(Token::LParen, lexeme);
                    self.trailing.get_or_insert_default().push(end + 1);
                }
            }
            // There is no inheritance, so ONLY says nothing.
            K::ONLY if previous.is_some_and(ends_before_only) => return Ok(at + 1),
            K::TABLE
                if previous.is_none_or(|p| {
                    p.token == Token::LParen
                        || matches!(p.keyword(), K::UNION | K::EXCEPT | K::INTERSECT | K::ALL)
                }) && !matches!(lexemes.get(at + 1).map(|l| &l.token), Some(Token::LParen)) =>
            {
                self.put(Token::make_keyword("SELECT"), lexeme);
                self.put(Token::Mul, lexeme);
                self.put(Token::make_keyword("FROM"), lexeme);
                return Ok(at + 1);
            }
            K::FROM
                if previous.is_some_and(|p| matches!(p.keyword(), K::LEADING | K::TRAILING | K::BOTH)) =>
            {
                return Ok(at + 1);
            }
            K::FROM
                if previous.is_some_and(|p| p.token == Token::LParen)
                    && at > 1
                    && lexemes[at - 2].keyword() == K::TRIM =>
            {
                return Ok(at + 1);
            }
            K::TRIM if trims_list(lexemes, at) => {
                let name = if keyword(2) == K::LEADING { "ltrim" } else { "rtrim" };
                self.put(Token::make_word(name, None), lexeme);
                return Ok(at + 1);
            }
            K::LEADING | K::TRAILING if at > 1 && trims_list(lexemes, at - 2) => return Ok(at + 1),
            K::OPERATOR if previous.is_some_and(ends_operand) => {
                if let Some((name, end)) = operator_name(lexemes, at + 1) {
                    self.put(Token::CustomBinaryOperator(name), lexeme);
                    return Ok(end + 1);
                }
            }
            K::CONCURRENTLY
                if previous.is_some_and(|p| p.keyword() == K::INDEX) && lexemes[0].keyword() == K::DROP =>
            {
                return Ok(at + 1);
            }
            K::ROWS if keyword(1) == K::FROM => return unsupported("ROWS FROM"),
            K::CURRENT if keyword(1) == K::OF => return unsupported("WHERE CURRENT OF"),
            K::VARIADIC if previous.is_some_and(|p| matches!(p.token, Token::LParen | Token::Comma)) => {
                return unsupported("VARIADIC");
            }
            _ if lexeme.is_word("overriding") && overrides(&lexemes[at + 1..]) => {
                return unsupported("OVERRIDING");
            }
            _ if lexeme.is_word("isnull") && previous.is_some_and(ends_operand) => {
                self.put(Token::make_keyword("IS"), lexeme);
                self.put(Token::make_keyword("NULL"), lexeme);
                return Ok(at + 1);
            }
            _ => {}
        }
        self.out.push(lexeme.located());
        Ok(at + 1)
    }

    /// `FOR strength [OF a, b] [NOWAIT | SKIP LOCKED]`, one clause for each table.
    fn lock_clause(&mut self, lexemes: &[Lexeme], at: usize) -> Result<usize> {
        let lexeme = &lexemes[at];
        let keyword = |at: usize| lexemes.get(at).map_or(K::NoKeyword, Lexeme::keyword);
        let (strength, key_share, mut next) = match (keyword(at + 1), keyword(at + 2), keyword(at + 3)) {
            (K::NO, K::KEY, K::UPDATE) => (K::UPDATE, false, at + 4),
            (K::KEY, K::SHARE, _) => (K::SHARE, true, at + 3),
            (K::UPDATE | K::SHARE, _, _) => (keyword(at + 1), false, at + 2),
            _ => {
                self.out.push(lexeme.located());
                return Ok(at + 1);
            }
        };
        let mut tables: Vec<&[Lexeme]> = Vec::new();
        if keyword(next) == K::OF {
            next += 1;
            loop {
                let from = next;
                while lexemes.get(next).is_some_and(|l| {
                    matches!(l.token, Token::Word(_) | Token::Period)
                        && (!matches!(l.keyword(), K::NOWAIT | K::SKIP | K::FOR) || next == from)
                }) {
                    next += 1;
                }
                tables.push(&lexemes[from..next]);
                if lexemes.get(next).is_none_or(|l| l.token != Token::Comma) {
                    break;
                }
                next += 1;
            }
        }
        let wait_from = next;
        if keyword(next) == K::NOWAIT {
            next += 1;
        } else if keyword(next) == K::SKIP && keyword(next + 1) == K::LOCKED {
            next += 2;
        }
        let wait = &lexemes[wait_from..next];
        if follows_list(lexemes, at) {
            self.put(Token::make_keyword("WHERE"), lexeme);
            self.put(Token::make_keyword("TRUE"), lexeme);
        }
        if tables.is_empty() {
            tables.push(&[]);
        }
        for table in tables {
            self.put(Token::make_keyword("FOR"), lexeme);
            self.put(Token::make_keyword(if strength == K::UPDATE { "UPDATE" } else { "SHARE" }), lexeme);
            if key_share || !table.is_empty() {
                self.put(Token::make_keyword("OF"), lexeme);
            }
            if key_share {
                self.put(Token::make_word(KEY_SHARE, Some('"')), lexeme);
                if !table.is_empty() {
                    self.put(Token::Period, lexeme);
                }
            }
            self.out.extend(table.iter().chain(wait).map(Lexeme::located));
        }
        Ok(next)
    }
}

/// Whether a SELECT has nothing but its list before the lexeme of this number.
fn follows_list(lexemes: &[Lexeme], at: usize) -> bool {
    let mut closed = 0usize;
    for (before, lexeme) in lexemes[..at].iter().enumerate().rev() {
        match lexeme.token {
            Token::RParen => closed += 1,
            Token::LParen if closed == 0 => return false,
            Token::LParen => closed -= 1,
            _ if closed > 0 => {}
            _ => match lexeme.keyword() {
                K::SELECT => return true,
                K::FROM if before > 0 && lexemes[before - 1].keyword() == K::DISTINCT => {}
                K::FROM
                | K::WHERE
                | K::GROUP
                | K::HAVING
                | K::ORDER
                | K::LIMIT
                | K::OFFSET
                | K::FETCH
                | K::FOR
                    if before > 0 && !is_name(&lexemes[before - 1]) =>
                {
                    return false;
                }
                _ => {}
            },
        }
    }
    false
}

/// Whether `OVERRIDING` stands before this for what it is in an INSERT: elsewhere it is a name.
fn overrides(behind: &[Lexeme]) -> bool {
    let is = |at: usize, word: &str| behind.get(at).is_some_and(|lexeme| lexeme.is_word(word));
    (is(0, "system") || is(0, "user")) && is(1, "value")
}

/// Where the options of an identity column end that begin at this parenthesis, if there are some.
fn identity_end(lexemes: &[Lexeme], at: usize) -> Option<usize> {
    let before = |back: usize| at.checked_sub(back).map(|at| &lexemes[at]);
    let is_identity = lexemes[at].token == Token::LParen
        && before(1)?.is_word("identity")
        && before(2)?.keyword() == K::AS
        && matches!(before(3)?.keyword(), K::DEFAULT | K::ALWAYS);
    closing(lexemes, at).filter(|end| is_identity && *end > at + 1)
}

/// A token as text.
fn written(lexeme: &Lexeme) -> String {
    match &lexeme.token {
        Token::Word(word) if word.quote_style.is_some() => {
            format!("\"{}\"", word.value.replace('"', "\"\""))
        }
        token => token.to_string(),
    }
}

/// Whether what follows is a name, whatever word it is.
pub(super) fn is_name(before: &Lexeme) -> bool {
    before.token == Token::Period || before.keyword() == K::AS
}
