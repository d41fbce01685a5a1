//! The entry point for fuzzing COPY's data, see [`crate::fuzzing`].

use super::format::{CopyOptions, Fields, Line, Reader};

type Row = Vec<Option<String>>;

/// Data of COPY: `csv, or not; length of the pieces u8 | delimiter u8 | data`. However it is cut, the same rows come out or an
/// error, and what is written of them is read back.
pub fn copy(data: &[u8]) {
    let [how, delimiter, data @ ..] = data else { return };
    let mut options = CopyOptions::new(how & 1 == 1);
    if b",;|\t~".contains(delimiter) {
        options.delimiter = *delimiter;
    }
    let whole = read(&options, data, data.len().max(1));
    assert_eq!(read(&options, data, usize::from(how >> 1) + 1), whole);
    let Some(rows) = whole else { return };
    // Without a field there is nothing to write; a row of one NULL, or an empty line, is one field to whoever reads it.
    let mut out = Vec::new();
    for row in &rows {
        let mut line = Line::new(&options, row.len(), &mut out);
        row.iter().for_each(|field| line.field(field.as_deref()));
        line.end();
    }
    assert_eq!(read(&options, &out, out.len().max(1)), Some(rows));
}

/// The rows of data that comes in pieces; `None` where it is malformed.
fn read(options: &CopyOptions, data: &[u8], piece: usize) -> Option<Vec<Row>> {
    let mut pieces = data.chunks(piece);
    let mut reader = Reader::new(options.clone());
    let (mut fields, mut rows) = (Fields::default(), Vec::new());
    let mut more = |buffer: &mut Vec<u8>| {
        let piece = pieces.next();
        buffer.extend_from_slice(piece.unwrap_or_default());
        Ok(piece.is_some())
    };
    while reader.next(&mut more, &mut fields).ok()? {
        let row = (0..fields.len()).map(|index| Some(fields.get(index).ok()?.map(str::to_owned)));
        rows.push(row.collect::<Option<Row>>()?);
        assert!(reader.line() > 0 && fields.bytes() <= data.len());
    }
    Some(rows)
}
