//! What a client has sent behind the statement that is about to run: pages that those statements will ask for come from the device together, in place of
//! one by one as each statement gets there. A client that asks many statements at once (a pipeline, a batch) is what makes that possible.
//!
//! # Guarantees
//! 1. It is a hint: nothing that is found here is told to anybody, and no message is taken out of its turn.
//! 2. Each message is looked at once, among those that have come by then; nothing is read meanwhile. Memory is taken for no more than what is read at once holds, and
//!    for so many keys as are fetched at one time.
//! 3. Where what statements ask for is in memory, nobody looks: what that costs is to be less than what it saves.

use crate::client::read_formats;
use crate::message::{self, Message};
use crate::stream::Stream;
use gannet_sql::session::{Formats, Prepared, Session};
use gannet_sql::types::text::TextStyle;
use gannet_sql::types::{binary, cast, text};
use gannet_sql::{Type, Value};
use gannet_store::thread_reads;
use std::sync::Arc;

/// Reads of the device for each statement from which on it is looked ahead. To look at a statement takes a tenth of what a read takes that one waits for.
const WORTHWHILE: f64 = 1.0 / 16.0;
/// The part of the last statements in the average of reads.
const LATEST: f64 = 0.25;
/// Bytes in front of a message's body.
const HEAD: usize = 5;
/// Longest value that is looked at, in bytes of the message and of what is made of it: few keys are longer.
const VALUE_MAX: usize = 2048;

/// What a connection's thread has found, and what comes.
#[derive(Debug)]
pub(crate) struct Ahead {
    /// Where in what the client sends those messages end that were looked at.
    looked_until: u64,
    /// Statements since the last look.
    binds: u32,
    /// Reads of this thread until then.
    reads: u64,
    /// Reads for each statement, on average. At first, as if it were worthwhile.
    rate: f64,
}

impl Default for Ahead {
    fn default() -> Self {
        Ahead { looked_until: 0, binds: 0, reads: reads(), rate: 1.0 }
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
        let (&[kind, a, b, c, d], rest) = bytes.split_first_chunk::<HEAD>()?;
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
    /// A message is about to be dealt with that was read from `stream` last.
    pub(crate) fn look(&mut self, kind: u8, body: &[u8], stream: &Stream, session: &mut Session) {
        if kind != b'B' {
            return;
        }
        self.binds += 1;
        let (position, behind) = (stream.position(), stream.already_read());
        if position > self.looked_until && !behind.is_empty() && session.can_look_ahead() {
            self.settle();
            if self.rate >= WORTHWHILE {
                self.looked_until = position + look_at(body, behind, session) as u64;
            }
        }
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
}

/// Values of a statement, and how they are written.
type Values<'m> = (Vec<Option<&'m [u8]>>, Formats);

/// Looks at a statement and at those in what came behind it; gives the bytes of that that were looked at.
fn look_at(body: &[u8], behind: &[u8], session: &mut Session) -> usize {
    let (mut statements, mut values): (Vec<Arc<Prepared>>, Vec<Values<'_>>) = Default::default();
    // Where each statement begins, and where the last message ends, from the begin of the first one on.
    let (mut begins, mut end) = (Vec::new(), 0);
    for (kind, body) in std::iter::once((b'B', body)).chain(messages(behind)) {
        match kind {
            b'B' => {
                if let Ok(Message::Bind { statement, formats, values: given, .. }) =
                    message::parse(kind, body)
                    && let Ok(prepared) = session.prepared(statement)
                    && given.len() == prepared.parameters().len()
                    && (formats.len() < 2 || formats.len() == given.len())
                    && let Ok(formats) = read_formats(formats)
                {
                    statements.push(prepared);
                    values.push((given, formats));
                    begins.push(end);
                }
            }
            // What it names is not there yet, or has another meaning then.
            b'P' | b'Q' => break,
            _ => {}
        }
        end += HEAD + body.len();
    }
    let first = HEAD + body.len();
    if statements.len() < 2 {
        return end.saturating_sub(first);
    }
    let style = session.input_style().clone();
    let mut give = |statement: usize, place: usize| {
        let (given, formats) = &values[statement];
        let ty = statements[statement].parameters()[place];
        value(given[place], formats.is_binary(place), ty, &style)
    };
    let looked_at = session.look_ahead(&statements, &mut give);
    begins.get(looked_at).copied().unwrap_or(end).saturating_sub(first)
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
