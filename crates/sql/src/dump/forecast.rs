//! Whether there is room for what is dumped, from a sample of its rows: who has too little is told so before an hour's work rather than behind it.
//!
//! Of each table some leaves are made text. As many bytes as that were for each leaf, times the leaves that there are, is an estimate whose
//! standard error the leaves' differences tell; a dump is refused where even two standard errors less do not fit. What cannot be told by a glance
//! counts as nothing: small tables, and those where it meets values that are too long to be read for this. Each leaf is read and made text with a
//! permit, as the dump's own pieces of work are.

use super::Format;
use super::bytes::ByteBuffer;
use super::rows::{RowWriter, Scratch};
use super::script::Script;
use crate::catalog::Catalog;
use crate::types::text::TextStyle;
use crate::{Error, Result, SqlState};
use gannet_base::units::format_size;
use gannet_store::{Engine, LongValues, Tree, Unit, View, Watch, WorkMemory};
use std::path::PathBuf;

/// Leaves of a table that are looked at.
const LEAVES: usize = 16;
/// Tables of fewer bytes are not.
const SMALL: u64 = 1 << 20;
/// Longer values are not read, and no text is made of rows that have more of it beyond what is stored: a leaf may have a hundred of them.
const LONG: u64 = 64 << 10;
/// Where there is room for the tables' bytes so many times it is not looked: the text of what databases have is less.
const AMPLE: u64 = 4;

/// Where so much text was made of some of a table's leaves it is left at that: then it counts as nothing.
const ENOUGH: f64 = 8e6;

/// Lets nobody read long values for a glance, and charges the others.
#[derive(Debug)]
pub(super) struct Brief(pub(super) Engine);

impl LongValues for Brief {
    fn expect(&self, bytes: u64) -> gannet_store::Result<Option<WorkMemory>> {
        if bytes > LONG { Err(gannet_store::Error::Cancelled) } else { self.0.work_memory(bytes).map(Some) }
    }
}

/// An estimate of the text's bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Estimate {
    bytes: f64,
    variance: f64,
}

impl Estimate {
    /// Of a table with so many leaves, some of which have these many bytes of text.
    fn of(leaves: f64, sampled: &[f64]) -> Self {
        let count = sampled.len() as f64;
        if sampled.is_empty() {
            return Estimate::default();
        }
        let mean = sampled.iter().sum::<f64>() / count;
        let squares: f64 = sampled.iter().map(|bytes| (bytes - mean).powi(2)).sum();
        let of_one = if count > 1.0 { squares / (count - 1.0) } else { mean * mean };
        let unseen = (1.0 - count / leaves).max(0.0);
        Estimate { bytes: mean * leaves, variance: leaves * leaves * of_one / count * unseen }
    }

    fn plus(self, other: Estimate) -> Self {
        Estimate { bytes: self.bytes + other.bytes, variance: self.variance + other.variance }
    }

    /// What it is at least, but for one time in fifty.
    fn at_least(self) -> f64 {
        self.bytes - 2.0 * self.variance.sqrt()
    }
}

/// Fails where the rows of the script's tables, as text, will not fit into `free` bytes, which is what `place` has. `view` is one whose long
/// values [`Brief`] watches; it may be of a later moment than the dump.
///
/// # Errors
/// 53100 where there is too little room; what reading fails with, and what `watch` does.
pub(super) fn check_room(
    view: &View,
    catalog: &Catalog,
    script: &Script,
    format: Format,
    (place, free): (PathBuf, u64),
    watch: &mut Watch<'_>,
) -> Result<()> {
    let stored: u64 = script.tables.iter().map(|table| table.bytes).sum();
    if stored.saturating_mul(AMPLE) <= free {
        return Ok(());
    }
    watch.job().phase("looks for room", Unit::Bytes, stored);
    let style = TextStyle::default();
    let mut looked = 0;
    let mut estimate = Estimate::default();
    for rows in script.tables.iter().filter(|table| table.bytes >= SMALL) {
        let table = catalog.table(&rows.name).ok_or_else(|| Error::internal("a table vanished"))?;
        let writer = RowWriter::new(table, &style, format.into());
        // One that was dropped meanwhile cannot be seen any more.
        if let Some(tree) = view.tree(&table.storage.name)? {
            estimate = estimate.plus(of_table(view, &tree, &writer, watch)?);
        }
        looked += rows.bytes;
        watch.job().set_done(looked);
    }
    if estimate.at_least() <= free as f64 {
        return Ok(());
    }
    let message = format!(
        "the dump will have about {}, and {place:?} has {} free",
        format_size(estimate.bytes as u64),
        format_size(free)
    );
    let hint = "Make room, dump to another place, or only some of the tables; what goes to standard output is not looked at";
    Err(Error::new(SqlState::DISK_FULL, message).hint(hint))
}

fn of_table(view: &View, tree: &Tree, writer: &RowWriter<'_>, watch: &mut Watch<'_>) -> Result<Estimate> {
    let mut sample = view.sample(tree, LEAVES)?;
    let (mut sampled, mut text, mut scratch) =
        (Vec::with_capacity(LEAVES), ByteBuffer::default(), Scratch::default());
    loop {
        watch.look()?;
        if sampled.iter().sum::<f64>() >= ENOUGH {
            return Ok(Estimate::default());
        }
        let permit = watch.job().permit()?;
        let (mut bytes, mut failure) = (0, None);
        let read = sample.read_leaf(&mut |key, row| {
            text.clear();
            let outgrown = writer.outgrown(key, row);
            if outgrown as u64 > LONG {
                bytes += row.len() + outgrown;
                return;
            }
            // Of a row that cannot be read the dump will tell more.
            match writer.write(key, row, &mut scratch, &mut text) {
                Ok(()) => bytes += text.len(),
                Err(error) => failure = failure.take().or(Some(error)),
            }
        });
        drop(permit);
        match read {
            Ok(true) if failure.is_none() => sampled.push(bytes as f64),
            Ok(false) if failure.is_none() => return Ok(Estimate::of(sample.leaf_pages(), &sampled)),
            Err(error)
                if !matches!(error, gannet_store::Error::Cancelled | gannet_store::Error::Memory(_)) =>
            {
                return Err(error.into());
            }
            _ => return Ok(Estimate::default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_knows_how_sure_it_is() {
        let equal = Estimate::of(1000.0, &[50.0; 16]);
        assert_eq!((equal.bytes, equal.at_least()), (50_000.0, 50_000.0));
        // All of them were looked at.
        let whole = Estimate::of(2.0, &[10.0, 90.0]);
        assert_eq!((whole.bytes, whole.at_least()), (100.0, 100.0));
        let spread = Estimate::of(100.0, &[0.0, 100.0, 0.0, 100.0]);
        assert_eq!(spread.bytes, 5_000.0);
        assert!(spread.at_least() < 0.0);
        // One leaf of many says nothing.
        assert!(Estimate::of(100.0, &[7.0]).at_least() < 0.0);
        assert_eq!(Estimate::of(1.0, &[]).bytes, 0.0);
        let sum = equal.plus(spread);
        assert!(sum.bytes == 55_000.0 && sum.at_least() < 50_000.0);
    }
}
