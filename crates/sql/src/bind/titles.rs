//! What PostgreSQL calls the columns of a result.

use super::binder::named;
use super::name_parts;
use sqlparser::ast::{self, Expr, SelectItem};

/// The name PostgreSQL gives a column without an alias; `None`: `?column?`.
pub(super) fn expression_name(expr: &Expr) -> Option<String> {
    let of_type = |data_type: &ast::DataType| {
        super::bind_type(data_type).ok().map(|(ty, _)| ty.internal_name().trim_start_matches('_').to_owned())
    };
    match expr {
        Expr::Identifier(ident) => {
            named(ident).ok().map(|(name, _)| match (ident.quote_style, name.as_str()) {
                (None, "current_catalog") => "current_catalog".to_owned(),
                _ => name,
            })
        }
        Expr::CompoundIdentifier(parts) => {
            parts.last().and_then(|part| named(part).ok()).map(|(name, _)| name)
        }
        Expr::CompoundFieldAccess { root, access_chain } => {
            let last = access_chain.iter().rev().find_map(|access| match access {
                ast::AccessExpr::Dot(field) => Some(field),
                ast::AccessExpr::Subscript(_) => None,
            });
            expression_name(last.unwrap_or(root))
        }
        Expr::Nested(nested) => expression_name(nested),
        Expr::Collate { expr, .. } => expression_name(expr),
        Expr::Function(function) => name_parts(&function.name).ok()?.pop(),
        // A weak name, as of a type or CASE, gives way to the type's.
        Expr::Cast { expr, data_type, .. } => match super::operators::inner(expr) {
            Expr::Cast { .. } if strong_name(expr).is_none() => of_type(data_type),
            Expr::TypedString(_) | Expr::Case { .. } | Expr::Subquery(_) => {
                strong_name(expr).or_else(|| of_type(data_type))
            }
            _ => expression_name(expr).or_else(|| of_type(data_type)),
        },
        Expr::TypedString(ast::TypedString { data_type, .. }) => of_type(data_type),
        Expr::Case { else_result, .. } => {
            else_result.as_deref().and_then(strong_name).or_else(|| Some("case".to_owned()))
        }
        Expr::Exists { negated: false, .. } => Some("exists".to_owned()),
        Expr::Subquery(query) => subquery_name(query),
        Expr::Array(_) => Some("array".to_owned()),
        Expr::Tuple(_) => Some("row".to_owned()),
        Expr::Extract { .. } => Some("extract".to_owned()),
        Expr::Position { .. } => Some("position".to_owned()),
        Expr::Substring { shorthand, .. } => Some(if *shorthand { "substr" } else { "substring" }.to_owned()),
        Expr::Overlay { .. } => Some("overlay".to_owned()),
        Expr::AtTimeZone { .. } => Some("timezone".to_owned()),
        Expr::Ceil { .. } => Some("ceil".to_owned()),
        Expr::Floor { .. } => Some("floor".to_owned()),
        Expr::Trim { trim_where, .. } => Some(
            match trim_where {
                None | Some(ast::TrimWhereField::Both) => "btrim",
                Some(ast::TrimWhereField::Leading) => "ltrim",
                Some(ast::TrimWhereField::Trailing) => "rtrim",
            }
            .to_owned(),
        ),
        _ => None,
    }
}

/// The name of a column or call within casts and CASE.
fn strong_name(expr: &Expr) -> Option<String> {
    match super::operators::inner(expr) {
        Expr::Cast { expr, .. } => strong_name(expr),
        Expr::Case { else_result, .. } => else_result.as_deref().and_then(strong_name),
        Expr::TypedString(_) => None,
        // Even one that says nothing.
        Expr::Subquery(query) => subquery_name(query).or_else(|| Some("?column?".to_owned())),
        other => expression_name(other),
    }
}

/// A scalar subquery is called like its column.
fn subquery_name(query: &ast::Query) -> Option<String> {
    let mut body = &*query.body;
    loop {
        match body {
            ast::SetExpr::Query(query) => body = &query.body,
            ast::SetExpr::SetOperation { left, .. } => body = left,
            ast::SetExpr::Select(select) => {
                return match select.projection.first()? {
                    SelectItem::UnnamedExpr(expr) => expression_name(expr),
                    SelectItem::ExprWithAlias { alias, .. } => named(alias).ok().map(|(name, _)| name),
                    _ => None,
                };
            }
            ast::SetExpr::Values(_) => return Some("column1".to_owned()),
            _ => return None,
        }
    }
}
