//! What binding knows while it goes through a statement: the columns in sight, parameters, places in the text.
//!
//! # Invariants
//! 1. A [`Level`] is one SELECT (or INSERT, UPDATE, DELETE). Names are looked up from the innermost level outwards.
//! 2. A column belongs to the level whose FROM clause shows it; `owners` says which. Aggregates are computed in the innermost level
//!    that a column of their arguments belongs to.
//! 3. An expression of type [`Type::Unknown`] is a string literal, NULL, or a parameter nobody has said anything of. It gets its type
//!    from where it stands, by [`Binder::coerce`] or [`Binder::settle`], before it becomes part of anything else.

use super::places::Places;
use super::tokens::position;
use super::{Bound, Scope, identifier};
use crate::catalog::{ColumnNumber, Table};
use crate::effort;
use crate::functions::TableFunction;
use crate::logical::{AggregateCall, ColumnId, ColumnInfo, Columns, Common, Planned, Scalar};
use crate::types::{Modifier, NO_MODIFIER, Type, Value};
use crate::{Error, Result, SqlState};
use sqlparser::ast;
use sqlparser::tokenizer::Span;
use std::collections::HashMap;
use std::sync::Arc;

/// An expression, with what is known of it.
#[derive(Clone, Debug)]
pub(super) struct Typed {
    pub(super) scalar: Scalar,
    pub(super) ty: Type,
    pub(super) modifier: Modifier,
    /// Where it begins.
    pub(super) position: Option<usize>,
}

impl Typed {
    pub(super) fn new(scalar: Scalar, ty: Type) -> Self {
        Typed { scalar, ty, modifier: NO_MODIFIER, position: None }
    }

    pub(super) fn literal(value: Value, ty: Type) -> Self {
        Typed::new(Scalar::Literal { value, ty }, ty)
    }

    pub(super) fn null() -> Self {
        Typed::literal(Value::Null, Type::Unknown)
    }

    pub(super) fn at(mut self, position: Option<usize>) -> Self {
        self.position = position;
        self
    }
}

/// Which part of a statement an expression stands in: decides what is allowed in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Clause {
    Select,
    From,
    JoinCondition,
    Where,
    GroupBy,
    Having,
    OrderBy,
    DistinctOn,
    Limit,
    Offset,
    Values,
    InsertValues,
    Update,
    Returning,
    Check,
    Default,
    Argument,
    Filter,
}

impl Clause {
    /// Its name in "aggregate functions are not allowed in ...".
    pub(super) fn name(self) -> &'static str {
        match self {
            Clause::Select => "SELECT",
            Clause::From => "functions in FROM",
            Clause::JoinCondition => "JOIN conditions",
            Clause::Where => "WHERE",
            Clause::GroupBy => "GROUP BY",
            Clause::Having => "HAVING",
            Clause::OrderBy => "ORDER BY",
            Clause::DistinctOn => "DISTINCT ON",
            Clause::Limit => "LIMIT",
            Clause::Offset => "OFFSET",
            Clause::Values | Clause::InsertValues => "VALUES",
            Clause::Update => "UPDATE",
            Clause::Returning => "RETURNING",
            Clause::Check => "check constraints",
            Clause::Default => "DEFAULT expressions",
            Clause::Argument => "EXECUTE parameters",
            Clause::Filter => "FILTER",
        }
    }

    /// Whether aggregates may stand there.
    pub(super) fn allows_aggregates(self) -> bool {
        matches!(self, Clause::Select | Clause::Having | Clause::OrderBy | Clause::DistinctOn)
    }
}

/// What kind of relation a FROM clause shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RelationKind {
    Table,
    System,
    Subquery,
    /// A WITH query.
    Common,
    Values,
    Function,
    Join,
}

/// A relation as names see it.
#[derive(Clone, Debug)]
pub(super) struct Visible {
    /// Its name or alias; `None`: its columns are seen only without one.
    pub(super) name: Option<String>,
    /// Its schema, where it has no alias.
    pub(super) schema: Option<String>,
    /// Its columns.
    pub(super) columns: Vec<(String, ColumnId)>,
    /// The table it is, for locks and primary keys.
    pub(super) table: Option<Arc<Table>>,
    /// What kind of relation it is.
    pub(super) kind: RelationKind,
    /// Whether an outer join may put NULLs in the place of its rows.
    pub(super) optional: bool,
    /// A column that is NULL only then, if there is one.
    pub(super) witness: Option<ColumnId>,
}

impl Visible {
    /// Whether no FROM clause may have both. Tables of the same name in different schemas are told apart by those.
    pub(super) fn is_called_as(&self, other: &Visible) -> bool {
        self.name == other.name
            && (self.schema == other.schema || self.schema.is_none() || other.schema.is_none())
    }
}

/// A FROM clause as names see it.
#[derive(Clone, Debug, Default)]
pub(super) struct Sight {
    /// For `t.a`.
    pub(super) relations: Vec<Visible>,
    /// For `a` and `*`, in order.
    pub(super) columns: Vec<(String, ColumnId)>,
}

/// A call of a table function in a SELECT list.
#[derive(Clone, Debug)]
pub(super) struct ListFunction {
    pub(super) function: &'static TableFunction,
    pub(super) arguments: Vec<Scalar>,
    pub(super) columns: Vec<ColumnId>,
    /// Where it stands.
    pub(super) position: Option<usize>,
}

/// One query level.
#[derive(Debug)]
pub(super) struct Level {
    pub(super) serial: u32,
    pub(super) clause: Clause,
    pub(super) sight: Sight,
    /// What a JOIN condition does not see, though it stands in the same FROM clause.
    pub(super) hidden: Vec<String>,
    /// The table that is changed, where FROM or USING is bound beside it: not even LATERAL sees it.
    pub(super) target: Option<String>,
    /// Whether `sight` may be used by what is bound now, a level further in: not by a subquery in FROM without LATERAL.
    pub(super) open: bool,
    /// Set when something in the FROM clause refers to columns on its left.
    pub(super) lateral_used: bool,
    /// Aggregates of this level, by the column that stands for them, and where the first of each stands.
    pub(super) aggregates: Vec<(ColumnId, AggregateCall, Option<usize>)>,
    /// Columns used outside of aggregates: which, where, and whether within a subquery.
    pub(super) uses: Vec<(ColumnId, Option<usize>, bool)>,
    pub(super) list_functions: Vec<ListFunction>,
}

/// A WITH query.
#[derive(Clone, Debug)]
pub(super) struct CommonTable<'a> {
    pub(super) name: String,
    pub(super) columns: Vec<String>,
    pub(super) query: &'a ast::Query,
    /// How many levels it sees.
    pub(super) levels: usize,
    /// How many of the WITH queries it sees.
    pub(super) tables: usize,
    /// Whether anything refers to it.
    pub(super) used: bool,
    /// What becomes of further uses. Known after the first one.
    pub(super) again: Again,
    /// Whether it is being bound: a reference to it is recursive then.
    pub(super) open: bool,
    /// Where its name stands.
    pub(super) position: Option<usize>,
}

/// What becomes of a further use of a WITH query.
#[derive(Clone, Debug)]
pub(super) enum Again {
    /// It computes the query anew, which gives the same rows.
    Anew,
    /// It gets the rows that the first one gets: others might come of computing the query anew.
    Shared(Arc<Common>),
    /// It is refused: others would come of computing the query anew. Says what is wrong with it.
    Refused(&'static str),
}

/// Goes through a statement.
#[derive(Debug)]
pub(super) struct Binder<'a> {
    pub(super) scope: &'a Scope<'a>,
    /// The statement's text, for places of operators.
    places: Option<Places<'a>>,
    pub(super) columns: Columns,
    /// The level of each column that some FROM clause shows.
    owners: HashMap<ColumnId, u32>,
    pub(super) levels: Vec<Level>,
    next_serial: u32,
    pub(super) common_tables: Vec<CommonTable<'a>>,
    pub(super) parameters: Vec<Type>,
    /// Whether `$n` may stand in the text.
    pub(super) allows_parameters: bool,
    /// Relations bound so far: WITH queries that use each other twice double with every step.
    pub(super) relations: usize,
    /// Queries that are being bound.
    pub(super) query_depth: usize,
    /// Dates and times among the literals of a definition: where each stands, and its text that means the same whatever the
    /// settings and the time. `None`: nobody asks.
    pub(super) times: Option<Vec<(usize, String)>>,
    /// What the expression of a definition mentions. `None`: nobody asks.
    pub(super) mentions: Option<Vec<Mention>>,
    /// Whether a query is bound that is not going to be run.
    pub(super) unused: bool,
    /// Levels whose columns were used since the query began that is being bound, one bit each.
    pub(super) used_levels: u128,
    /// Uses of volatile WITH queries so far.
    pub(super) volatile_uses: Vec<VolatileUse>,
}

/// A use of a WITH query that is volatile.
#[derive(Clone, Debug)]
pub(super) struct VolatileUse {
    pub(super) name: String,
    pub(super) position: Option<usize>,
    /// Levels around it whose columns it uses itself.
    pub(super) depends: u128,
}

/// Levels as bits of a set; those that are very deep count as one.
pub(super) fn level_bit(level: usize) -> u128 {
    1 << level.min(127)
}

/// The levels below a number.
pub(super) fn levels_below(level: usize) -> u128 {
    level_bit(level) - 1
}

/// What the expression of a definition names: a column of its table, or the table's row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mention {
    /// The column; `None`: the row, which has the table's name.
    pub(crate) column: Option<ColumnNumber>,
    /// Where its name begins, in characters from 1.
    pub(crate) at: Option<usize>,
    /// How many parts the name has: that of the table may stand in front.
    pub(crate) parts: usize,
}

/// Queries within queries, at most: WITH queries that use each other are nested, however flat they are written.
const MAX_QUERY_DEPTH: usize = 48;

/// Relations of a statement, at most.
const MAX_RELATIONS: usize = 2000;

impl<'a> Binder<'a> {
    pub(super) fn new(scope: &'a Scope<'a>, places: Option<Places<'a>>, parameters: &[Type]) -> Self {
        Binder {
            scope,
            places,
            columns: Columns::default(),
            owners: HashMap::new(),
            levels: Vec::new(),
            next_serial: 0,
            common_tables: Vec::new(),
            parameters: parameters.to_vec(),
            allows_parameters: true,
            relations: 0,
            query_depth: 0,
            times: None,
            mentions: None,
            unused: false,
            used_levels: 0,
            volatile_uses: Vec::new(),
        }
    }

    /// The statement with its columns and parameters.
    pub(super) fn finish(self, planned: Planned) -> Result<Bound> {
        super::known(&self.parameters)?;
        Ok(Bound { planned, columns: self.columns, parameters: self.parameters })
    }

    pub(super) fn push_level(&mut self, clause: Clause) {
        self.next_serial += 1;
        self.levels.push(Level {
            serial: self.next_serial,
            clause,
            sight: Sight::default(),
            hidden: Vec::new(),
            target: None,
            open: true,
            lateral_used: false,
            aggregates: Vec::new(),
            uses: Vec::new(),
            list_functions: Vec::new(),
        });
    }

    pub(super) fn pop_level(&mut self) -> Level {
        self.levels.pop().expect("levels are pushed and popped in pairs")
    }

    pub(super) fn level(&mut self) -> &mut Level {
        self.levels.last_mut().expect("there is a level")
    }

    /// Runs `body` with another clause.
    pub(super) fn within<T>(
        &mut self,
        clause: Clause,
        body: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let before = std::mem::replace(&mut self.level().clause, clause);
        let result = body(self);
        self.level().clause = before;
        result
    }

    pub(super) fn count_relation(&mut self) -> Result<()> {
        effort::made(1)?;
        self.relations += 1;
        if self.relations > MAX_RELATIONS {
            let message = format!("a statement of more than {MAX_RELATIONS} relations");
            return Err(Error::new(SqlState::STATEMENT_TOO_COMPLEX, message));
        }
        Ok(())
    }

    /// Counts a query within those being bound.
    pub(super) fn enter_query(&mut self) -> Result<()> {
        self.query_depth += 1;
        if self.query_depth > MAX_QUERY_DEPTH {
            let message = format!("queries within queries, more than {MAX_QUERY_DEPTH} deep");
            return Err(Error::new(SqlState::STATEMENT_TOO_COMPLEX, message));
        }
        Ok(())
    }

    pub(super) fn add_column(
        &mut self,
        name: &str,
        ty: Type,
        modifier: Modifier,
        nullable: bool,
    ) -> ColumnId {
        self.columns.add(ColumnInfo { name: name.to_owned(), ty, modifier, origin: None, nullable })
    }

    pub(super) fn add_table_columns(&mut self, table: &Table) -> Vec<ColumnId> {
        let add = |column: &crate::catalog::Column| {
            self.columns.add(ColumnInfo {
                name: column.name.clone(),
                ty: column.ty,
                modifier: column.modifier,
                origin: Some((table.oid, column.number)),
                nullable: !column.not_null,
            })
        };
        table.columns.iter().map(add).collect()
    }

    /// Shows a relation in the level's FROM clause.
    pub(super) fn show(&mut self, visible: Visible) {
        // They are in the list of all columns, in the relation's and in that of all in sight. Who binds what comes next passes an error on.
        let _ = effort::made(2 * visible.columns.len());
        let serial = self.level().serial;
        for (_, id) in &visible.columns {
            self.owners.insert(*id, serial);
        }
        let level = self.level();
        level.sight.columns.extend(visible.columns.iter().cloned());
        level.sight.relations.push(visible);
    }

    /// Says that a column, made by JOIN USING, is the level's.
    pub(super) fn own(&mut self, id: ColumnId) {
        let serial = self.level().serial;
        self.owners.insert(id, serial);
    }

    pub(super) fn owner(&self, id: ColumnId) -> Option<u32> {
        self.owners.get(&id).copied()
    }

    /// A column as an expression, noting that `level` (by number) has used it.
    pub(super) fn use_column(&mut self, level: usize, id: ColumnId, at: Option<usize>) -> Typed {
        let innermost = level + 1 == self.levels.len();
        self.used_levels |= level_bit(level);
        let shown = &mut self.levels[level];
        if shown.clause == Clause::From {
            shown.lateral_used = true;
        }
        shown.uses.push((id, at, !innermost));
        let info = self.columns.get(id);
        Typed { scalar: Scalar::Column(id), ty: info.ty, modifier: info.modifier, position: at }
    }

    /// Notes what was named; `column`: `None` for a relation's row.
    pub(super) fn mention(&mut self, column: Option<ColumnId>, at: Option<usize>, parts: usize) {
        let Some(mentions) = &mut self.mentions else { return };
        let origin = |id| self.columns.get(id).origin.map(|(_, number)| number);
        let mention = Mention { column: column.and_then(origin), at, parts };
        // An expression may be bound more than once.
        if !mentions.contains(&mention) {
            mentions.push(mention);
        }
    }

    /// The parameter `$n`.
    pub(super) fn parameter(&mut self, text: &str, at: Option<usize>) -> Result<Typed> {
        let number: usize = text.strip_prefix('$').and_then(|digits| digits.parse().ok()).unwrap_or(0);
        if number == 0 || number > usize::from(u16::MAX) || !self.allows_parameters {
            let error = Error::new(SqlState::UNDEFINED_PARAMETER, format!("there is no parameter {text}"));
            return Err(place(error, at));
        }
        if self.parameters.len() < number {
            self.parameters.resize(number, Type::Unknown);
        }
        let index = number - 1;
        let ty = self.parameters[index];
        Ok(Typed::new(Scalar::Parameter { index, ty }, ty).at(at))
    }

    /// The place of the operator behind an expression.
    pub(super) fn operator_place(&self, span: Span) -> Option<usize> {
        self.places.as_ref()?.behind(span)
    }

    /// The place of the parenthesis around an expression.
    pub(super) fn parenthesis_place(&self, span: Span) -> Option<usize> {
        self.places.as_ref()?.parenthesis(span)
    }

    /// The place of the operator before an expression.
    pub(super) fn prefix_place(&self, span: Span) -> Option<usize> {
        self.places.as_ref()?.before(span)
    }
}

/// Adds a place to an error, if there is one.
pub(super) fn place(error: Error, at: Option<usize>) -> Error {
    match at {
        Some(at) => error.at(at),
        None => error,
    }
}

/// A name as text, and where it stands.
pub(super) fn named(ident: &ast::Ident) -> Result<(String, Option<usize>)> {
    Ok((identifier(ident)?, position(ident.span)))
}
