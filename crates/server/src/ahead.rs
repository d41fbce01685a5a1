//! What a client has sent behind the statement that is about to run: pages that those statements will ask for come from the device together, in place of
//! one by one as each statement gets there. A client that asks many statements at once (a pipeline, a batch) is what makes that possible.
//!
//! # Guarantees
//! 1. It is a hint: nothing that is found here is told to anybody, and no message is taken out of its turn.
//! 2. Each message is looked at once, among those that have come by then; nothing is waited for. Memory is taken for no more than what is read at once holds.
//! 3. Where what statements ask for is in memory, nobody looks: what that costs is to be less than what it saves.

use crate::client::read_formats;
use crate::message::{self, Message};
use gannet_sql::session::{Formats, Session};
use gannet_sql::types::text::TextStyle;
use gannet_sql::types::{binary, cast, text};
use gannet_sql::{Type, Value};
use gannet_store::thread_reads;

/// Reads of the device for each statement from which on it is looked ahead. To look at a statement takes a tenth of what a read takes that one waits for.
const WORTHWHILE: f64 = 1.0 / 16.0;
/// The part of the last statements in the average of reads.
const LATEST: f64 = 0.25;
/// Longest value that is looked at, in bytes of the message and of what is made of it: few keys are longer.
const VALUE_MAX: usize = 2048;

/// What a connection's thread has found, and what comes.
#[derive(Debug)]
pub(crate) struct Ahead {
    /// Messages to come that were looked at.
    covered: usize,
    /// Statements since the last look.
    binds: u32,
    /// Reads of this thread until then.
    reads: u64,
    /// Reads for each statement, on average. At first, as if it were worthwhile.
    rate: f64,
}

impl Default for Ahead {
    fn default() -> Self {
        Ahead { covered: 0, binds: 0, reads: reads(), rate: 1.0 }
    }
}

/// Pages that this thread has had read, whether it waited for each or for many.
fn reads() -> u64 {
    let reads = thread_reads();
    reads.serial_reads + reads.batched_reads
}

/// Whole messages: type and body.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (&[kind, a, b, c, d], rest) = bytes.split_first_chunk::<5>()?;
        let len = usize::try_from(u32::from_be_bytes([a, b, c, d])).ok()?.checked_sub(4)?;
        let (body, behind) = rest.split_at_checked(len)?;
        bytes = behind;
        Some((kind, body))
    })
}

/// A value of this type; `None` where it is none, or not worth a look.
fn value(bytes: Option<&[u8]>, is_binary: bool, ty: Type, style: &TextStyle) -> Option<Value> {
    let Some(bytes) = bytes else { return Some(Value::Null) };
    if bytes.len() > VALUE_MAX {
        return None;
    }
    if is_binary {
        let fits = cast::binary_bytes(bytes, ty) <= VALUE_MAX;
        return fits.then(|| binary::read(bytes, ty, -1).ok())?;
    }
    let word = text::check_utf8(bytes).ok()?;
    let fits = cast::text_bytes(word, ty, -1) <= VALUE_MAX;
    fits.then(|| text::read(word, ty, -1, style).ok())?
}

impl Ahead {
    /// A message is about to be dealt with, behind which `behind` has come.
    pub(crate) fn look(&mut self, kind: u8, body: &[u8], behind: &[u8], session: &mut Session) {
        self.binds += u32::from(kind == b'B');
        if let Some(left) = self.covered.checked_sub(1) {
            self.covered = left;
            return;
        }
        if kind == b'B' && !behind.is_empty() && session.can_look_ahead() {
            self.settle();
            if self.rate >= WORTHWHILE {
                self.look_at(body, behind, session);
            }
        }
    }

    /// A message has no effect.
    pub(crate) fn pass_over(&mut self) {
        self.covered = self.covered.saturating_sub(1);
    }

    /// Reckons with what was read since the last time.
    pub(crate) fn settle(&mut self) {
        if self.binds > 0 {
            let reads = reads();
            let latest = (reads - self.reads) as f64 / f64::from(self.binds);
            self.rate += (latest - self.rate) * LATEST;
            (self.reads, self.binds) = (reads, 0);
        }
    }

    fn look_at(&mut self, body: &[u8], behind: &[u8], session: &mut Session) {
        let mut statements = Vec::new();
        let mut values = Vec::new();
        let mut add = |body| {
            if let Ok(Message::Bind { statement, formats, values: given, .. }) = message::parse(b'B', body)
                && let Ok(prepared) = session.prepared(statement)
                && given.len() == prepared.parameters().len()
                && (formats.len() < 2 || formats.len() == given.len())
                && let Ok(formats) = read_formats(formats)
            {
                statements.push(prepared);
                values.push((given, formats));
            }
        };
        add(body);
        let mut covered = 0;
        for (kind, body) in messages(behind) {
            covered += 1;
            match kind {
                b'B' => add(body),
                // What it names is not there yet, or has another meaning then.
                b'P' | b'Q' => break,
                _ => {}
            }
        }
        self.covered = covered;
        if statements.len() < 2 {
            return;
        }
        let style = session.input_style().clone();
        let mut give = |statement: usize, place: usize| {
            let (given, formats): &(Vec<Option<&[u8]>>, Formats) = &values[statement];
            let ty = statements[statement].parameters()[place];
            value(given[place], formats.is_binary(place), ty, &style)
        };
        session.look_ahead(&statements, &mut give);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_are_not_whole_are_left_alone() {
        let bytes = [b'B', 0, 0, 0, 6, 1, 2, b'S', 0, 0, 0, 4, b'E', 0, 0, 0, 9, 0];
        let whole: Vec<_> = messages(&bytes).collect();
        assert_eq!(whole, [(b'B', &[1, 2][..]), (b'S', &[])]);
        for len in 0..7 {
            assert_eq!(messages(&bytes[..len]).count(), 0);
        }
        // Lengths that no message has.
        assert_eq!(messages(&[b'B', 0, 0, 0, 3, 0]).count(), 0);
        assert_eq!(messages(&[b'B', 255, 255, 255, 255, 0]).count(), 0);
    }
}
