//! Subqueries within expressions.

/// State of a statement's subqueries: their operators, and the results of those that are run only once.
#[derive(Debug, Default)]
pub struct Subplans(());
