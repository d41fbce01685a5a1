//! Entry points for fuzzing, see [`crate::fuzzing`].

use super::footer::Footer;
use super::record::{
    ChangeView, GroupBuilder, Head, Identity, MIN_RECORD_LEN, Place, RecordKind, RecordView, encode_homes,
    padded, seal,
};

const DATABASE: u64 = 5;
/// Where the record stands: high enough for anything a header may say of the log before it.
const START: u64 = 1 << 40;

/// A record of these bytes, whose length and checksum are made to fit. Shows the changes of one that verifies.
pub(crate) fn record(data: &[u8], visit: &mut dyn FnMut(ChangeView<'_>)) {
    let mut bytes = data.to_vec();
    bytes.resize(padded(data.len()).max(MIN_RECORD_LEN), 0);
    seal(DATABASE, START, &mut bytes);
    assert!(
        RecordView::parse(DATABASE + 1, START, &bytes).is_none_or(|view| view.kind == RecordKind::Filler)
    );
    let Some(view) = RecordView::parse(DATABASE, START, &bytes) else { return };
    let owned = view.to_record();
    assert!(owned.lsn().0 == view.end() && owned.payload() == view.payload() && view.durable <= START);
    assert!(owned.changes().eq(view.changes()));
    match view.kind {
        RecordKind::Group => group(&view),
        RecordKind::Home => homes(&view),
        RecordKind::Footer => footer(&view),
        RecordKind::Filler | RecordKind::Note => {}
    }
    view.changes().for_each(visit);
}

/// The record as the log would write it.
fn written(view: &RecordView<'_>, padding: u8, body: &[u8]) -> Vec<u8> {
    let identity = Identity { database_id: DATABASE, incarnation: view.incarnation };
    let place = Place { identity, start: START, durable: START, previous_crc: view.previous_crc };
    let sum = identity.body_sum(view.kind, body);
    let head = Head::encode(&place, view.kind, view.txn, padding, body.len(), sum);
    [head.bytes(), body, &head.trailer].concat()
}

fn group(view: &RecordView<'_>) {
    let mut builder = GroupBuilder::new();
    for change in view.changes() {
        builder.change_bytes(change.page, change.previous, change.kind, change.init, change.bytes);
    }
    let draft = builder.draft();
    let bytes = written(view, draft.padding, draft.body);
    let again = RecordView::parse(DATABASE, START, &bytes).expect("what is written is read");
    assert!(again.changes().eq(view.changes()) && again.txn == view.txn);
    assert!(again.pages().eq(view.pages()));
}

fn homes(view: &RecordView<'_>) {
    let homes: Vec<_> = view.homes().collect();
    let (body, padding) = encode_homes(&homes);
    let bytes = written(view, padding, &body);
    let again = RecordView::parse(DATABASE, START, &bytes).expect("what is written is read");
    assert!(again.homes().eq(homes));
}

fn footer(view: &RecordView<'_>) {
    let Some(footer) = Footer::decode(view, START - (START >> 1)) else { return };
    let entries =
        footer.pages.len() + footer.homes.len() + footer.begun.len() + footer.ended.len() + footer.open.len();
    assert!(entries * 8 <= view.payload().len());
    assert!(footer.homes.iter().all(|(_, lsn)| lsn.0 <= view.end()));
}

/// The records of a segment's file, as [`record`] takes them.
#[cfg(test)]
pub(crate) fn records(file: &[u8], database_id: u64) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    let mut at = 0;
    while let Some(bytes) = file.get(at..).filter(|bytes| bytes.len() >= MIN_RECORD_LEN) {
        let start = crate::page::get_u64(bytes, 8);
        match RecordView::parse(database_id, start, bytes) {
            Some(view) if view.kind != RecordKind::Filler => {
                let len = (view.end() - start) as usize;
                records.push(bytes[..len].to_vec());
                at += len;
            }
            Some(view) => at += (view.end() - start) as usize,
            None => at += super::record::ALIGNMENT as usize,
        }
    }
    records
}

/// What tells records of different kinds apart: kind, event, and the kinds of the first changes; long ones from short ones.
#[cfg(test)]
pub(crate) fn key(record: &[u8]) -> Vec<u8> {
    let mut bytes = record.to_vec();
    seal(DATABASE, START, &mut bytes);
    let view = RecordView::parse(DATABASE, START, &bytes).expect("a record of a log");
    let mut key = bytes[28..30].to_vec();
    key.extend(view.changes().take(3).map(|change| change.kind));
    key.push(u8::from(record.len() > 1000));
    key
}
