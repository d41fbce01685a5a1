//! Identifiers that appear in file formats. All are plain integers with a type of their own, so that a page
//! number is never mistaken for a log position.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($repr:ty), $display:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $repr);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($display, "{}"), self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

id! {
    /// Number of a page: its byte offset in the data file divided by the page size.
    PageId(u64), "page "
}

id! {
    /// Log sequence number: a byte position in the endless log. A record's LSN is the position just behind
    /// its last byte, so "the log is durable up to `x`" covers every record with an LSN of at most `x`.
    Lsn(u64), "lsn "
}

id! {
    /// Number of a writing transaction, given out in the order of their first write. 0 means "none".
    TxnId(u64), "transaction "
}

id! {
    /// Number of a tree inside one database. Small numbers are the store's own (see `docs/format.md`).
    TreeId(u32), "tree "
}

impl PageId {
    /// No page. Page 0 holds the file's header, so nothing ever points to it.
    pub const NONE: PageId = PageId(0);

    /// Whether this is [`PageId::NONE`].
    pub fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl Lsn {
    /// Before every record.
    pub const ZERO: Lsn = Lsn(0);
}

impl TxnId {
    /// No transaction: the version is settled and visible to everybody.
    pub const NONE: TxnId = TxnId(0);

    /// Whether this is [`TxnId::NONE`].
    pub fn is_none(self) -> bool {
        self.0 == 0
    }
}
