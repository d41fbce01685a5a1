//! Operators on a real store, on plans made by hand.

mod foreign;
mod reading;
mod together;
mod writing;

use super::super::{BATCH_ROWS, Batch, Environment, NodeProfile, Running};
use crate::catalog::{
    Catalog, Column, ColumnNumber, ForeignKey, Index, IndexColumn, Layout, Oid, ReferentialAction, Storage,
    Table, TableKey,
};
use crate::logical::Comparison;
use crate::physical::{self, Access, Checks, Estimate, Expr, Node, Plan, PlanColumn, Statement, Target};
use crate::session::{Database, Interrupt, SessionState};
use crate::types::{NO_MODIFIER, Type, Value};
use crate::{Error, Result};
use gannet_io::sim::SimDisk;
use gannet_store::{CreateOptions, Engine, EngineOptions, OpenOptions, Transaction, TransactionOptions};
use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A database, and what it is said to contain.
struct Ground {
    database: Database,
    catalog: Arc<Catalog>,
}

/// A session's transaction.
struct Session<'g> {
    ground: &'g Ground,
    transaction: RefCell<Transaction>,
    state: SessionState,
    cancel: AtomicBool,
}

impl Ground {
    /// A database with these tables; references to them are entered.
    fn new(mut tables: Vec<Table>) -> Self {
        let options = EngineOptions { memory: 32 << 20, ..EngineOptions::default() };
        let engine = Engine::with_disk(Arc::new(SimDisk::new(1)), &options).unwrap();
        let create = CreateOptions { page_size: 4096, segment_size: 1 << 20 };
        let database =
            Database::create(&engine, Path::new("/data.gnt"), &create, &OpenOptions::default(), "gannet")
                .unwrap();
        let mut transaction = database.store().begin(TransactionOptions::default());
        for child in 0..tables.len() {
            for key in tables[child].foreign_keys.clone() {
                let oid = tables[child].oid;
                let parent = tables.iter_mut().find(|table| table.oid == key.parent).unwrap();
                if !parent.referenced_by.contains(&oid) {
                    parent.referenced_by.push(oid);
                }
            }
        }
        for table in &tables {
            transaction.create_tree(&table.storage.name).unwrap();
            for index in table.indexes.iter().filter(|index| !index.primary) {
                transaction.create_tree(&index.storage.name).unwrap();
            }
        }
        transaction.commit().unwrap();
        let mut catalog = Catalog::default();
        for table in tables {
            catalog.tables.insert(table.oid, Arc::new(table));
        }
        Ground { database, catalog: Arc::new(catalog) }
    }

    /// Closes the database and opens it anew: nothing is in memory.
    fn reopen(self) -> Ground {
        let engine = self.database.store().engine().clone();
        self.database.close().unwrap();
        // Nor does anybody fetch what was.
        let hot = Path::new("/data.gnt-wal/hot");
        if engine.disk().exists(hot).unwrap() {
            engine.disk().remove(hot).unwrap();
        }
        let database =
            Database::open(&engine, Path::new("/data.gnt"), &OpenOptions::default(), "gannet").unwrap();
        let mut catalog = Catalog::default();
        for (oid, table) in &self.catalog.tables {
            let mut table = (**table).clone();
            table.storage = Storage::new(table.storage.name.clone());
            for index in &mut table.indexes {
                index.storage = Storage::new(index.storage.name.clone());
            }
            catalog.tables.insert(*oid, Arc::new(table));
        }
        Ground { database, catalog: Arc::new(catalog) }
    }

    fn table(&self, oid: Oid) -> &Arc<Table> {
        &self.catalog.tables[&oid]
    }

    fn session_with(&self, options: TransactionOptions) -> Session<'_> {
        let role = self.database.role("gannet").unwrap();
        let state = SessionState::new(self.database.clone(), &role, 1, Interrupt::default());
        let transaction = RefCell::new(self.database.store().begin(options));
        Session { ground: self, transaction, state, cancel: AtomicBool::new(false) }
    }

    fn session(&self) -> Session<'_> {
        self.session_with(TransactionOptions::default())
    }

    /// Adds rows and commits.
    fn fill(&self, oid: Oid, rows: Vec<Vec<Value>>) {
        let session = self.session();
        session.run(insert(self.table(oid), rows)).unwrap();
        session.commit();
    }

    /// All rows of a table, as a fresh transaction sees them.
    fn rows(&self, oid: Oid) -> Vec<Vec<Value>> {
        let session = self.session();
        let rows = session.rows(table_scan(self.table(oid)));
        session.check_indexes(oid);
        rows
    }
}

impl Session<'_> {
    fn run_all(&self, root: Plan, limit: usize) -> Result<(Vec<Vec<Value>>, u64, Vec<NodeProfile>)> {
        let view = self.transaction.borrow_mut().view();
        let environment = Environment {
            catalog: &self.ground.catalog,
            view: &view,
            transaction: &self.transaction,
            session: &self.state,
            cancel: &self.cancel,
            work_bytes: u64::MAX,
            read_only: false,
        };
        let statement = Statement {
            root,
            subplans: Vec::new(),
            slots: 0,
            nodes: 4,
            output: Vec::new(),
            writes: true,
            targets: Vec::new(),
            locked: Vec::new(),
        };
        let mut running = Running::new(Arc::new(statement), Vec::new(), true);
        let (mut rows, mut batch) = (Vec::new(), Batch::new());
        while running.next(&environment, limit, &mut batch)? {
            assert!(!batch.is_empty() && batch.len() <= limit);
            rows.extend(batch.iter().map(<[Value]>::to_vec));
        }
        Ok((rows, running.affected(), running.profile()))
    }

    /// Runs a statement, which is taken back when it fails; gives how many rows it changed.
    fn run(&self, root: Plan) -> Result<u64> {
        let savepoint = self.transaction.borrow_mut().savepoint();
        let result = self.run_all(root, BATCH_ROWS).map(|(_, affected, _)| affected);
        if result.is_err() {
            self.transaction.borrow_mut().rollback_to(savepoint).unwrap();
        }
        result
    }

    fn rows(&self, root: Plan) -> Vec<Vec<Value>> {
        self.run_all(root, BATCH_ROWS).unwrap().0
    }

    fn error(&self, root: Plan) -> Error {
        self.run(root).unwrap_err()
    }

    fn commit(self) {
        self.transaction.into_inner().commit().unwrap();
    }

    /// Every index has one entry for each row, and no other.
    fn check_indexes(&self, oid: Oid) {
        let table = self.ground.table(oid);
        let view = self.transaction.borrow_mut().latest_view();
        let all = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
        let columns: Vec<usize> = (0..table.columns.len()).collect();
        for (index, definition) in table.indexes.iter().enumerate().filter(|(_, index)| !index.primary) {
            let mut wanted = Vec::new();
            let mut scan = view.scan(&view.tree(&table.storage.name).unwrap().unwrap(), all).unwrap();
            while let Some((key, row)) = scan.next().unwrap() {
                let mut values = Vec::new();
                table.codec().decode_row(key, row, &columns, &mut values).unwrap();
                let entry = table.codec().index_entry(index, &values, key).unwrap();
                wanted.push((entry.key, entry.value));
            }
            wanted.sort();
            let mut found = Vec::new();
            let mut scan = view.scan(&view.tree(&definition.storage.name).unwrap().unwrap(), all).unwrap();
            while let Some((key, value)) = scan.next().unwrap() {
                found.push((key.to_vec(), value.to_vec()));
            }
            assert_eq!(found, wanted, "entries of {}", definition.name);
        }
    }
}

// ---- definitions ----------------------------------------------------------------------------------------------------

/// A table with these columns, the first of which is the primary key.
fn table(oid: Oid, name: &str, columns: &[(&str, Type)]) -> Table {
    let column = |(number, (name, ty)): (usize, &(&str, Type))| Column {
        number: number as ColumnNumber + 1,
        name: (*name).to_owned(),
        ty: *ty,
        modifier: NO_MODIFIER,
        not_null: number == 0,
        default: None,
        missing: None,
    };
    let mut table = Table {
        oid,
        name: name.to_owned(),
        columns: columns.iter().enumerate().map(column).collect(),
        storage: Storage::new(format!("table.{oid}")),
        key: TableKey::Columns(vec![1]),
        layouts: vec![Layout((1..=columns.len() as ColumnNumber).collect())],
        indexes: Vec::new(),
        checks: Vec::new(),
        foreign_keys: Vec::new(),
        referenced_by: Vec::new(),
        owner: 10,
        next_column: columns.len() as ColumnNumber + 1,
        revision: 0,
        codec: Default::default(),
    };
    table = with_index(table, &format!("{name}_pkey"), &[1], true);
    table.indexes[0].primary = true;
    table
}

fn with_index(mut table: Table, name: &str, columns: &[ColumnNumber], unique: bool) -> Table {
    let oid = table.oid * 10 + table.indexes.len() as Oid;
    let column =
        |column: &ColumnNumber| IndexColumn { column: *column, descending: false, nulls_first: false };
    table.indexes.push(Index {
        oid,
        name: name.to_owned(),
        columns: columns.iter().map(column).collect(),
        unique,
        primary: false,
        constraint: None,
        storage: Storage::new(format!("index.{oid}")),
    });
    table
}

/// The column refers to the parent's index at this position.
fn with_key(
    mut table: Table,
    column: ColumnNumber,
    parent: &Table,
    index: usize,
    on_delete: ReferentialAction,
    on_update: ReferentialAction,
) -> Table {
    let oid = table.oid * 10 + 5 + table.foreign_keys.len() as Oid;
    table.foreign_keys.push(ForeignKey {
        oid,
        name: format!("{}_{}_fkey", table.name, table.columns[usize::from(column) - 1].name),
        columns: vec![column],
        parent: parent.oid,
        parent_columns: vec![parent.indexes[index].columns[0].column],
        parent_index: parent.indexes[index].oid,
        on_delete,
        on_update,
    });
    table
}

// ---- plans ----------------------------------------------------------------------------------------------------------

fn plan(node: Node, width: usize) -> Plan {
    let column = PlanColumn { name: String::new(), ty: Type::Unknown, modifier: NO_MODIFIER };
    Plan { id: 0, node, columns: vec![column; width], estimate: Estimate::default() }
}

fn int(value: i64) -> Value {
    Value::Int(value)
}

fn literal(value: impl Into<Value>) -> Expr {
    Expr::Literal(value.into())
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Value::Int(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Value::text(value)
    }
}

fn compare(op: Comparison, left: Expr, right: Expr) -> Expr {
    Expr::Compare { op, left: Box::new(left), right: Box::new(right) }
}

fn equal(column: usize, value: impl Into<Value>) -> Expr {
    compare(Comparison::Equal, Expr::Column(column), literal(value))
}

/// All columns of a table, without filter.
fn access(table: &Arc<Table>, identity: bool) -> Access {
    Access {
        table: Arc::clone(table),
        alias: table.name.clone(),
        columns: (0..table.columns.len()).collect(),
        identity,
        filter: None,
    }
}

fn scan_with(access: Access) -> Plan {
    let width = access.columns.len() + if access.identity { 2 } else { 0 };
    plan(Node::TableScan { access: Arc::new(access), range: None, backward: false }, width)
}

fn table_scan(table: &Arc<Table>) -> Plan {
    scan_with(access(table, false))
}

/// Rows with their identity, of which a condition is demanded.
fn rows_to_change(table: &Arc<Table>, filter: Option<Expr>) -> Plan {
    scan_with(Access { filter, ..access(table, true) })
}

fn values(rows: Vec<Vec<Value>>) -> Plan {
    let width = rows.first().map_or(0, Vec::len);
    let rows = rows.into_iter().map(|row| row.into_iter().map(Expr::Literal).collect()).collect();
    plan(Node::Values(rows), width)
}

fn insert(table: &Arc<Table>, rows: Vec<Vec<Value>>) -> Plan {
    insert_with(table, rows, Checks::default(), None)
}

fn insert_with(
    table: &Arc<Table>,
    rows: Vec<Vec<Value>>,
    checks: Checks,
    returning: Option<Vec<Expr>>,
) -> Plan {
    let width = returning.as_ref().map_or(0, Vec::len);
    let insert = physical::Insert {
        table: Arc::clone(table),
        values: (0..table.columns.len()).map(Expr::Column).collect(),
        checks,
        returning,
    };
    plan(Node::Insert { input: Box::new(values(rows)), insert: Arc::new(insert) }, width)
}

fn target(table: &Arc<Table>) -> Target {
    let width = table.columns.len();
    Target { table: Arc::clone(table), columns: (0..width).map(|at| (at, at)).collect(), identity: width }
}

fn update(table: &Arc<Table>, filter: Option<Expr>, assignments: Vec<(usize, Expr)>) -> Plan {
    update_with(table, filter, assignments, None)
}

fn update_with(
    table: &Arc<Table>,
    filter: Option<Expr>,
    assignments: Vec<(usize, Expr)>,
    returning: Option<Vec<Expr>>,
) -> Plan {
    let input = Box::new(rows_to_change(table, filter.clone()));
    let width = returning.as_ref().map_or(0, Vec::len);
    let update = physical::Update {
        target: target(table),
        recheck: filter,
        assignments: assignments.into_iter().map(|(at, value)| (vec![at], value)).collect(),
        checks: Checks::default(),
        returning,
    };
    plan(Node::Update { input, update: Arc::new(update) }, width)
}

fn delete(table: &Arc<Table>, filter: Option<Expr>) -> Plan {
    delete_with(table, filter, None)
}

fn delete_with(table: &Arc<Table>, filter: Option<Expr>, returning: Option<Vec<Expr>>) -> Plan {
    let input = Box::new(rows_to_change(table, filter.clone()));
    let width = returning.as_ref().map_or(0, Vec::len);
    let delete = physical::Delete { target: target(table), recheck: filter, returning };
    plan(Node::Delete { input, delete: Arc::new(delete) }, width)
}

/// A whole number plus another.
fn plus(left: Expr, right: i64) -> Expr {
    use crate::functions::{Argument, Function, Returns, Volatility};
    static PLUS: Function = Function {
        oid: 1,
        name: "plus",
        arguments: &[Argument::Is(Type::Int8), Argument::Is(Type::Int8)],
        optional: 0,
        variadic: false,
        returns: Returns::Is(Type::Int8),
        strict: true,
        volatility: Volatility::Immutable,
        body: |_, arguments| {
            let [Value::Int(a), Value::Int(b)] = arguments else { return Err(Error::internal("no numbers")) };
            Ok(Value::Int(a + b))
        },
    };
    Expr::Call {
        function: &PLUS,
        arguments: vec![left, literal(right)],
        types: vec![Type::Int8, Type::Int8],
        ty: Type::Int8,
    }
}

/// The state of an error, its message and detail.
fn told(error: &Error) -> (&'static str, String, String) {
    let fields = error.fields();
    (fields.state.0, fields.message.to_string(), fields.detail.clone().unwrap_or_default())
}
