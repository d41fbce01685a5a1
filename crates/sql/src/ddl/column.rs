//! Columns: from syntax to the table's definition.

use super::constraint::Spec;
use super::sequence;
use super::{DdlContext, names, text};
use crate::bind::utility::SequenceOptions;
use crate::bind::{self, identifier};
use crate::catalog::{Column, ColumnNumber, Table};
use crate::{Error, Result, SqlState, Type};
use sqlparser::ast::{self, ColumnOption};

/// Columns of a table, at most.
pub(super) const MOST_COLUMNS: usize = 1600;

/// A column as it was written.
#[derive(Debug)]
pub(super) struct ColumnSpec {
    pub(super) name: String,
    pub(super) ty: Type,
    pub(super) modifier: i32,
    pub(super) not_null: bool,
    /// The default, as text.
    pub(super) default: Option<String>,
    /// A sequence of its own gives the default: serial and identity columns.
    pub(super) sequence: Option<SequenceOptions>,
    /// An identity column.
    pub(super) identity: bool,
    /// Constraints written beside the column.
    pub(super) constraints: Vec<Spec>,
}

/// The integer type that a serial type stands for.
fn serial(data_type: &ast::DataType) -> Option<Type> {
    let ast::DataType::Custom(name, modifiers) = data_type else { return None };
    let [ast::ObjectNamePart::Identifier(name)] = name.0.as_slice() else { return None };
    if !modifiers.is_empty() || name.quote_style.is_some() {
        return None;
    }
    match name.value.to_ascii_lowercase().as_str() {
        "smallserial" | "serial2" => Some(Type::Int2),
        "serial" | "serial4" => Some(Type::Int4),
        "bigserial" | "serial8" => Some(Type::Int8),
        _ => None,
    }
}

impl ColumnSpec {
    pub(super) fn new(definition: &ast::ColumnDef, table: &str) -> Result<Self> {
        let ast::ColumnDef { name, data_type, options } = definition;
        let name = identifier(name)?;
        let serial = serial(data_type);
        let (ty, modifier) = match serial {
            Some(ty) => (ty, -1),
            None => bind::bind_type(data_type)?,
        };
        if !ty.is_storable() {
            return Err(not_storable(&name, ty));
        }
        let sequence = serial.map(|ty| SequenceOptions { ty: Some(ty), ..SequenceOptions::default() });
        let mut spec = ColumnSpec {
            name,
            ty,
            modifier,
            not_null: serial.is_some(),
            default: None,
            sequence,
            identity: false,
            constraints: Vec::new(),
        };
        let mut null = None;
        for option in options {
            spec.option(option, table, &mut null)?;
        }
        if null == Some(true) && spec.not_null {
            return Err(spec.conflict("conflicting NULL/NOT NULL declarations", table));
        }
        Ok(spec)
    }

    fn conflict(&self, what: &str, table: &str) -> Error {
        Error::new(
            SqlState::SYNTAX_ERROR,
            format!("{what} for column \"{}\" of table \"{table}\"", self.name),
        )
    }

    /// `null`: whether NULL was said to be allowed, or refused.
    fn option(
        &mut self,
        definition: &ast::ColumnOptionDef,
        table: &str,
        null: &mut Option<bool>,
    ) -> Result<()> {
        let ast::ColumnOptionDef { name, option } = definition;
        let name = name.as_ref();
        match option {
            ColumnOption::Null | ColumnOption::NotNull => {
                let allowed = matches!(option, ColumnOption::Null);
                if null.is_some_and(|before| before != allowed) || allowed && self.identity {
                    return Err(self.conflict("conflicting NULL/NOT NULL declarations", table));
                }
                *null = Some(allowed);
                self.not_null |= !allowed;
            }
            ColumnOption::Default(value) => {
                if self.identity {
                    return Err(self.conflict("both default and identity specified", table));
                }
                if self.default.is_some() || self.sequence.is_some() {
                    return Err(self.conflict("multiple default values specified", table));
                }
                self.default = Some(value.to_string());
            }
            ColumnOption::PrimaryKey(key) => {
                if *null == Some(true) {
                    return Err(self.conflict("conflicting NULL/NOT NULL declarations", table));
                }
                self.constraints.push(Spec::of_primary(key, &self.name, name)?);
            }
            ColumnOption::Unique(key) => self.constraints.push(Spec::of_unique(key, &self.name, name)?),
            ColumnOption::ForeignKey(key) => {
                self.constraints.push(Spec::foreign(key, Some((&self.name, name)))?);
            }
            ColumnOption::Check(check) => self.constraints.push(Spec::check(check, name)?),
            ColumnOption::Collation(collation) => self.collation(collation)?,
            ColumnOption::Generated {
                generated_as,
                sequence_options,
                generation_expr,
                generation_expr_mode: _,
                generated_keyword: _,
            } => {
                if generation_expr.is_some() {
                    return Err(Error::unsupported("a generated column"));
                }
                self.identity(*generated_as, sequence_options.as_deref(), table)?;
            }
            ColumnOption::Materialized(_)
            | ColumnOption::Ephemeral(_)
            | ColumnOption::Alias(_)
            | ColumnOption::DialectSpecific(_)
            | ColumnOption::CharacterSet(_)
            | ColumnOption::Comment(_)
            | ColumnOption::OnUpdate(_)
            | ColumnOption::Options(_)
            | ColumnOption::Identity(_)
            | ColumnOption::OnConflict(_)
            | ColumnOption::Policy(_)
            | ColumnOption::Tags(_)
            | ColumnOption::Srid(_)
            | ColumnOption::Invisible => {
                return Err(Error::unsupported(format!("the column option {option}")));
            }
        }
        Ok(())
    }

    /// Strings are compared bytewise, which is what these collations mean.
    fn collation(&self, collation: &ast::ObjectName) -> Result<()> {
        let last =
            collation.0.last().and_then(ast::ObjectNamePart::as_ident).map(|ident| ident.value.as_str());
        if !matches!(self.ty, Type::Text | Type::Varchar | Type::Bpchar | Type::Name) {
            return Err(Error::new(
                SqlState::DATATYPE_MISMATCH,
                format!("collations are not supported by type {}", self.ty.name()),
            ));
        }
        match last {
            Some("C" | "POSIX" | "default" | "ucs_basic") => Ok(()),
            _ => Err(Error::unsupported(format!("the collation {collation}"))),
        }
    }

    fn identity(
        &mut self,
        kind: ast::GeneratedAs,
        options: Option<&[ast::SequenceOptions]>,
        table: &str,
    ) -> Result<()> {
        match kind {
            ast::GeneratedAs::ByDefault => {}
            ast::GeneratedAs::Always => {
                return Err(Error::unsupported("GENERATED ALWAYS AS IDENTITY")
                    .hint("GENERATED BY DEFAULT AS IDENTITY is supported."));
            }
            ast::GeneratedAs::ExpStored => return Err(Error::unsupported("a generated column")),
        }
        if self.identity {
            return Err(self.conflict("multiple identity specifications", table));
        }
        if self.default.is_some() || self.sequence.is_some() {
            return Err(self.conflict("both default and identity specified", table));
        }
        if !self.ty.is_integer() {
            let message = "identity column type must be smallint, integer, or bigint";
            return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
        }
        let mut sequence = sequence::options_of_ast(options.unwrap_or_default())?;
        sequence.ty = Some(self.ty);
        self.sequence = Some(sequence);
        self.identity = true;
        self.not_null = true;
        Ok(())
    }

    /// The column, with its sequence made. The default is bound, so that it is known to make sense.
    pub(super) fn finish(
        &self,
        context: &mut DdlContext<'_>,
        table: (u32, &str),
        owner: u32,
        number: ColumnNumber,
    ) -> Result<Column> {
        let (oid, table_name) = table;
        let default = match &self.sequence {
            Some(options) => {
                let name = match &options.name {
                    Some(name) => sequence::unused_name(context, name)?,
                    None => names::sequence(context.catalog, table_name, &self.name),
                };
                let mut sequence = sequence::define(context, name, options, owner)?;
                sequence.owned_by = Some((oid, number));
                sequence.identity = self.identity;
                Some(text::nextval(&context.put_sequence(sequence)?.name))
            }
            None => self.default.clone(),
        };
        let mut column = Column {
            number,
            name: self.name.clone(),
            ty: self.ty,
            modifier: self.modifier,
            not_null: self.not_null,
            default,
            missing: None,
        };
        if let Some(default) = &column.default {
            let default = context.define_default(&column, default)?;
            if self.sequence.is_none() {
                context.draw_from(&default)?;
            }
            column.default = Some(default);
        }
        Ok(column)
    }
}

/// Makes an identity column of one that is there: `ALTER COLUMN ADD GENERATED`.
pub(super) fn add_identity(
    context: &mut DdlContext<'_>,
    table: &mut Table,
    position: usize,
    kind: Option<ast::GeneratedAs>,
    options: Option<&[ast::SequenceOptions]>,
) -> Result<()> {
    let Column { name, ty, modifier, not_null, default, .. } = &table.columns[position];
    if !not_null {
        let message = format!(
            "column \"{name}\" of relation \"{}\" must be declared NOT NULL before identity can be added",
            table.name
        );
        return Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
    }
    if default.is_some() {
        let message = format!("column \"{name}\" of relation \"{}\" already has a default value", table.name);
        return Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
    }
    let mut spec = ColumnSpec {
        name: name.clone(),
        ty: *ty,
        modifier: *modifier,
        not_null: true,
        default: None,
        sequence: None,
        identity: false,
        constraints: Vec::new(),
    };
    spec.identity(kind.unwrap_or(ast::GeneratedAs::ByDefault), options, &table.name)?;
    let number = table.columns[position].number;
    let made = spec.finish(context, (table.oid, &table.name), table.owner, number)?;
    table.columns[position].default = made.default;
    Ok(())
}

fn not_storable(name: &str, ty: Type) -> Error {
    if matches!(ty, Type::Record | Type::Void | Type::Unknown) {
        let message = format!("column \"{name}\" has pseudo-type {}", ty.name());
        return Error::new(SqlState::INVALID_TABLE_DEFINITION, message);
    }
    Error::unsupported(format!("a column of type {}", ty.name()))
}

pub(super) fn no_column(column: &str, table: &str) -> Error {
    Error::new(
        SqlState::UNDEFINED_COLUMN,
        format!("column \"{column}\" of relation \"{table}\" does not exist"),
    )
}

pub(super) fn column_exists(column: &str, table: &str) -> Error {
    Error::new(
        SqlState::DUPLICATE_COLUMN,
        format!("column \"{column}\" of relation \"{table}\" already exists"),
    )
}

/// Names of columns that PostgreSQL keeps for itself.
pub(super) fn check_name(name: &str) -> Result<()> {
    if matches!(name, "ctid" | "xmin" | "xmax" | "cmin" | "cmax" | "tableoid") {
        let message = format!("column name \"{name}\" conflicts with a system column name");
        return Err(Error::new(SqlState::DUPLICATE_COLUMN, message));
    }
    Ok(())
}

pub(super) fn too_many() -> Error {
    Error::new(SqlState::TOO_MANY_COLUMNS, format!("tables can have at most {MOST_COLUMNS} columns"))
}
