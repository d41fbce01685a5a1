//! States of aggregates.
use crate::Result;
use crate::types::Value;

/// The state of an aggregate over some rows.
#[derive(Clone, Debug)]
pub struct Accumulator(());

impl Accumulator {
    /// Takes one row's arguments. Strict aggregates pass over NULL themselves.
    pub fn add(&mut self, arguments: &[Value]) -> Result<()> {
        let _ = arguments;
        Ok(())
    }

    /// The result so far.
    pub fn finish(self) -> Result<Value> {
        Ok(Value::Null)
    }

    /// Bytes on the heap, for memory accounting.
    pub fn heap_bytes(&self) -> usize {
        0
    }
}
