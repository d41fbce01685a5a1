//! What settings were before a transaction has changed them.
//!
//! # Invariants
//! 1. A setting has one entry for each savepoint behind which it was changed, and one for the transaction before its first savepoint, however
//!    often it is changed: an entry that is followed by another of the same savepoint absorbs it.
//! 2. So the entries behind the last savepoint are bounded by the number of settings and the length of their texts, which settings bound
//!    themselves; they are part of what a session is charged as. Those before it are charged with that savepoint.

/// What one setting was before changes of it, and what stays of them at a commit.
#[derive(Debug)]
pub(super) struct Undo {
    pub(super) index: usize,
    /// Its text before the first of them: what a rollback goes back to.
    pub(super) before: String,
    pub(super) stays: Stays,
}

/// What a setting is behind the commit of a transaction that has changed it.
#[derive(Debug)]
pub(super) enum Stays {
    /// What it is now: the last change is a SET.
    Now,
    /// What it was before: SET LOCAL only.
    Before,
    /// What SET made of it before a SET LOCAL.
    This(String),
}

impl Undo {
    /// A change that comes right behind those of this entry becomes one of them.
    fn absorb(&mut self, later: Undo) {
        match later.stays {
            Stays::Before if matches!(self.stays, Stays::Now) => self.stays = Stays::This(later.before),
            Stays::Before => {}
            stays => self.stays = stays,
        }
    }

    /// What the setting is to be at the transaction's end; `None`: what it is.
    pub(super) fn outcome(self, committed: bool) -> Option<String> {
        match self.stays {
            _ if !committed => Some(self.before),
            Stays::Now => None,
            Stays::Before => Some(self.before),
            Stays::This(text) => Some(text),
        }
    }

    fn bytes(&self) -> usize {
        let text = match &self.stays {
            Stays::Now | Stays::Before => 0,
            Stays::This(text) => text.capacity(),
        };
        size_of::<Self>() + self.before.capacity() + text
    }
}

/// The entries of a transaction, in the order of its savepoints.
#[derive(Debug, Default)]
pub(super) struct UndoList {
    entries: Vec<Undo>,
    /// Where those behind the last savepoint begin.
    marked: usize,
}

impl UndoList {
    /// Notes a change.
    pub(super) fn note(&mut self, change: Undo) {
        match self.entries[self.marked..].iter_mut().find(|entry| entry.index == change.index) {
            Some(entry) => entry.absorb(change),
            None => self.entries.push(change),
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Begins a transaction, or a savepoint: gives where its entries will stand.
    pub(super) fn mark(&mut self) -> usize {
        self.marked = self.entries.len();
        self.marked
    }

    /// Bytes of the entries behind the last savepoint.
    pub(super) fn bytes_behind_mark(&self) -> usize {
        self.entries[self.marked..].iter().map(Undo::bytes).sum()
    }

    /// Savepoints are released: their entries, from `from` on, become those of what is before them, whose entries begin at `mark`.
    pub(super) fn merge(&mut self, from: usize, mark: usize) {
        let later = self.entries.split_off(from);
        self.marked = mark;
        later.into_iter().for_each(|change| self.note(change));
    }

    /// Takes the entries from a mark on: one for each setting.
    pub(super) fn take(&mut self, mark: usize) -> Vec<Undo> {
        let first = self.marked.min(mark);
        self.merge(mark, mark);
        self.marked = first;
        self.entries.split_off(mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A setting and its list.
    struct Setting {
        now: String,
        list: UndoList,
    }

    impl Setting {
        fn set(&mut self, text: &str, local: bool) {
            let before = std::mem::replace(&mut self.now, text.to_owned());
            let stays = if local { Stays::Before } else { Stays::Now };
            self.list.note(Undo { index: 7, before, stays });
        }

        fn end(&mut self, mark: usize, committed: bool) {
            for undo in self.list.take(mark) {
                if let Some(text) = undo.outcome(committed) {
                    self.now = text;
                }
            }
        }
    }

    #[test]
    fn what_stays_is_what_set_said_last() {
        // Changes by SET (capitals) and SET LOCAL, a savepoint's begin and end; what a commit leaves.
        for (changes, stays) in [
            ("A", "A"),
            ("a", "-"),
            ("aB", "B"),
            ("Ab", "A"),
            ("AbCd", "C"),
            ("abc", "-"),
            ("A(b)", "A"),
            ("a(B)", "B"),
            ("a(b)", "-"),
            ("A(bC)", "C"),
            ("A(Bc)", "B"),
            ("a(b(C)d)", "C"),
            ("A(b(c)d)e", "A"),
            ("(A(b(", "A"),
            ("a(B(c", "B"),
        ] {
            for committed in [true, false] {
                let mut setting = Setting { now: "-".to_owned(), list: UndoList::default() };
                let mut marks = vec![setting.list.mark()];
                for change in changes.chars() {
                    match change {
                        '(' => marks.push(setting.list.mark()),
                        ')' => {
                            let from = marks.pop().unwrap();
                            setting.list.merge(from, *marks.last().unwrap());
                        }
                        _ => setting.set(&change.to_string(), change.is_lowercase()),
                    }
                }
                setting.end(0, committed);
                assert_eq!(setting.now, if committed { stays } else { "-" }, "{changes} {committed}");
                assert_eq!(setting.list.len(), 0);
            }
        }
    }

    #[test]
    fn a_rollback_to_a_savepoint_takes_back_what_came_behind_it() {
        let mut setting = Setting { now: "-".to_owned(), list: UndoList::default() };
        setting.list.mark();
        setting.set("a", true);
        let mark = setting.list.mark();
        setting.set("B", false);
        setting.list.mark();
        setting.set("c", true);
        setting.end(mark, false);
        assert_eq!(setting.now, "a");
        setting.set("D", false);
        setting.end(mark, false);
        assert_eq!(setting.now, "a");
        setting.end(0, true);
        assert_eq!(setting.now, "-");
    }

    #[test]
    fn there_is_one_entry_however_often_a_setting_is_changed() {
        let mut setting = Setting { now: "-".to_owned(), list: UndoList::default() };
        setting.list.mark();
        for number in 0..1000 {
            setting.set("x", number % 2 == 0);
            let from = setting.list.mark();
            setting.set("y", number % 3 == 0);
            setting.list.merge(from, 0);
        }
        assert_eq!(setting.list.len(), 1);
    }
}
