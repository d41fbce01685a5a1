//! Operators that touch the store: scans, index joins, changes, locks.
//!
//! | module | job |
//! |---|---|
//! | `access` | a stored row as a row of the plan: decoding, identity, filter |
//! | `ahead` | rows of a table by key, fetched in deep batches ahead of their turn |
//! | `coming` | the same for statements that a client has sent behind the one that runs |
//! | `table_scan`, `index_scan`, `index_join` | the operators that read |
//! | `parts` | rows of a table in parts, for several threads |
//! | `point` | one row by its whole key, without an operator |
//! | `lock` | FOR UPDATE and its kin |
//! | `insert`, `update`, `delete` | the operators that change |
//! | `writer` | a changed row with its constraints and index entries |
//! | `foreign` | foreign keys: what a child needs, what a parent's change does to its children |
//! | `derived` | defaults and checks of tables that a foreign key leads to |
//! | `describe` | rows and keys in messages |

mod access;
mod ahead;
mod coming;
mod delete;
mod derived;
mod describe;
mod foreign;
mod gather;
mod index_join;
mod index_scan;
mod insert;
mod lock;
mod parts;
mod point;
mod table_scan;
mod update;
mod writer;

use super::{Context, LARGE_BYTES, Operator};
use crate::Result;
use crate::physical::{Node, Plan};
pub(crate) use coming::Coming;
use gannet_base::memory::Purpose;
use gannet_store::WorkMemory;
pub(super) use parts::{PartReader, Parts, Reached};
pub(crate) use point::fetch_one;

/// Makes the operator of a node that touches the store; `None` for other nodes.
pub(super) fn open(plan: &Plan, context: &Context<'_>, repeated: bool) -> Result<Option<Box<dyn Operator>>> {
    let open = |input: &Plan| super::open_as(input, context, repeated);
    let node = plan.id;
    Ok(Some(match &plan.node {
        Node::TableScan { access, range, backward } => {
            Box::new(table_scan::TableScan::new(node, access, range.as_ref(), *backward))
        }
        Node::IndexScan { access, index, range, backward, index_only, look_ahead } => {
            let how = index_scan::How {
                index: *index,
                backward: *backward,
                index_only: *index_only,
                look_ahead: *look_ahead,
            };
            Box::new(index_scan::IndexScan::new(node, access, range, how))
        }
        Node::IndexJoin { outer, .. } => {
            Box::new(index_join::IndexJoin::new(plan, open(outer)?, outer.columns.len())?)
        }
        Node::LockRows { input, targets, recheck } => {
            Box::new(lock::LockRows::new(open(input)?, targets, recheck, input.columns.len()))
        }
        Node::Insert { input, insert } => Box::new(insert::Insert::new(open(input)?, insert)),
        Node::Update { input, update } => Box::new(update::Update::new(open(input)?, update)),
        Node::Delete { input, delete } => Box::new(delete::Delete::new(open(input)?, delete)),
        _ => return Ok(None),
    }))
}

/// What copies of a row that take so many bytes are charged as; nothing where they are few.
fn long_row(context: &Context<'_>, bytes: usize) -> Result<Option<WorkMemory>> {
    if bytes <= LARGE_BYTES {
        return Ok(None);
    }
    super::memory::await_room(context, bytes)?;
    Ok(Some(context.session.engine.memory(Purpose::Work, bytes as u64)?))
}

#[cfg(test)]
mod tests;
