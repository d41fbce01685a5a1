//! EXPLAIN: a plan for people, as text or JSON.
//!
//! The text is PostgreSQL's, with what this engine has of its own: an index join names the table that it looks up, `Look Ahead` tells that
//! rows are fetched in deep batches, and `Buffers` counts pages found in memory, pages waited for one by one, and pages asked for
//! ahead. Subplans stand below the node whose expressions use them.

use super::deparse::Names;
use crate::bind::utility::{ExplainFormat, ExplainOptions};
use crate::exec::NodeProfile;
use crate::logical::{JoinKind, SetOperation};
use crate::physical::{
    Access, AggregateExpr, Expr, Grouping, KeyRange, Node, Plan, PlanColumn, Statement, SubplanKind, children,
};
use crate::types::text::TextStyle;
use serde_json::{Map, Value as Json, json};
use std::fmt::Write as _;
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
    let style = TextStyle::default();
    let mut slots = vec![String::new(); statement.slots];
    let mut aliases: Vec<&str> = Vec::new();
    for plan in std::iter::once(&statement.root).chain(&statement.subplans) {
        gather_aliases(plan, &mut aliases);
    }
    let qualified = aliases.iter().any(|alias| *alias != aliases[0]);
    let mut shower =
        Shower { statement, options, run, style: &style, slots: &mut slots, commons: Vec::new(), qualified };
    let root = shower.node(&statement.root, None);
    let summary = options.summary.unwrap_or(run.is_some());
    match options.format {
        ExplainFormat::Text => {
            let mut out = String::new();
            root.text(None, &mut out);
            if let Some(run) = run.filter(|_| summary) {
                _ = writeln!(out, "Planning Time: {:.3} ms", millis(run.planning));
                _ = writeln!(out, "Execution Time: {:.3} ms", millis(run.execution));
            }
            out
        }
        ExplainFormat::Json => {
            let mut map = Map::new();
            map.insert("Plan".to_owned(), root.json());
            if let Some(run) = run.filter(|_| summary) {
                map.insert("Planning Time".to_owned(), json!(round(millis(run.planning))));
                map.insert("Execution Time".to_owned(), json!(round(millis(run.execution))));
            }
            serde_json::to_string_pretty(&Json::Array(vec![Json::Object(map)])).unwrap_or_default()
        }
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn round(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

/// A node as it is shown.
#[derive(Debug, Default)]
struct Shown {
    /// Its title in text, with its costs.
    title: String,
    /// What it is to its parent, where that is no plain input.
    label: Option<String>,
    /// Lines below the title.
    lines: Vec<(&'static str, String)>,
    /// Members of the JSON object.
    members: Map<String, Json>,
    children: Vec<Shown>,
}

impl Shown {
    fn line(&mut self, name: &'static str, text: String) {
        self.members.insert(name.to_owned(), Json::String(text.clone()));
        self.lines.push((name, text));
    }

    fn count(&mut self, name: &'static str, count: u64) {
        self.members.insert(name.to_owned(), json!(count));
        self.lines.push((name, count.to_string()));
    }

    /// As text; `indent`: where the parent's lines begin, none for the root.
    fn text(&self, indent: Option<usize>, out: &mut String) {
        let mut inner = 2;
        match indent {
            None => _ = writeln!(out, "{}", self.title),
            Some(mut indent) => {
                if let Some(label) = &self.label {
                    _ = writeln!(out, "{:indent$}{label}", "");
                    indent += 2;
                }
                _ = writeln!(out, "{:indent$}->  {}", "", self.title);
                inner = indent + 6;
            }
        }
        for (name, text) in &self.lines {
            _ = writeln!(out, "{:inner$}{name}: {text}", "");
        }
        for child in &self.children {
            child.text(Some(inner), out);
        }
    }

    fn json(&self) -> Json {
        let mut members = self.members.clone();
        if let Some(label) = &self.label {
            members.insert("Subplan Name".to_owned(), Json::String(label.clone()));
        }
        if !self.children.is_empty() {
            let plans = self.children.iter().map(Shown::json).collect();
            members.insert("Plans".to_owned(), Json::Array(plans));
        }
        Json::Object(members)
    }
}

/// A subquery in a node's expressions.
struct FoundSubplan {
    subplan: usize,
    /// What it takes from the node's row, by slot.
    bind: Vec<(usize, String)>,
    hashed: bool,
}

/// Makes nodes as they are shown.
struct Shower<'s> {
    statement: &'s Statement,
    options: &'s ExplainOptions,
    run: Option<&'s Run>,
    style: &'s TextStyle,
    /// What the slots stand for.
    slots: &'s mut Vec<String>,
    /// Subplans that several nodes read, as far as they were shown.
    commons: Vec<usize>,
    /// Whether there are several tables, so that columns are called with theirs.
    qualified: bool,
}

fn join_name(kind: JoinKind) -> &'static str {
    match kind {
        JoinKind::Inner => "",
        JoinKind::Left => " Left",
        JoinKind::Full => " Full",
        JoinKind::Semi => " Semi",
        JoinKind::Anti => " Anti",
    }
}

/// A name that needs quotes gets them.
fn quoted(name: &str) -> String {
    let plain = !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c == '_' || c.is_ascii_lowercase() || c.is_ascii_digit());
    if plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

fn on_table(name: &str, alias: &str) -> String {
    if name == alias || alias.is_empty() {
        quoted(name)
    } else {
        format!("{} {}", quoted(name), quoted(alias))
    }
}

/// The columns of the rows that an access gives.
fn access_columns(access: &Access) -> Vec<PlanColumn> {
    let mut columns: Vec<PlanColumn> = access
        .columns
        .iter()
        .map(|position| {
            let column = &access.table.columns[*position];
            let name = format!("{}.{}", access.alias, column.name);
            PlanColumn { name, ty: column.ty, modifier: column.modifier }
        })
        .collect();
    if access.identity {
        for name in ["key", "row"] {
            columns.push(PlanColumn { name: name.to_owned(), ty: crate::Type::Bytea, modifier: -1 });
        }
    }
    columns
}

/// The names under which tables stand in a plan.
fn gather_aliases<'s>(plan: &'s Plan, out: &mut Vec<&'s str>) {
    match &plan.node {
        Node::TableScan { access, .. } | Node::IndexScan { access, .. } | Node::IndexJoin { access, .. } => {
            out.push(&access.alias);
        }
        Node::SystemScan { alias, .. } | Node::CommonScan { alias, .. } => out.push(alias),
        _ => {}
    }
    children(plan).into_iter().for_each(|child| gather_aliases(child, out));
}

impl<'s> Shower<'s> {
    fn column_name(&self, access: &Access, number: crate::catalog::ColumnNumber) -> String {
        let name = access.table.column(number).map(|column| column.name.as_str()).unwrap_or_default();
        if self.qualified { format!("{}.{name}", access.alias) } else { name.to_owned() }
    }

    fn names<'n>(&'n self, row: &'n [PlanColumn]) -> Names<'n> {
        Names { row: row.iter().collect(), slots: self.slots, style: self.style, held: None }
    }

    fn node(&mut self, plan: &'s Plan, label: Option<String>) -> Shown {
        let mut shown = Shown { label, ..Shown::default() };
        let (kind, subject) = self.describe(plan, &mut shown);
        shown.members.insert("Node Type".to_owned(), Json::String(kind.clone()));
        shown.title = if subject.is_empty() { kind } else { format!("{kind} {subject}") };
        self.costs(plan, &mut shown);
        if self.options.verbose {
            let output: Vec<&str> = plan.columns.iter().map(|column| column.name.as_str()).collect();
            shown.lines.insert(0, ("Output", output.join(", ")));
            shown.members.insert("Output".to_owned(), json!(output));
        }
        self.measured(plan, &mut shown);
        if let Node::NestedLoop { left, right, bind, .. } = &plan.node {
            let first = self.node(left, None);
            for (slot, expr) in bind {
                let text = self.names(&left.columns).text(expr);
                self.slots[*slot] = text;
            }
            let second = self.node(right, None);
            shown.children.extend([first, second]);
        } else {
            for child in children(plan) {
                let child = self.node(child, None);
                shown.children.push(child);
            }
        }
        self.subplans(plan, &mut shown);
        shown
    }

    fn costs(&self, plan: &Plan, shown: &mut Shown) {
        let estimate = &plan.estimate;
        if self.options.costs {
            let (startup, total) = (estimate.startup, estimate.total);
            // The sum of no widths is -0.
            let (rows, width) = (estimate.rows.round(), estimate.width.round() + 0.0);
            _ = write!(shown.title, "  (cost={startup:.2}..{total:.2} rows={rows:.0} width={width:.0})");
            shown.members.insert("Startup Cost".to_owned(), json!((startup * 100.0).round() / 100.0));
            shown.members.insert("Total Cost".to_owned(), json!((total * 100.0).round() / 100.0));
            shown.members.insert("Plan Rows".to_owned(), json!(rows as i64));
            shown.members.insert("Plan Width".to_owned(), json!(width as i64));
        }
    }

    /// What a run has measured of a node.
    fn measured(&self, plan: &Plan, shown: &mut Shown) {
        let Some(profile) = self.run.and_then(|run| run.nodes.get(plan.id)) else { return };
        if profile.loops == 0 {
            shown.title.push_str(" (never executed)");
            shown.members.insert("Actual Loops".to_owned(), json!(0));
            return;
        }
        let loops = profile.loops as f64;
        let rows = profile.rows as f64 / loops;
        let per_loop = |nanos: u64| nanos as f64 / 1.0e6 / loops;
        let (first, all) = (per_loop(profile.first_row_ns), per_loop(profile.total_ns));
        if self.options.timing.unwrap_or(true) {
            _ = write!(
                shown.title,
                " (actual time={first:.3}..{all:.3} rows={rows:.0} loops={})",
                profile.loops
            );
            shown.members.insert("Actual Startup Time".to_owned(), json!(round(first)));
            shown.members.insert("Actual Total Time".to_owned(), json!(round(all)));
        } else {
            _ = write!(shown.title, " (actual rows={rows:.0} loops={})", profile.loops);
        }
        shown.members.insert("Actual Rows".to_owned(), json!(rows.round() as i64));
        shown.members.insert("Actual Loops".to_owned(), json!(profile.loops));
        if profile.rows_removed > 0 {
            shown.count("Rows Removed by Filter", profile.rows_removed / profile.loops);
        }
        if profile.helpers > 0 {
            shown.count("Workers Launched", profile.helpers.div_ceil(profile.loops));
        }
        if profile.memory_bytes > 0 {
            shown.members.insert("Memory Usage".to_owned(), json!(profile.memory_bytes.div_ceil(1024)));
            shown.lines.push(("Memory", format!("{}kB", profile.memory_bytes.div_ceil(1024))));
        }
        if profile.spilled_bytes > 0 {
            shown.members.insert("Disk Usage".to_owned(), json!(profile.spilled_bytes.div_ceil(1024)));
            shown.lines.push(("Disk", format!("{}kB", profile.spilled_bytes.div_ceil(1024))));
        }
        if self.options.buffers.unwrap_or(false) {
            self.buffers(profile, shown);
        }
    }

    fn buffers(&self, profile: &NodeProfile, shown: &mut Shown) {
        let counts = [
            ("hits", "Hits", profile.hits),
            ("serial reads", "Serial Reads", profile.serial_reads),
            ("batched reads", "Batched Reads", profile.batched_reads),
        ];
        let mut parts = Vec::new();
        for (name, member, count) in counts {
            shown.members.insert(member.to_owned(), json!(count));
            if count > 0 {
                parts.push(format!("{name}={count}"));
            }
        }
        if !parts.is_empty() {
            shown.lines.push(("Buffers", parts.join(" ")));
        }
    }

    fn condition(&self, name: &'static str, expr: Option<&Expr>, row: &[PlanColumn], shown: &mut Shown) {
        if let Some(expr) = expr {
            let text = self.names(row).condition(expr);
            shown.line(name, text);
        }
    }

    /// A node's name and what it is about; its expressions become lines.
    fn describe(&mut self, plan: &'s Plan, shown: &mut Shown) -> (String, String) {
        let nothing = String::new;
        match &plan.node {
            Node::One => ("Result".to_owned(), nothing()),
            Node::Values(_) => ("Values Scan".to_owned(), "on \"*VALUES*\"".to_owned()),
            Node::TableScan { access, range, backward } => {
                self.table_scan(plan, access, range.as_deref(), *backward, shown)
            }
            Node::IndexScan { .. } => self.index_scan(plan, shown),
            Node::SystemScan { table, alias, filter, .. } => {
                self.relation(table.name, alias, shown);
                self.condition("Filter", filter.as_ref(), &plan.columns, shown);
                ("Seq Scan".to_owned(), format!("on {}", on_table(table.name, alias)))
            }
            Node::CommonScan { name, alias, .. } => {
                shown.members.insert("CTE Name".to_owned(), json!(name));
                shown.members.insert("Alias".to_owned(), json!(alias));
                ("CTE Scan".to_owned(), format!("on {}", on_table(name, alias)))
            }
            Node::FunctionScan { function, arguments, .. } => {
                let call = format!("{}({})", function.name, self.names(&[]).all(arguments));
                shown.members.insert("Function Name".to_owned(), json!(function.name));
                if self.options.verbose {
                    shown.line("Function Call", call);
                }
                ("Function Scan".to_owned(), format!("on {}", function.name))
            }
            Node::Filter { input, predicate } => {
                self.condition("Filter", Some(predicate), &input.columns, shown);
                ("Filter".to_owned(), nothing())
            }
            Node::Project { input, exprs } => {
                if self.options.verbose {
                    let text = self.names(&input.columns).all(exprs);
                    shown.line("Expressions", text);
                }
                ("Project".to_owned(), nothing())
            }
            Node::IndexJoin { .. } => self.index_join(plan, shown),
            Node::HashJoin { .. } | Node::NestedLoop { .. } => self.join(plan, shown),
            Node::Aggregate { .. } => self.aggregate(plan, shown),
            Node::Unique { input, keys } => {
                let text = self.names(&input.columns).all(keys);
                shown.line("Key", text);
                ("Unique".to_owned(), nothing())
            }
            Node::Sort { input, keys, presorted, top } => {
                let names = self.names(&input.columns);
                let text = names.order(keys);
                let first = names.order(&keys[..*presorted]);
                let top = top.as_ref().map(|top| self.names(&[]).text(top));
                shown.line("Sort Key", text);
                if *presorted > 0 {
                    shown.line("Presorted Key", first);
                }
                if let Some(top) = top {
                    shown.line("Top", top);
                }
                (if *presorted > 0 { "Incremental Sort" } else { "Sort" }.to_owned(), nothing())
            }
            Node::Limit { .. } => ("Limit".to_owned(), nothing()),
            Node::Append(_) => ("Append".to_owned(), nothing()),
            Node::Set { operation, all, .. } => {
                let name = match operation {
                    SetOperation::Union => "HashSetOp Union",
                    SetOperation::Except => "HashSetOp Except",
                    SetOperation::Intersect => "HashSetOp Intersect",
                };
                (format!("{name}{}", if *all { " All" } else { "" }), nothing())
            }
            Node::LockRows { .. } => ("LockRows".to_owned(), nothing()),
            Node::Insert { insert, .. } => {
                ("Insert".to_owned(), format!("on {}", quoted(&insert.table.name)))
            }
            Node::Update { update, .. } => {
                ("Update".to_owned(), format!("on {}", quoted(&update.target.table.name)))
            }
            Node::Delete { delete, .. } => {
                ("Delete".to_owned(), format!("on {}", quoted(&delete.target.table.name)))
            }
        }
    }

    fn relation(&self, name: &str, alias: &str, shown: &mut Shown) {
        shown.members.insert("Relation Name".to_owned(), json!(name));
        shown.members.insert("Alias".to_owned(), json!(alias));
    }

    fn table_scan(
        &self,
        plan: &Plan,
        access: &Access,
        range: Option<&KeyRange>,
        backward: bool,
        shown: &mut Shown,
    ) -> (String, String) {
        self.relation(&access.table.name, &access.alias, shown);
        let on = format!("on {}", on_table(&access.table.name, &access.alias));
        let direction = if backward { " Backward" } else { "" };
        let key = access.table.primary();
        let result = match (range, key) {
            (Some(range), Some(key)) => {
                let names: Vec<String> =
                    key.columns.iter().map(|part| self.column_name(access, part.column)).collect();
                self.range(range, &names, shown);
                shown.members.insert("Index Name".to_owned(), json!(key.name));
                (format!("Index Scan{direction}"), format!("using {} {on}", quoted(&key.name)))
            }
            _ => (format!("Seq Scan{direction}"), on),
        };
        self.condition("Filter", access.filter.as_ref(), &plan.columns, shown);
        result
    }

    fn index_scan(&self, plan: &Plan, shown: &mut Shown) -> (String, String) {
        let Node::IndexScan { access, index, range, backward, index_only, look_ahead } = &plan.node else {
            return Default::default();
        };
        let index = &access.table.indexes[*index];
        self.relation(&access.table.name, &access.alias, shown);
        shown.members.insert("Index Name".to_owned(), json!(index.name));
        let names: Vec<String> =
            index.columns.iter().map(|part| self.column_name(access, part.column)).collect();
        self.range(range, &names, shown);
        self.condition("Filter", access.filter.as_ref(), &plan.columns, shown);
        if *look_ahead && !index_only {
            shown.line("Look Ahead", "on".to_owned());
        }
        let name = if *index_only { "Index Only Scan" } else { "Index Scan" };
        let direction = if *backward { " Backward" } else { "" };
        let on = on_table(&access.table.name, &access.alias);
        (format!("{name}{direction}"), format!("using {} on {on}", quoted(&index.name)))
    }

    fn range(&self, range: &KeyRange, names: &[String], shown: &mut Shown) {
        let mut parts = Vec::new();
        let types = self.names(&[]);
        for (name, expr) in names.iter().zip(&range.equal) {
            parts.push(format!("({name} = {})", types.text(expr)));
        }
        let rest = names.get(range.equal.len()..).unwrap_or_default();
        for (bound, sign) in [(&range.lower, '>'), (&range.upper, '<')] {
            let Some((exprs, included)) = bound else { continue };
            let equal = if *included { "=" } else { "" };
            parts.push(match (&rest[..exprs.len().min(rest.len())], types.all(exprs)) {
                ([name], value) => format!("({name} {sign}{equal} {value})"),
                (names, values) => format!("(ROW({}) {sign}{equal} ROW({values}))", names.join(", ")),
            });
        }
        if let Some(name) = rest.first() {
            if let Some(pattern) = &range.like {
                parts.push(format!("({name} ~~ {})", types.text(pattern)));
            }
            if range.is_null {
                parts.push(format!("({name} IS NULL)"));
            }
            if range.not_null {
                parts.push(format!("({name} IS NOT NULL)"));
            }
        }
        match parts.len() {
            0 => {}
            1 => shown.line("Index Cond", parts.remove(0)),
            _ => shown.line("Index Cond", format!("({})", parts.join(" AND "))),
        }
    }

    fn index_join(&self, plan: &Plan, shown: &mut Shown) -> (String, String) {
        let Node::IndexJoin { kind, outer, access, index, index_only, keys, residual, look_ahead } =
            &plan.node
        else {
            return Default::default();
        };
        let definition = match index {
            Some(index) => access.table.indexes.get(*index),
            None => access.table.primary(),
        };
        let inner = match kind {
            JoinKind::Semi | JoinKind::Anti => access_columns(access),
            _ => plan.columns[outer.columns.len()..].to_vec(),
        };
        self.relation(&access.table.name, &access.alias, shown);
        let name = definition.map(|index| index.name.clone()).unwrap_or_default();
        shown.members.insert("Index Name".to_owned(), json!(name));
        shown.members.insert("Join Type".to_owned(), json!(format!("{kind:?}")));
        let names = self.names(&outer.columns);
        let parts: Vec<String> = definition
            .iter()
            .flat_map(|index| &index.columns)
            .zip(keys)
            .map(|(part, key)| format!("({} = {})", self.column_name(access, part.column), names.text(key)))
            .collect();
        let text = if parts.len() == 1 { parts.concat() } else { format!("({})", parts.join(" AND ")) };
        shown.line("Index Cond", text);
        self.condition("Filter", access.filter.as_ref(), &inner, shown);
        let both: Vec<PlanColumn> = outer.columns.iter().cloned().chain(inner).collect();
        self.condition("Join Filter", residual.as_ref(), &both, shown);
        if *look_ahead {
            shown.line("Look Ahead", "on".to_owned());
        }
        let only = if *index_only { " Only" } else { "" };
        let on = on_table(&access.table.name, &access.alias);
        (format!("Index{only}{} Join", join_name(*kind)), format!("using {} on {on}", quoted(&name)))
    }

    fn join(&self, plan: &Plan, shown: &mut Shown) -> (String, String) {
        match &plan.node {
            Node::HashJoin { kind, left, right, left_keys, right_keys, residual } => {
                let (a, b) = (self.names(&left.columns), self.names(&right.columns));
                let parts: Vec<String> = left_keys
                    .iter()
                    .zip(right_keys)
                    .map(|(x, y)| format!("({} = {})", a.text(x), b.text(y)))
                    .collect();
                let text =
                    if parts.len() == 1 { parts.concat() } else { format!("({})", parts.join(" AND ")) };
                shown.line("Hash Cond", text);
                shown.members.insert("Join Type".to_owned(), json!(format!("{kind:?}")));
                let both: Vec<PlanColumn> = left.columns.iter().chain(&right.columns).cloned().collect();
                self.condition("Join Filter", residual.as_ref(), &both, shown);
                (format!("Hash{} Join", join_name(*kind)), String::new())
            }
            Node::NestedLoop { kind, left, right, condition, .. } => {
                shown.members.insert("Join Type".to_owned(), json!(format!("{kind:?}")));
                let both: Vec<PlanColumn> = left.columns.iter().chain(&right.columns).cloned().collect();
                self.condition("Join Filter", condition.as_ref(), &both, shown);
                let suffix = if *kind == JoinKind::Inner { "" } else { " Join" };
                (format!("Nested Loop{}{suffix}", join_name(*kind)), String::new())
            }
            _ => Default::default(),
        }
    }

    fn aggregate(&self, plan: &Plan, shown: &mut Shown) -> (String, String) {
        let Node::Aggregate { input, grouping, groups, aggregates } = &plan.node else {
            return Default::default();
        };
        let names = self.names(&input.columns);
        if !groups.is_empty() {
            let text = names.all(groups);
            shown.line("Group Key", text);
        }
        if self.options.verbose && !aggregates.is_empty() {
            let list: Vec<String> = aggregates.iter().map(|call| aggregate_text(call, &names)).collect();
            shown.line("Aggregates", list.join(", "));
        }
        let name = match grouping {
            Grouping::Single => "Aggregate",
            Grouping::Hash => "HashAggregate",
            Grouping::Sorted if aggregates.is_empty() => "Group",
            Grouping::Sorted => "GroupAggregate",
        };
        (name.to_owned(), String::new())
    }

    /// The subplans of a node's expressions, and the one whose rows it reads, where that one is first read.
    fn subplans(&mut self, plan: &'s Plan, shown: &mut Shown) {
        if let Node::CommonScan { subplan, name, .. } = &plan.node
            && !self.commons.contains(subplan)
            && let Some(inner) = self.statement.subplans.get(*subplan)
        {
            self.commons.push(*subplan);
            let child = self.node(inner, Some(format!("CTE {name}")));
            shown.children.push(child);
        }
        let row: Vec<PlanColumn> = match &plan.node {
            Node::IndexJoin { outer, access, kind: JoinKind::Semi | JoinKind::Anti, .. } => {
                outer.columns.iter().cloned().chain(access_columns(access)).collect()
            }
            Node::TableScan { .. }
            | Node::IndexScan { .. }
            | Node::SystemScan { .. }
            | Node::IndexJoin { .. } => plan.columns.clone(),
            _ => children(plan).into_iter().flat_map(|child| child.columns.iter().cloned()).collect(),
        };
        let mut found: Vec<FoundSubplan> = Vec::new();
        for expr in node_exprs(plan) {
            self.find_subplans(expr, &row, &mut found);
        }
        for FoundSubplan { subplan, bind, hashed } in found {
            let once = bind.is_empty();
            // One that takes nothing from outside may be asked for at several places, and is run at the first of them.
            if once && self.commons.contains(&subplan) {
                continue;
            }
            self.commons.push(subplan);
            for (slot, text) in bind {
                self.slots[slot] = text;
            }
            let label = if once && !hashed { "InitPlan" } else { "SubPlan" };
            let Some(inner) = self.statement.subplans.get(subplan) else { continue };
            let child = self.node(inner, Some(format!("{label} {}", subplan + 1)));
            shown.children.push(child);
        }
    }

    fn find_subplans(&self, expr: &Expr, row: &[PlanColumn], out: &mut Vec<FoundSubplan>) {
        if let Expr::Subquery { subplan, bind, kind } = expr {
            let names = self.names(row);
            let bind = bind.iter().map(|(slot, expr)| (*slot, names.text(expr))).collect();
            let hashed = matches!(kind, SubplanKind::Quantified { .. });
            out.push(FoundSubplan { subplan: *subplan, bind, hashed });
        }
        expr_parts(expr, &mut |part| self.find_subplans(part, row, out));
    }
}

fn aggregate_text(call: &AggregateExpr, names: &Names<'_>) -> String {
    let arguments = if call.arguments.is_empty() { "*".to_owned() } else { names.all(&call.arguments) };
    let distinct = if call.distinct { "DISTINCT " } else { "" };
    let mut out = format!("{}({distinct}{arguments}", call.aggregate.name);
    if !call.order.is_empty() {
        _ = write!(out, " ORDER BY {}", names.order(&call.order));
    }
    out.push(')');
    if let Some(filter) = &call.filter {
        _ = write!(out, " FILTER (WHERE {})", names.text(filter));
    }
    out
}

/// Every expression of a node, its inputs' left out.
fn node_exprs(plan: &Plan) -> Vec<&Expr> {
    fn range(range: &KeyRange) -> impl Iterator<Item = &Expr> {
        let bounds = range.lower.iter().chain(&range.upper).flat_map(|(exprs, _)| exprs);
        range.equal.iter().chain(bounds).chain(&range.like)
    }
    match &plan.node {
        Node::One | Node::CommonScan { .. } | Node::Append(_) | Node::Set { .. } => Vec::new(),
        Node::Values(rows) => rows.iter().flatten().collect(),
        Node::TableScan { access, range: keys, .. } => {
            keys.iter().flat_map(|keys| range(keys)).chain(&access.filter).collect()
        }
        Node::IndexScan { access, range: keys, .. } => range(keys).chain(&access.filter).collect(),
        Node::SystemScan { filter, .. } => filter.iter().collect(),
        Node::FunctionScan { arguments, .. } => arguments.iter().collect(),
        Node::Filter { predicate, .. } => vec![predicate],
        Node::Project { exprs, .. } => exprs.iter().collect(),
        Node::IndexJoin { access, keys, residual, .. } => {
            keys.iter().chain(&access.filter).chain(residual).collect()
        }
        Node::HashJoin { left_keys, right_keys, residual, .. } => {
            left_keys.iter().chain(right_keys).chain(residual).collect()
        }
        Node::NestedLoop { bind, condition, .. } => {
            bind.iter().map(|(_, expr)| expr).chain(condition).collect()
        }
        Node::Aggregate { groups, aggregates, .. } => groups
            .iter()
            .chain(aggregates.iter().flat_map(|call| {
                call.arguments.iter().chain(&call.filter).chain(call.order.iter().map(|key| &key.expr))
            }))
            .collect(),
        Node::Unique { keys, .. } => keys.iter().collect(),
        Node::Sort { keys, top, .. } => keys.iter().map(|key| &key.expr).chain(top).collect(),
        Node::Limit { limit, offset, .. } => limit.iter().chain(offset).collect(),
        Node::LockRows { recheck, .. } => recheck.exprs().collect(),
        Node::Insert { insert, .. } => insert
            .values
            .iter()
            .chain(insert.checks.iter().map(|(_, expr)| expr))
            .chain(insert.returning.iter().flatten())
            .collect(),
        Node::Update { update, .. } => update
            .recheck
            .iter()
            .chain(update.assignments.iter().map(|(_, expr)| expr))
            .chain(update.checks.iter().map(|(_, expr)| expr))
            .chain(update.returning.iter().flatten())
            .collect(),
        Node::Delete { delete, .. } => {
            delete.recheck.iter().chain(delete.returning.iter().flatten()).collect()
        }
    }
}

/// Calls `f` with the parts of an expression.
fn expr_parts<'e>(expr: &'e Expr, f: &mut dyn FnMut(&'e Expr)) {
    match expr {
        Expr::Literal(_) | Expr::Column(_) | Expr::Parameter(_) | Expr::Slot(_) | Expr::Held => {}
        Expr::Call { arguments, .. } | Expr::Extreme { arguments, .. } => arguments.iter().for_each(f),
        Expr::Cast { argument, .. } | Expr::IsBool { argument, .. } | Expr::InSet { argument, .. } => {
            f(argument)
        }
        Expr::Not(argument) | Expr::IsNull(argument) => f(argument),
        Expr::And(list) | Expr::Or(list) | Expr::Coalesce(list) | Expr::Row { elements: list, .. } => {
            list.iter().for_each(f)
        }
        Expr::Compare { left, right, .. } => {
            f(left);
            f(right);
        }
        Expr::CompareRows { left, right, .. } => left.iter().chain(right).for_each(f),
        Expr::Case { branches, otherwise } => {
            for (condition, value) in branches {
                f(condition);
                f(value);
            }
            f(otherwise);
        }
        Expr::Hold { value, body } => {
            f(value);
            f(body);
        }
        Expr::InList { argument, list } => {
            f(argument);
            list.iter().for_each(f);
        }
        Expr::Quantified { argument, array, .. } => {
            f(argument);
            f(array);
        }
        Expr::Array { elements, .. } => elements.iter().for_each(f),
        Expr::Subscript { array, index } => {
            f(array);
            f(index);
        }
        Expr::Subquery { bind, kind, .. } => {
            bind.iter().for_each(|(_, expr)| f(expr));
            if let SubplanKind::Quantified { arguments, .. } = kind {
                arguments.iter().for_each(f);
            }
        }
    }
}
