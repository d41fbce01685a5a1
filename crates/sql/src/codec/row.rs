//! Rows and index entries of a table.
//!
//! # Guarantees
//! 1. A column is found by its place alone: those before it are not read.
//! 2. Rows of every layout the table ever had can be read; new ones are written in the current one.
//! 3. What is in the row's key, and can be read back from it, is not repeated in the row.
//!
//! The layout stands in `docs/format.md`.

use super::key::{KeyColumn, WholeInKey, is_lossless, padded, stored_text};
use super::{Form, corrupted, numeric, padded_length, unpadded};
use crate::catalog::{Column, ColumnNumber, Index, Table, TableKey};
use crate::types::text::{self, TextStyle};
use crate::types::{Modifier, Numeric, Value};
use crate::{Error, Result};
use std::ops::Range;

/// How the rows of a table and the entries of its indexes become bytes, worked out once for each definition: see [`Table::codec`].
#[derive(Clone, Debug)]
pub struct TableCodec {
    table: String,
    /// The columns of the primary key; none where rows have numbers.
    key: Vec<KeyColumn>,
    /// Where these stand in the table.
    key_positions: Vec<usize>,
    /// Where these begin in a key, as long as nothing of varying length stands before them.
    key_offsets: Vec<Option<usize>>,
    /// The same of whole numbers alone.
    key_wholes: Vec<Option<WholeInKey>>,
    /// Length of a row's key, where it is always the same.
    key_width: Option<usize>,
    layouts: Vec<RowLayout>,
    /// What a column is in rows that are older than itself.
    missing: Vec<Result<Value>>,
    indexes: Vec<IndexCodec>,
}

/// Where the columns are in rows of one layout. Offsets are counted from behind the header.
#[derive(Clone, Debug)]
struct RowLayout {
    /// By position in the table.
    places: Vec<Place>,
    /// Bytes of the bitmap of NULLs and the columns of fixed width.
    fixed: usize,
    /// Columns of varying width.
    variable: usize,
}

/// Where a column is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// In the row's key, at this place among its columns.
    Key(usize),
    /// At an offset.
    Fixed { bit: usize, offset: usize, form: Form },
    /// Among the columns of varying width, at this place.
    Variable { bit: usize, place: usize, form: Form, modifier: Modifier },
    /// Not there: the row is older than the column.
    Missing,
    /// Of a type no column can have.
    Impossible,
}

/// An index.
#[derive(Clone, Debug)]
struct IndexCodec {
    columns: Vec<KeyColumn>,
    /// Where these stand in the table.
    positions: Vec<usize>,
    unique: bool,
    /// Where a column of the table can be read back from, by position in the table.
    sources: Vec<Option<IndexSource>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum IndexSource {
    /// The index's column at this place.
    Column(usize),
    /// The row key's column at this place.
    RowKey(usize),
}

/// An entry of an index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexEntry {
    /// Its key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
    /// Whether another row with this key would violate uniqueness.
    pub conflicts: bool,
}

/// A column of a stored row.
#[derive(Clone, Debug)]
pub enum Field<'r> {
    /// NULL.
    Null,
    /// A string, as it is stored; none of type character(n). Whether it is UTF-8 was not looked at: see [`as_text`].
    Text(&'r [u8]),
    /// The same of that type, and how many blanks it is padded with.
    Padded(&'r [u8], usize),
    /// bytea, as it is stored.
    Bytes(&'r [u8]),
    /// A whole number, a date or a time.
    Int(i64),
    /// numeric
    Numeric(Numeric),
    /// Anything else, which may be one of these, too.
    Value(Value),
}

/// Who is shown the columns of stored rows, by [`TableCodec::show_row`], each with its position in the table.
pub trait RowVisitor {
    /// NULL.
    fn null(&mut self, column: usize);

    /// A string of a type other than character(n), as it is stored: whether it is UTF-8 was not looked at.
    fn text(&mut self, column: usize, bytes: &[u8]);

    /// The same of that type, and how many blanks it is padded with.
    fn padded(&mut self, column: usize, bytes: &[u8], blanks: usize);

    /// bytea
    fn bytes(&mut self, column: usize, bytes: &[u8]);

    /// A whole number, a date or a time.
    fn whole(&mut self, column: usize, value: i64);

    /// numeric
    fn numeric(&mut self, column: usize, value: &Numeric);

    /// Anything else but NULL, which may be one of these, too.
    fn value(&mut self, column: usize, value: &Value);
}

/// A stored row, of which nothing has been made yet.
pub struct StoredRow<'r> {
    codec: &'r TableCodec,
    layout: &'r RowLayout,
    body: Body<'r>,
    key: &'r [u8],
    columns: &'r [usize],
}

impl<'r> StoredRow<'r> {
    /// A column, without a copy where it lies there as it is. `place`: among those that were asked for.
    #[inline]
    pub fn field(&self, place: usize) -> Result<Field<'r>> {
        self.codec.field(self.columns[place], self.key, self.layout, &self.body)
    }

    /// The value of a column of which this is the field.
    pub fn value_of(&self, place: usize, field: Field<'_>) -> Result<Value> {
        Ok(match field {
            Field::Null => Value::Null,
            Field::Text(text) => {
                let text = std::str::from_utf8(text);
                Value::text(text.map_err(|_| self.codec.damaged("a string that is no UTF-8"))?)
            }
            Field::Bytes(bytes) => Value::Bytes(bytes.into()),
            Field::Int(value) => Value::Int(value),
            Field::Numeric(value) => Value::Numeric(value),
            Field::Value(value) => value,
            Field::Padded(..) => {
                return self.codec.column(self.columns[place], self.key, self.layout, &self.body);
            }
        })
    }
}

impl TableCodec {
    /// For a definition.
    pub fn new(table: &Table) -> Self {
        let (key, key_positions) = match &table.key {
            TableKey::RowId => (Vec::new(), Vec::new()),
            TableKey::Columns(numbers) => key_columns(table, numbers),
        };
        let mut key_offsets = Vec::with_capacity(key.len());
        let mut end = Some(0);
        for column in &key {
            key_offsets.push(end);
            end = end.zip(column.fixed_width()).map(|(start, width)| start + width);
        }
        let in_key: Vec<Option<usize>> = (0..table.columns.len())
            .map(|position| {
                let place = key_positions.iter().position(|of_key| *of_key == position)?;
                is_lossless(key[place].ty, key[place].modifier).then_some(place)
            })
            .collect();
        let whole = |(column, start): (&KeyColumn, &Option<usize>)| column.whole_at((*start)?);
        let key_wholes = key.iter().zip(&key_offsets).map(whole).collect();
        TableCodec {
            table: table.name.clone(),
            key_wholes,
            key_width: if key.is_empty() { Some(8) } else { end },
            key_offsets,
            key_positions,
            layouts: table.layouts.iter().map(|layout| RowLayout::new(table, &layout.0, &in_key)).collect(),
            missing: table.columns.iter().map(missing_value).collect(),
            indexes: table.indexes.iter().map(|index| IndexCodec::new(table, index, &in_key)).collect(),
            key,
        }
    }

    /// The columns of the primary key, as they are in a row's key; none where rows have numbers.
    pub fn key_columns(&self) -> &[KeyColumn] {
        &self.key
    }

    /// Where the columns of the primary key stand in the table.
    pub fn key_positions(&self) -> &[usize] {
        &self.key_positions
    }

    /// Columns of the keys of an index (by position in the table; not the primary one).
    pub fn index_columns(&self, index: usize) -> &[KeyColumn] {
        &self.indexes[index].columns
    }

    /// Where the columns of an index stand in the table.
    pub fn index_positions(&self, index: usize) -> &[usize] {
        &self.indexes[index].positions
    }

    /// Whether a column of the table (by position) can be read back from the entries of an index alone.
    pub fn index_covers(&self, index: usize, column: usize) -> bool {
        self.indexes[index].sources[column].is_some()
    }

    /// Appends the key of a row, made of its primary key's columns. (A table without one has row numbers for keys.)
    pub fn row_key(&self, row: &[Value], out: &mut Vec<u8>) -> Result<()> {
        self.key.iter().zip(&self.key_positions).try_for_each(|(column, at)| column.encode(&row[*at], out))
    }

    /// Appends a row in the current layout. `row`: one value for each column, in the table's order.
    pub fn encode_row(&self, row: &[Value], out: &mut Vec<u8>) -> Result<()> {
        let version = self.layouts.len();
        let layout = self.layouts.last().ok_or_else(|| self.damaged("the table has no layout"))?;
        let start = out.len();
        for wide in [false, true] {
            out.truncate(start);
            put_header((version as u64) << 1 | u64::from(wide), out);
            if layout.encode(row, wide, out)? {
                return Ok(());
            }
        }
        Err(Error::out_of_range("row"))
    }

    /// Appends the values of some columns, by position in the table, of a stored row of any layout.
    pub fn decode_row(&self, key: &[u8], row: &[u8], columns: &[usize], out: &mut Vec<Value>) -> Result<()> {
        if columns.is_empty() {
            return Ok(());
        }
        let (layout, body) = self.open_row(row)?;
        out.reserve(columns.len());
        for column in columns {
            out.push(self.column(*column, key, layout, &body)?);
        }
        Ok(())
    }

    /// As [`TableCodec::decode_row`]: of each pair the first is the column's position in the table, the second where its value is put. The
    /// memory of a string that is there is used again.
    pub fn decode_into(
        &self,
        key: &[u8],
        row: &[u8],
        columns: &[(usize, usize)],
        out: &mut [Value],
    ) -> Result<()> {
        if columns.is_empty() {
            return Ok(());
        }
        let (layout, body) = self.open_row(row)?;
        for (column, place) in columns {
            let place = &mut out[*place];
            if !self.text_over(*column, layout, &body, place)? {
                *place = self.column(*column, key, layout, &body)?;
            }
        }
        Ok(())
    }

    /// Shows every column of a stored row, in the table's order.
    #[inline]
    pub fn show_row(&self, key: &[u8], row: &[u8], visitor: &mut impl RowVisitor) -> Result<()> {
        let (layout, body) = self.open_row(row)?;
        for (column, place) in layout.places.iter().enumerate() {
            match *place {
                Place::Fixed { bit, .. } | Place::Variable { bit, .. } if body.is_null(bit) => {
                    visitor.null(column);
                }
                Place::Variable { place, form, modifier, .. } => {
                    let bytes =
                        body.variable(place).ok_or_else(|| self.damaged("a column ends outside its row"))?;
                    match form {
                        Form::Text => visitor.text(column, bytes),
                        Form::Padded => visitor.padded(column, bytes, missing_blanks(bytes, modifier)),
                        Form::Bytes => visitor.bytes(column, bytes),
                        Form::Numeric => visitor.numeric(column, &numeric::decode_row(bytes)?),
                        _ => visitor.value(column, &decode_variable(form, modifier, bytes)?),
                    }
                }
                Place::Fixed { offset, form, .. } => match decode_whole(form, &body.fixed[offset..]) {
                    Some(whole) => visitor.whole(column, whole),
                    None => visitor.value(column, &self.column(column, key, layout, &body)?),
                },
                Place::Key(place) => match self.key_wholes[place] {
                    Some(whole) => visitor.whole(column, whole.read(key).ok_or_else(|| self.short_key())?),
                    None => visitor.value(column, &self.key_value(key, place)?),
                },
                Place::Missing | Place::Impossible => match self.column(column, key, layout, &body)? {
                    Value::Null => visitor.null(column),
                    value => visitor.value(column, &value),
                },
            }
        }
        Ok(())
    }

    /// A stored row, whose columns can be looked at one by one. `columns`: which there are, by position in the table.
    #[inline(always)]
    pub fn look<'r>(&'r self, key: &'r [u8], row: &'r [u8], columns: &'r [usize]) -> Result<StoredRow<'r>> {
        let (layout, body) = self.open_row(row)?;
        Ok(StoredRow { codec: self, layout, body, key, columns })
    }

    /// A column of a row, without a copy where it lies there as it is.
    #[inline(always)]
    fn field<'r>(&self, column: usize, key: &[u8], layout: &RowLayout, body: &Body<'r>) -> Result<Field<'r>> {
        Ok(match layout.places[column] {
            Place::Fixed { bit, .. } | Place::Variable { bit, .. } if body.is_null(bit) => Field::Null,
            Place::Variable {
                place,
                form: form @ (Form::Text | Form::Padded | Form::Bytes),
                modifier,
                ..
            } => {
                let bytes =
                    body.variable(place).ok_or_else(|| self.damaged("a column ends outside its row"))?;
                match form {
                    Form::Bytes => Field::Bytes(bytes),
                    Form::Padded => Field::Padded(bytes, missing_blanks(bytes, modifier)),
                    _ => Field::Text(bytes),
                }
            }
            Place::Variable { place, form: Form::Numeric, .. } => {
                let bytes =
                    body.variable(place).ok_or_else(|| self.damaged("a column ends outside its row"))?;
                Field::Numeric(numeric::decode_row(bytes)?)
            }
            Place::Fixed {
                offset, form: form @ (Form::Int2 | Form::Int4 | Form::Int8 | Form::Oid), ..
            } => {
                let whole = decode_whole(form, &body.fixed[offset..]);
                Field::Int(whole.ok_or_else(|| self.damaged("a row is too short"))?)
            }
            Place::Key(place) if self.key_wholes[place].is_some() => {
                let whole = self.key_wholes[place].and_then(|whole| whole.read(key));
                Field::Int(whole.ok_or_else(|| self.short_key())?)
            }
            _ => match self.column(column, key, layout, body)? {
                Value::Null => Field::Null,
                value => Field::Value(value),
            },
        })
    }

    /// The layout of a stored row, and what is behind its header.
    #[inline(always)]
    fn open_row<'r>(&self, row: &'r [u8]) -> Result<(&RowLayout, Body<'r>)> {
        let (header, body) = take_header(row).ok_or_else(|| self.damaged("a row without header"))?;
        let layout = usize::try_from(header >> 1)
            .ok()
            .and_then(|version| self.layouts.get(version.checked_sub(1)?))
            .ok_or_else(|| self.damaged("a row of a layout that the table does not have"))?;
        let body = layout.open(body, header & 1 == 1).ok_or_else(|| self.damaged("a row is too short"))?;
        Ok((layout, body))
    }

    /// Puts a text where there may be one with memory of its own; false where the column is no text, or NULL.
    #[inline]
    fn text_over(&self, column: usize, layout: &RowLayout, body: &Body<'_>, out: &mut Value) -> Result<bool> {
        let Place::Variable { place, form: Form::Text, bit, .. } = layout.places[column] else {
            return Ok(false);
        };
        if body.is_null(bit) {
            return Ok(false);
        }
        let bytes = body.variable(place).ok_or_else(|| self.damaged("a column ends outside its row"))?;
        let text = std::str::from_utf8(bytes).map_err(|_| self.damaged("a string that is no UTF-8"))?;
        out.become_text(text);
        Ok(true)
    }

    /// A column of a row.
    #[inline]
    fn column(&self, column: usize, key: &[u8], layout: &RowLayout, body: &Body<'_>) -> Result<Value> {
        match layout.places[column] {
            Place::Fixed { bit, .. } | Place::Variable { bit, .. } if body.is_null(bit) => Ok(Value::Null),
            Place::Fixed { offset, form, .. } => {
                decode_fixed(form, &body.fixed[offset..]).ok_or_else(|| self.damaged("a truth value"))
            }
            Place::Variable { place, form, modifier, .. } => {
                let bytes = body.variable(place);
                decode_variable(
                    form,
                    modifier,
                    bytes.ok_or_else(|| self.damaged("a column ends outside its row"))?,
                )
            }
            Place::Key(place) => self.key_value(key, place),
            Place::Missing => self.missing[column].clone(),
            Place::Impossible => Err(self.damaged("a column of a type that is not stored")),
        }
    }

    /// Appends the key of a row's entry in an index (by position in the table; not the primary one), and says whether another row
    /// with this key would violate uniqueness: then the entry's value is the row's key, else it is empty.
    pub fn index_key(&self, index: usize, row: &[Value], row_key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let index = &self.indexes[index];
        let mut conflicts = index.unique;
        for (column, at) in index.columns.iter().zip(&index.positions) {
            conflicts &= !row[*at].is_null();
            column.encode(&row[*at], out)?;
        }
        if !conflicts {
            out.extend_from_slice(row_key);
        }
        Ok(conflicts)
    }

    /// Key and value of a row's entry in an index (by position in the table; not the primary one). `conflicts`: whether an entry of this key
    /// means a violation of uniqueness.
    pub fn index_entry(&self, index: usize, row: &[Value], row_key: &[u8]) -> Result<IndexEntry> {
        let mut entry = IndexEntry::default();
        self.index_entry_into(index, row, row_key, &mut entry)?;
        Ok(entry)
    }

    /// The same in the place of another entry: for whoever looks at many, one after the other.
    pub fn index_entry_into(
        &self,
        index: usize,
        row: &[Value],
        row_key: &[u8],
        entry: &mut IndexEntry,
    ) -> Result<()> {
        entry.key.clear();
        entry.value.clear();
        entry.conflicts = self.index_key(index, row, row_key, &mut entry.key)?;
        if entry.conflicts {
            entry.value.extend_from_slice(row_key);
        }
        Ok(())
    }

    /// The row's key that an entry of an index leads to, as a part of the entry.
    pub fn index_row_key<'e>(&self, index: usize, key: &'e [u8], value: &'e [u8]) -> Result<&'e [u8]> {
        if !value.is_empty() {
            return Ok(value);
        }
        let mut rest = key;
        match self.key_width {
            // What stands before it is not looked at.
            Some(width) => rest = &key[key.len().checked_sub(width).unwrap_or(key.len())..],
            None => {
                for column in &self.indexes[index].columns {
                    column.skip(&mut rest)?;
                }
            }
        }
        if rest.is_empty() {
            return Err(self.damaged("an index entry without the key of its row"));
        }
        Ok(rest)
    }

    /// Appends the values of some columns, by position in the table, of an index entry. All of them are
    /// [covered](TableCodec::index_covers).
    pub fn decode_index(
        &self,
        index: usize,
        key: &[u8],
        value: &[u8],
        columns: &[usize],
        out: &mut Vec<Value>,
    ) -> Result<()> {
        let codec = &self.indexes[index];
        // Where the reading stands: the columns are usually asked for in their order.
        let (mut next, mut rest) = (0, key);
        let mut row_key = None;
        for column in columns {
            let source = codec.sources[*column]
                .ok_or_else(|| Error::internal("an index-only read of a column that the index has not"))?;
            match source {
                IndexSource::Column(place) => {
                    if place < next {
                        (next, rest) = (0, key);
                    }
                    for skipped in &codec.columns[next..place] {
                        skipped.skip(&mut rest)?;
                    }
                    out.push(codec.columns[place].decode(&mut rest)?);
                    next = place + 1;
                }
                IndexSource::RowKey(place) => {
                    let row_key = match row_key {
                        Some(found) => found,
                        None => *row_key.insert(self.index_row_key(index, key, value)?),
                    };
                    out.push(self.key_value(row_key, place)?);
                }
            }
        }
        Ok(())
    }

    /// A column of a row's key.
    fn key_value(&self, key: &[u8], place: usize) -> Result<Value> {
        self.key[place].decode(&mut self.key_from(key, place)?)
    }

    /// A key from this column of it on.
    fn key_from<'k>(&self, key: &'k [u8], place: usize) -> Result<&'k [u8]> {
        let mut rest = key;
        match self.key_offsets[place] {
            Some(offset) => rest = key.get(offset..).ok_or_else(|| self.short_key())?,
            None => {
                for column in &self.key[..place] {
                    column.skip(&mut rest)?;
                }
            }
        }
        Ok(rest)
    }

    #[cold]
    fn short_key(&self) -> Error {
        self.damaged("a row's key is too short")
    }

    fn damaged(&self, what: &str) -> Error {
        corrupted(&format!("{what} (table \"{}\")", self.table))
    }
}

/// The columns of a primary key, and where they stand.
fn key_columns(table: &Table, numbers: &[ColumnNumber]) -> (Vec<KeyColumn>, Vec<usize>) {
    let column = |number: &ColumnNumber| {
        let at = table.position(*number)?;
        let Column { ty, modifier, .. } = table.columns[at];
        Some((KeyColumn { ty, modifier, nullable: false, descending: false, nulls_first: false }, at))
    };
    numbers.iter().filter_map(column).unzip()
}

/// A stored string. Bytes that are none are an error, XX001.
pub fn as_text(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|_| corrupted("a string that is no UTF-8"))
}

/// How many blanks a stored string of type character(n) is padded with.
#[inline]
fn missing_blanks(bytes: &[u8], modifier: Modifier) -> usize {
    // What follows the first byte of a character is no character.
    let characters = || match bytes.is_ascii() {
        true => bytes.len(),
        false => bytes.iter().filter(|byte| **byte & 0xc0 != 0x80).count(),
    };
    padded_length(modifier).map_or(0, |length| length.saturating_sub(characters()))
}

fn missing_value(column: &Column) -> Result<Value> {
    match &column.missing {
        None => Ok(Value::Null),
        Some(stored) => text::read(stored, column.ty, column.modifier, &TextStyle::default()),
    }
}

impl IndexCodec {
    fn new(table: &Table, index: &Index, in_key: &[Option<usize>]) -> Self {
        let mut columns = Vec::with_capacity(index.columns.len());
        let mut positions = Vec::with_capacity(index.columns.len());
        let mut sources: Vec<_> = in_key.iter().map(|place| place.map(IndexSource::RowKey)).collect();
        for of_index in &index.columns {
            let Some(at) = table.position(of_index.column) else { continue };
            let Column { ty, modifier, .. } = table.columns[at];
            if is_lossless(ty, modifier) {
                sources[at] = Some(IndexSource::Column(columns.len()));
            }
            columns.push(KeyColumn {
                ty,
                modifier,
                nullable: true,
                descending: of_index.descending,
                nulls_first: of_index.nulls_first,
            });
            positions.push(at);
        }
        IndexCodec { columns, positions, unique: index.unique, sources }
    }
}

/// What is behind a row's header.
struct Body<'r> {
    /// The bitmap of NULLs and the columns of fixed width.
    fixed: &'r [u8],
    ends: &'r [u8],
    data: &'r [u8],
    wide: bool,
}

impl<'r> Body<'r> {
    fn is_null(&self, bit: usize) -> bool {
        self.fixed[bit / 8] >> (bit % 8) & 1 == 1
    }

    fn end(&self, place: usize) -> Option<usize> {
        if self.wide {
            let bytes = self.ends.get(place * 4..place * 4 + 4)?;
            usize::try_from(u32::from_le_bytes(bytes.try_into().ok()?)).ok()
        } else {
            let bytes = self.ends.get(place * 2..place * 2 + 2)?;
            Some(usize::from(u16::from_le_bytes(bytes.try_into().ok()?)))
        }
    }

    /// The bytes of a column of varying width.
    fn variable(&self, place: usize) -> Option<&'r [u8]> {
        let start = if place == 0 { 0 } else { self.end(place - 1)? };
        self.data.get(start..self.end(place)?)
    }
}

impl RowLayout {
    fn new(table: &Table, stored: &[ColumnNumber], in_key: &[Option<usize>]) -> Self {
        let mut places: Vec<Place> =
            in_key.iter().map(|place| place.map_or(Place::Missing, Place::Key)).collect();
        let columns: Vec<Option<usize>> = stored
            .iter()
            .map(|number| table.position(*number))
            .filter(|at| at.is_none_or(|at| in_key[at].is_none()))
            .collect();
        let bitmap = columns.len().div_ceil(8);
        let (mut fixed, mut variable, mut known) = (bitmap, 0, true);
        for (bit, at) in columns.into_iter().enumerate() {
            // Of a column that is gone nobody knows how wide it was; those behind it are out of reach.
            let Some(at) = at else {
                known = false;
                continue;
            };
            let column = &table.columns[at];
            places[at] = match Form::of(column.ty).filter(|_| known) {
                None => Place::Impossible,
                Some(form) => match form.width() {
                    Some(width) => {
                        fixed += width;
                        Place::Fixed { bit, offset: fixed - width, form }
                    }
                    None => {
                        variable += 1;
                        Place::Variable { bit, place: variable - 1, form, modifier: column.modifier }
                    }
                },
            };
        }
        RowLayout { places, fixed, variable }
    }

    /// Splits what is behind a row's header; `None` when it is too short.
    #[inline(always)]
    fn open<'r>(&self, body: &'r [u8], wide: bool) -> Option<Body<'r>> {
        let (fixed, rest) = body.split_at_checked(self.fixed)?;
        let (ends, data) = rest.split_at_checked(self.variable * if wide { 4 } else { 2 })?;
        Some(Body { fixed, ends, data, wide })
    }

    /// Appends what is behind the header; false when the ends do not fit their bytes.
    fn encode(&self, row: &[Value], wide: bool, out: &mut Vec<u8>) -> Result<bool> {
        let start = out.len();
        let ends = start + self.fixed;
        let end_width = if wide { 4 } else { 2 };
        let data = ends + self.variable * end_width;
        out.resize(data, 0);
        // The columns of varying width stand in the order of their places, which is that of their numbers.
        let mut in_order = true;
        let mut next = 0;
        for (value, place) in row.iter().zip(&self.places) {
            match *place {
                Place::Key(_) => {}
                Place::Fixed { bit, offset, form } => {
                    let width = form.width().unwrap_or(0);
                    encode_fixed(form, value, &mut out[start + offset..][..width])?;
                    set_null(&mut out[start..], bit, value);
                }
                Place::Variable { bit, place, .. } => {
                    in_order &= place == next;
                    next = place + 1;
                    set_null(&mut out[start..], bit, value);
                }
                Place::Missing | Place::Impossible => {
                    return Err(Error::internal("a column that the current layout does not have"));
                }
            }
        }
        let mut by_place: Vec<(usize, usize)> = Vec::new();
        if !in_order {
            by_place.extend(self.places.iter().enumerate().filter_map(|(at, place)| match place {
                Place::Variable { place, .. } => Some((*place, at)),
                _ => None,
            }));
            by_place.sort_unstable();
        }
        let ordered = by_place.iter().map(|(_, at)| *at);
        let given = 0..if in_order { row.len() } else { 0 };
        for at in ordered.chain(given) {
            let Place::Variable { place, form, modifier, .. } = self.places[at] else { continue };
            encode_variable(form, modifier, &row[at], out)?;
            let end = out.len() - data;
            let slot: Range<usize> = ends + place * end_width..ends + (place + 1) * end_width;
            match (wide, u16::try_from(end), u32::try_from(end)) {
                (false, Ok(end), _) => out[slot].copy_from_slice(&end.to_le_bytes()),
                (true, _, Ok(end)) => out[slot].copy_from_slice(&end.to_le_bytes()),
                _ => return Ok(false),
            }
        }
        Ok(true)
    }
}

fn set_null(bitmap: &mut [u8], bit: usize, value: &Value) {
    if value.is_null() {
        bitmap[bit / 8] |= 1 << (bit % 8);
    }
}

fn put_header(mut header: u64, out: &mut Vec<u8>) {
    while header >= 0x80 {
        out.push((header & 0x7f) as u8 | 0x80);
        header >>= 7;
    }
    out.push(header as u8);
}

/// A row's header and what is behind it.
#[inline(always)]
fn take_header(row: &[u8]) -> Option<(u64, &[u8])> {
    let mut header = 0;
    // Four groups of 7 bits hold more layouts than a table can have.
    for (index, byte) in row.iter().enumerate().take(4) {
        header |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((header, &row[index + 1..]));
        }
    }
    None
}

fn wrong(form: Form, value: &Value) -> Error {
    Error::internal(format!("{value:?} in a column of form {form:?}"))
}

/// Writes a value into its bytes, which are zeros; NULL leaves them so.
#[expect(clippy::cast_possible_truncation, reason = "a value of type real has that precision")]
fn encode_fixed(form: Form, value: &Value, out: &mut [u8]) -> Result<()> {
    match (form, value) {
        (_, Value::Null) => {}
        (Form::Bool, Value::Bool(value)) => out[0] = u8::from(*value),
        (Form::Int2 | Form::Int4 | Form::Int8 | Form::Oid, Value::Int(value)) => {
            let (least, largest) = form.int_range().unwrap_or((i64::MIN, i64::MAX));
            if !(least..=largest).contains(value) {
                return Err(wrong(form, &Value::Int(*value)));
            }
            let width = out.len();
            out.copy_from_slice(&value.to_le_bytes()[..width]);
        }
        (Form::Float4, Value::Float(value)) => out.copy_from_slice(&(*value as f32).to_le_bytes()),
        (Form::Float8, Value::Float(value)) => out.copy_from_slice(&value.to_le_bytes()),
        _ => return Err(wrong(form, value)),
    }
    Ok(())
}

/// Reads a whole number from its bytes; `None` when they are none.
#[inline]
fn decode_whole(form: Form, bytes: &[u8]) -> Option<i64> {
    Some(match form {
        Form::Int2 => i64::from(i16::from_le_bytes(*bytes.first_chunk()?)),
        Form::Int4 => i64::from(i32::from_le_bytes(*bytes.first_chunk()?)),
        Form::Int8 => i64::from_le_bytes(*bytes.first_chunk()?),
        Form::Oid => i64::from(u32::from_le_bytes(*bytes.first_chunk()?)),
        _ => return None,
    })
}

/// Reads a value from its bytes; `None` when they are none.
fn decode_fixed(form: Form, bytes: &[u8]) -> Option<Value> {
    Some(match form {
        Form::Bool => match bytes.first()? {
            0 => Value::Bool(false),
            1 => Value::Bool(true),
            _ => return None,
        },
        Form::Int2 | Form::Int4 | Form::Int8 | Form::Oid => Value::Int(decode_whole(form, bytes)?),
        Form::Float4 => Value::Float(f64::from(f32::from_le_bytes(*bytes.first_chunk()?))),
        Form::Float8 => Value::Float(f64::from_le_bytes(*bytes.first_chunk()?)),
        Form::Numeric | Form::Text | Form::Padded | Form::Bytes => return None,
    })
}

fn encode_variable(form: Form, modifier: Modifier, value: &Value, out: &mut Vec<u8>) -> Result<()> {
    match (form, value) {
        (_, Value::Null) => {}
        (Form::Numeric, Value::Numeric(number)) => numeric::encode_row(number, out),
        (Form::Text, Value::Text(text)) => out.extend_from_slice(text.as_bytes()),
        (Form::Padded, Value::Padded(text) | Value::Text(text)) => {
            let stored = if padded_length(modifier).is_some() { unpadded(text) } else { text };
            out.extend_from_slice(stored.as_bytes());
        }
        (Form::Bytes, Value::Bytes(bytes)) => out.extend_from_slice(bytes),
        _ => return Err(wrong(form, value)),
    }
    Ok(())
}

fn decode_variable(form: Form, modifier: Modifier, bytes: &[u8]) -> Result<Value> {
    match form {
        Form::Text => Ok(Value::Text(stored_text(bytes)?)),
        Form::Padded => padded(bytes, modifier),
        Form::Bytes => Ok(Value::Bytes(bytes.into())),
        _ => Ok(Value::Numeric(numeric::decode_row(bytes)?)),
    }
}

#[cfg(test)]
#[path = "row_tests.rs"]
mod tests;
