//! The entry point for fuzzing stored definitions, see [`crate::fuzzing`].

use super::model::{Catalog, Oid};
use super::storage::{self, read_entry};
use crate::codec::row::TableCodec;

const OID: Oid = 20000;
const REVISION: u64 = 7;

/// A stored definition: `kind u8 | entry`. One that is read is written, and read again as the same. Its table's rows can be asked for.
pub fn catalog(data: &[u8]) {
    let Some((&kind, value)) = data.split_first() else { return };
    let Some(catalog) = loaded(kind, value) else { return };
    for table in catalog.tables.values() {
        let codec = TableCodec::new(table);
        let columns: Vec<usize> = (0..table.columns.len()).collect();
        let _ = codec.decode_row(value, value, &columns, &mut Vec::new());
    }
    for entry in objects(&catalog) {
        let again = loaded(kind, &entry).expect("what is written is read");
        assert_eq!(objects(&again), [entry]);
    }
}

/// The definitions as they are stored.
fn objects(catalog: &Catalog) -> Vec<Vec<u8>> {
    let tables = catalog.tables.values().map(|table| storage::encode(REVISION, &**table));
    let sequences = catalog.sequences.values().map(|sequence| storage::encode(REVISION, &**sequence));
    let roles = catalog.roles.values().map(|role| storage::encode(REVISION, &**role));
    let statistics = catalog.statistics.values().map(|statistics| storage::encode(REVISION, &**statistics));
    let all = tables.chain(sequences).chain(roles).chain(statistics);
    all.map(|entry| entry.expect("a definition is JSON")).collect()
}

fn loaded(kind: u8, value: &[u8]) -> Option<Catalog> {
    let mut catalog = Catalog::default();
    let key = [&[kind][..], &OID.to_be_bytes()].concat();
    read_entry(&mut catalog, &Catalog::default(), &key, value).ok()?;
    Some(catalog)
}
