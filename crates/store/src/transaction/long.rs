//! Long values: stored, under the transaction's undo, before the row that refers to them is written.

use super::Transaction;
use super::write::Write;
use crate::core::Core;
use crate::entry::{self, UndoPtr};
use crate::log::TxnEvent;
use crate::mtr::Mtr;
use crate::node::max_entry_len;
use crate::tree::TreeRoot;
use crate::undo::{UndoKind, UndoRecord};
use crate::{Error, Result, overflow};
use gannet_base::{PageId, TxnId};
use std::sync::Arc;

impl Transaction {
    /// Writes a value that does not fit its leaf to pages of its own; gives the reference.
    pub(super) fn store_long_value(
        &mut self,
        root: &TreeRoot,
        key: &[u8],
        write: &Write<'_>,
    ) -> Result<Option<Vec<u8>>> {
        let (Write::Put(value) | Write::Insert(value) | Write::Update(value)) = write else {
            return Ok(None);
        };
        let core = Arc::clone(&self.shared.core);
        let inline = max_entry_len(core.page_size) - key.len() - 1 - entry::HEADER_LEN;
        if value.len() <= inline {
            return Ok(None);
        }
        if value.len() as u64 > overflow::MAX_VALUE {
            return Err(Error::Invalid(format!("a value has at most 1 GiB, not {} bytes", value.len())));
        }
        let record = UndoRecord {
            kind: UndoKind::Chain,
            done: false,
            writer: self.own_id(),
            previous_record: UndoPtr(
                self.writing.as_ref().expect("the transaction writes").txn.newest_undo(),
            ),
            sequence: 0,
            tree: root.id,
            previous_flags: 0,
            previous_writer: TxnId::NONE,
            previous_undo: UndoPtr::NONE,
            key: Vec::new(),
            value: vec![0; entry::REFERENCE_LEN],
        };
        let (first, reference) = self.start_long_value(&core, root, record, value.len() as u64)?;
        overflow::write(&core, root.id, first, value, &|| self.is_cancelled())?;
        Ok(Some(reference))
    }

    /// Allocates a long value's first index page, together with the undo record that knows of it.
    fn start_long_value(
        &mut self,
        core: &Core,
        root: &TreeRoot,
        mut record: UndoRecord,
        len: u64,
    ) -> Result<(PageId, Vec<u8>)> {
        loop {
            let writing = self.writing.as_mut().expect("the transaction writes");
            let Some(reserved) = writing.stream.reserve(core, record.len()) else {
                self.start_segment()?;
                continue;
            };
            let undo = writing.stream.position(&reserved);
            let mut mtr = Mtr::new(core);
            let undo_part = writing.stream.latch(&mut mtr, core, &reserved)?;
            let (first, part) = mtr.allocate(root.id, &[])?;
            record.value = entry::encode_reference(len, first).to_vec();
            record.sequence = writing.txn.sequence();
            writing.txn.use_sequence(record.sequence);
            writing.stream.append(&mut mtr, undo_part, &reserved, &record);
            overflow::format_index(&mut mtr, part, root.id);
            mtr.group().set_txn(writing.txn.id(), TxnEvent::Change { undo: undo.0 });
            mtr.commit()?;
            writing.txn.set_newest_undo(undo.0);
            return Ok((first, record.value));
        }
    }
}
