//! EXPLAIN.
use crate::bind::utility::ExplainOptions;
use crate::exec::NodeProfile;
use crate::physical::Statement;
use std::time::Duration;

/// What a run has measured.
#[derive(Debug)]
pub struct Run {
    /// By node.
    pub nodes: Vec<NodeProfile>,
    /// Time to plan.
    pub planning: Duration,
    /// Time to run.
    pub execution: Duration,
}

/// The text.
pub fn explain(statement: &Statement, options: &ExplainOptions, run: Option<&Run>) -> String {
    let _ = (statement, options, run);
    String::new()
}
