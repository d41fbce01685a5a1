//! A session of this process as the place that is loaded to.

use super::{Destination, More};
use crate::session::{Client, CommandTag, CopyFormat, Notice, OutputColumn, Session, TransactionStatus};
use crate::types::text::TextStyle;
use crate::{Result, Value};

/// A session of this process.
#[derive(Debug)]
pub struct Embedded(pub Session);

impl Destination for Embedded {
    fn run(&mut self, sql: &str) -> Result<()> {
        self.0.run(sql, &mut Giver { more: None, rows: 0 })
    }

    fn copy(&mut self, sql: &str, more: More<'_>) -> Result<u64> {
        let mut giver = Giver { more: Some(more), rows: 0 };
        self.0.run(sql, &mut giver)?;
        Ok(giver.rows)
    }

    fn is_idle(&self) -> bool {
        self.0.status() == TransactionStatus::Idle
    }

    fn session(&mut self) -> Option<&mut Session> {
        Some(&mut self.0)
    }
}

/// Has data for COPY, and no interest in results.
struct Giver<'m> {
    more: Option<More<'m>>,
    rows: u64,
}

impl Client for Giver<'_> {
    fn columns(&mut self, _columns: &[OutputColumn], _style: &TextStyle) -> Result<()> {
        Ok(())
    }

    fn row(&mut self, _values: &[Value], _columns: &[OutputColumn], _style: &TextStyle) -> Result<()> {
        Ok(())
    }

    fn complete(&mut self, tag: &CommandTag) -> Result<()> {
        self.rows = tag.rows.unwrap_or(0);
        Ok(())
    }

    fn empty(&mut self) -> Result<()> {
        Ok(())
    }

    fn notice(&mut self, _notice: &Notice) {}

    fn setting_changed(&mut self, _name: &str, _value: &str) {}

    fn copy_in(&mut self, _format: &CopyFormat) -> Result<()> {
        Ok(())
    }

    fn copy_read(&mut self, data: &mut Vec<u8>) -> Result<bool> {
        match &mut self.more {
            Some(more) => more(data),
            None => Ok(false),
        }
    }

    fn copy_out(&mut self, _format: &CopyFormat) -> Result<()> {
        Ok(())
    }

    fn copy_write(&mut self, _data: &[u8]) -> Result<()> {
        Ok(())
    }

    fn copy_out_end(&mut self) -> Result<()> {
        Ok(())
    }
}
