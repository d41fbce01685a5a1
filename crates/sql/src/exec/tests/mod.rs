//! Operators on plans made by hand.

mod aggregates;
mod expressions;
mod functions;
mod joins;
mod long;
mod memory;
mod rows;
mod subqueries;

use super::*;
use crate::logical::{Comparison, SetOperation};
use crate::physical::{AggregateExpr, Estimate, Expr, Grouping, OrderBy, PlanColumn, Statement};
use crate::session::{Database, Interrupt, SessionState};
use crate::types::{NO_MODIFIER, Type};
use gannet_base::sim::Generator;
use gannet_io::sim::SimDisk;
use gannet_store::{CreateOptions, Engine, EngineOptions, OpenOptions, TransactionOptions};
use std::path::Path;
use std::rc::Rc;

/// A database without tables, and a session on it.
struct Ground {
    engine: Engine,
    transaction: RefCell<Transaction>,
    view: View,
    catalog: Arc<Catalog>,
    session: SessionState,
    cancel: AtomicBool,
}

/// Little enough for a thousand rows to be too many.
const TINY: u64 = 20 << 10;

thread_local! {
    /// One for all of a test, where it needs nothing of its own.
    static GROUND: Rc<Ground> = Rc::new(Ground::new());
}

impl Ground {
    fn shared() -> Rc<Self> {
        GROUND.with(Rc::clone)
    }

    fn new() -> Self {
        let folder = Some("/spill".into());
        let options = EngineOptions { memory: 64 << 20, temp_folder: folder };
        let engine = Engine::with_disk(Arc::new(SimDisk::new(1)), &options).unwrap();
        let path = Path::new("/data.gnt");
        let database =
            Database::create(&engine, path, &CreateOptions::default(), &OpenOptions::default(), "gannet")
                .unwrap();
        let mut transaction = database.store().begin(TransactionOptions::default());
        let view = transaction.view();
        let role = database.role("gannet").unwrap();
        let session = SessionState::new(database, &role, 1, Interrupt::default());
        Ground {
            engine,
            transaction: RefCell::new(transaction),
            view,
            catalog: Arc::default(),
            session,
            cancel: AtomicBool::new(false),
        }
    }

    /// Bytes that operators hold.
    fn work_memory(&self) -> u64 {
        self.engine.budget().used_for(gannet_base::memory::Purpose::Work)
    }

    fn environment(&self, work_bytes: u64) -> Environment<'_> {
        Environment {
            catalog: &self.catalog,
            view: &self.view,
            transaction: &self.transaction,
            session: &self.session,
            cancel: &self.cancel,
            work_bytes,
            read_only: false,
        }
    }

    /// Runs a statement to its end, and sees to it that everything was given back.
    fn run_with(&self, statement: Statement, work_bytes: u64, limit: usize) -> Result<Vec<Vec<Value>>> {
        let before = self.work_memory();
        let mut running = Running::new(Arc::new(statement), Vec::new(), true);
        let mut rows = Vec::new();
        let mut batch = Batch::new();
        let environment = self.environment(work_bytes);
        let result = loop {
            match running.next(&environment, limit, &mut batch) {
                Ok(true) => {
                    assert!(!batch.is_empty() && batch.len() <= limit);
                    rows.extend(batch.iter().map(<[Value]>::to_vec));
                }
                Ok(false) => break Ok(rows),
                Err(error) => break Err(error),
            }
        };
        drop(batch);
        assert_eq!(self.work_memory(), before, "memory was kept");
        assert_eq!(self.engine.temp_stats().open_files, 0, "files were kept");
        result
    }

    fn run(&self, plan: Plan) -> Result<Vec<Vec<Value>>> {
        self.run_with(statement(plan), u64::MAX, BATCH_ROWS)
    }

    /// The rows in memory, and again with hardly any: there must be files then. `ordered`: the rows' order counts.
    fn run_both(&self, plan: &Plan, ordered: bool) -> Vec<Vec<Value>> {
        let mut expected = self.run(plan.clone()).unwrap();
        let files = self.engine.temp_stats().files;
        for limit in [BATCH_ROWS, 7] {
            let mut spilled = self.run_with(statement(plan.clone()), TINY, limit).unwrap();
            if !ordered {
                expected.sort();
                spilled.sort();
            }
            assert!(expected == spilled, "{} and {} rows", expected.len(), spilled.len());
        }
        assert!(self.engine.temp_stats().files > files, "nothing was spilled");
        expected
    }
}

fn statement(root: Plan) -> Statement {
    with_subplans(root, Vec::new(), 0)
}

fn with_subplans(mut root: Plan, mut subplans: Vec<Plan>, slots: usize) -> Statement {
    let mut nodes = 0;
    number(&mut root, &mut nodes);
    subplans.iter_mut().for_each(|plan| number(plan, &mut nodes));
    Statement {
        root,
        subplans,
        slots,
        nodes,
        output: Vec::new(),
        writes: false,
        targets: Vec::new(),
        locked: Vec::new(),
    }
}

fn number(plan: &mut Plan, next: &mut usize) {
    plan.id = *next;
    *next += 1;
    match &mut plan.node {
        Node::Filter { input, .. }
        | Node::Project { input, .. }
        | Node::Aggregate { input, .. }
        | Node::Unique { input, .. }
        | Node::Sort { input, .. }
        | Node::Limit { input, .. } => number(input, next),
        Node::HashJoin { left, right, .. }
        | Node::NestedLoop { left, right, .. }
        | Node::Set { left, right, .. } => {
            number(left, next);
            number(right, next);
        }
        Node::Append(inputs) => inputs.iter_mut().for_each(|input| number(input, next)),
        _ => {}
    }
}

fn plan(node: Node, width: usize) -> Plan {
    let column = PlanColumn { name: String::new(), ty: Type::Int8, modifier: NO_MODIFIER };
    Plan { id: 0, node, columns: vec![column; width], estimate: Estimate::default() }
}

fn int(value: i64) -> Value {
    Value::Int(value)
}

fn ints<const N: usize>(values: [i64; N]) -> Vec<Value> {
    values.map(Value::Int).into()
}

fn literal(value: impl Into<Option<i64>>) -> Expr {
    Expr::Literal(value.into().map_or(Value::Null, Value::Int))
}

fn column(index: usize) -> Expr {
    Expr::Column(index)
}

fn compare(left: Expr, op: Comparison, right: Expr) -> Expr {
    Expr::Compare { op, left: Box::new(left), right: Box::new(right) }
}

fn equal(left: Expr, right: Expr) -> Expr {
    compare(left, Comparison::Equal, right)
}

fn values(rows: &[Vec<Value>]) -> Plan {
    let width = rows.first().map_or(1, Vec::len);
    let exprs = rows.iter().map(|row| row.iter().cloned().map(Expr::Literal).collect()).collect();
    plan(Node::Values(exprs), width)
}

fn no_rows(width: usize) -> Plan {
    plan(Node::Values(Arc::new([])), width)
}

/// Rows of one number each.
fn numbers(numbers: impl IntoIterator<Item = i64>) -> Plan {
    values(&numbers.into_iter().map(|number| vec![int(number)]).collect::<Vec<_>>())
}

fn filter(input: Plan, predicate: Expr) -> Plan {
    let width = input.columns.len();
    plan(Node::Filter { input: Box::new(input), predicate }, width)
}

fn sort(input: Plan, keys: Vec<OrderBy>, presorted: usize, top: Option<i64>) -> Plan {
    let width = input.columns.len();
    plan(Node::Sort { input: Box::new(input), keys, presorted, top: top.map(literal) }, width)
}

fn by(index: usize, descending: bool, nulls_first: bool) -> OrderBy {
    OrderBy { expr: column(index), descending, nulls_first }
}

fn limit(input: Plan, limit: Option<Expr>, offset: Option<Expr>) -> Plan {
    let width = input.columns.len();
    plan(Node::Limit { input: Box::new(input), limit, offset }, width)
}

fn group(input: Plan, grouping: Grouping, groups: Vec<Expr>, aggregates: Vec<AggregateExpr>) -> Plan {
    let width = groups.len() + aggregates.len();
    plan(Node::Aggregate { input: Box::new(input), grouping, groups, aggregates }, width)
}

fn set(operation: SetOperation, all: bool, left: Plan, right: Plan) -> Plan {
    let width = left.columns.len();
    plan(Node::Set { operation, all, left: Box::new(left), right: Box::new(right) }, width)
}

/// Rows of a number below `keys` (sometimes NULL), another one, and a text, in no order.
fn random_rows(seed: u64, count: usize, keys: u64) -> Vec<Vec<Value>> {
    let mut random = Generator::new(seed);
    (0..count)
        .map(|_| {
            let key = if random.one_in(50) { Value::Null } else { int(random.below(keys) as i64) };
            let text = format!(
                "text {} of any length: {}",
                random.below(keys),
                "x".repeat(random.below(60) as usize)
            );
            vec![key, int(random.next_u64() as i64 >> random.below(64)), Value::text(text)]
        })
        .collect()
}

/// The same with texts for keys.
fn with_text_keys(mut rows: Vec<Vec<Value>>) -> Vec<Vec<Value>> {
    for row in &mut rows {
        if let Value::Int(key) = row[0] {
            row[0] = Value::text(format!("key {key}"));
        }
    }
    rows
}

#[test]
fn a_portal_may_be_sent_to_another_thread() {
    fn is_send<T: Send>() {}
    is_send::<Running>();
}
