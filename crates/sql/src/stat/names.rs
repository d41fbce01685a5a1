//! What the store's trees are called in SQL, and which part of an index's keys are its columns.

use super::{Object, ObjectKind, unknown_table};
use crate::catalog::{Catalog, Relation, Table, storage};
use crate::{Error, Result, SqlState, TableName};
use gannet_base::TreeId;
use gannet_store::{Database, Leading, TransactionOptions, TreeStat};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a tree holds.
#[derive(Clone, Debug)]
enum Holds {
    Rows(Arc<Table>),
    /// An index, by its position.
    Index(Arc<Table>, usize),
}

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// `None`: the database has no definitions, or they cannot be read.
    catalog: Option<Catalog>,
    trees: BTreeMap<String, Holds>,
}

impl Names {
    /// As defined now.
    pub(crate) fn load(store: &Database) -> Result<Self> {
        let view = store.begin(TransactionOptions::default()).view();
        if !storage::is_sql(&view)? {
            return Ok(Names::default());
        }
        let catalog = storage::load(&view)?;
        let mut trees = BTreeMap::new();
        for table in catalog.tables.values() {
            trees.insert(table.storage.name.clone(), Holds::Rows(Arc::clone(table)));
            for (position, index) in table.indexes.iter().enumerate().filter(|(_, index)| !index.primary) {
                trees.insert(index.storage.name.clone(), Holds::Index(Arc::clone(table), position));
            }
        }
        Ok(Names { catalog: Some(catalog), trees })
    }

    /// A table's bare name, and trees of it and its indexes; or the tree of this name.
    pub(super) fn trees_of<'n>(
        &self,
        store: &Database,
        table: &'n TableName,
    ) -> Result<(&'n str, Vec<String>)> {
        let Some(catalog) = &self.catalog else {
            let name = table.text();
            let known = store.begin(TransactionOptions::default()).tree(name)?.is_some();
            return if known { Ok((name, vec![name.to_owned()])) } else { Err(unknown_table(name)) };
        };
        let name = table.in_public()?;
        match catalog.names.get(name) {
            Some(Relation::Table(oid)) => {
                let table = catalog.tables.get(oid).ok_or_else(|| unknown_table(name))?;
                let further = table.indexes.iter().filter(|index| !index.primary);
                let indexes = further.map(|index| index.storage.name.clone());
                Ok((name, std::iter::once(table.storage.name.clone()).chain(indexes).collect()))
            }
            Some(Relation::Index { .. } | Relation::Sequence(_)) => {
                Err(Error::new(SqlState::WRONG_OBJECT_TYPE, format!("\"{name}\" is not a table")))
            }
            None => Err(unknown_table(name)),
        }
    }

    /// How long the columns of each index's keys are.
    pub(super) fn leading(&self) -> BTreeMap<String, Leading> {
        let of = |(tree, holds): (&String, &Holds)| match holds {
            Holds::Rows(_) => None,
            Holds::Index(table, position) => Some((tree.clone(), columns_of(table, *position))),
        };
        self.trees.iter().filter_map(of).collect()
    }

    /// A tree with its name in SQL.
    pub(super) fn object(&self, figures: TreeStat, page_bytes: f64) -> Object {
        let holds = figures.name.as_ref().and_then(|name| self.trees.get(name));
        let (kind, name, table, unique) = match (holds, &figures.name) {
            (Some(Holds::Rows(table)), _) => (ObjectKind::Table, table.name.clone(), None, false),
            (Some(Holds::Index(table, position)), _) => {
                let index = &table.indexes[*position];
                (ObjectKind::Index, index.name.clone(), Some(table.name.clone()), index.unique)
            }
            (None, Some(name)) if self.catalog.is_some() => (ObjectKind::System, name.clone(), None, false),
            (None, Some(name)) => (ObjectKind::Tree, name.clone(), None, false),
            (None, None) => {
                (ObjectKind::System, crate::check::part(TreeId(figures.tree)).to_owned(), None, false)
            }
        };
        Object {
            kind,
            name,
            table,
            unique,
            bytes: figures.pages.value * page_bytes,
            tree: figures.tree,
            tree_name: figures.name,
            pages: figures.pages,
            unreadable_pages: figures.unreadable_pages,
            contents: figures.contents,
        }
    }

    /// What a page of a tree with this number belongs to.
    pub(super) fn object_of(&self, tree: u32, trees: &[TreeStat]) -> String {
        match trees.iter().find(|found| found.tree == tree) {
            Some(found) => {
                let object = self.object(found.clone(), 0.0);
                match object.kind {
                    ObjectKind::System if found.name.is_none() => object.name,
                    kind => format!("{} {}", kind.name(), object.name),
                }
            }
            None => crate::check::part(TreeId(tree)).to_owned(),
        }
    }

    /// What a tree is, and its name.
    pub(crate) fn label(&self, tree: u32, name: Option<&str>) -> String {
        let figures = TreeStat { tree, name: name.map(str::to_owned), ..TreeStat::default() };
        self.object_of(tree, &[figures])
    }

    /// Tables by name, each with its indexes behind it; then trees; then what Gannet itself needs.
    pub(super) fn sort(&self, objects: &mut [Object]) {
        let place = |object: &Object| match object.kind {
            ObjectKind::Table => (0, object.name.clone(), String::new()),
            ObjectKind::Index => (0, object.table.clone().unwrap_or_default(), object.name.clone()),
            ObjectKind::Tree => (1, object.name.clone(), String::new()),
            ObjectKind::System => (2, object.name.clone(), String::new()),
        };
        objects.sort_by_cached_key(place);
    }
}

/// How long the columns of an index are in its keys; the key of the row may follow.
fn columns_of(table: &Arc<Table>, position: usize) -> Leading {
    let table = Arc::clone(table);
    Arc::new(move |key: &[u8]| {
        let mut rest = key;
        for column in table.codec().index_columns(position) {
            column.skip(&mut rest).ok()?;
        }
        Some(key.len() - rest.len())
    })
}
