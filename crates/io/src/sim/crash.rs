//! What is left on the device when the power comes back.

use super::content::Content;
use super::inode::{Change, Effect, Inode, PendingWrite};
use super::names::Names;
use super::state::{InFlight, State, Target};
use crate::SECTOR;
use gannet_base::sim::Generator;
use std::collections::BTreeMap;

/// Which unsynced effects survive a crash. [`super::SimDisk::crash_image`] lets the seed choose one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CrashPolicy {
    /// Nothing that was not durable.
    KeepNone,
    /// Everything, transfers in flight included.
    KeepAll,
    /// What was done before some moment; the effect of that moment itself may be torn.
    KeepPrefix,
    /// Of each file all or nothing, names alike: one file far ahead of another.
    PerFile,
    /// Each effect whole or not at all, independently.
    PerWrite,
    /// Each sector on its own.
    PerSector,
}

impl CrashPolicy {
    /// Every policy.
    pub const ALL: [CrashPolicy; 6] = [
        CrashPolicy::KeepNone,
        CrashPolicy::KeepAll,
        CrashPolicy::KeepPrefix,
        CrashPolicy::PerFile,
        CrashPolicy::PerWrite,
        CrashPolicy::PerSector,
    ];
}

/// Decides the fate of each effect.
struct Chooser {
    policy: CrashPolicy,
    random: Generator,
    /// Under [`CrashPolicy::KeepPrefix`] the sequence number at the border.
    cut: u64,
    /// Effects kept of eight, under the independent policies.
    keep_of_8: u64,
    files: BTreeMap<u64, bool>,
}

/// Stands for all names in [`Chooser::files`].
const NAMES: u64 = u64::MAX;

impl Chooser {
    fn new(policy: CrashPolicy, mut random: Generator, sequences: &[u64]) -> Self {
        let border = random.below(sequences.len() as u64 + 1) as usize;
        let cut = sequences.get(border).copied().unwrap_or(u64::MAX);
        let keep_of_8 = [1, 4, 7][random.below(3) as usize];
        Chooser { policy, random, cut, keep_of_8, files: BTreeMap::new() }
    }

    fn coin(&mut self) -> bool {
        self.random.below(8) < self.keep_of_8
    }

    fn keep(&mut self, sequence: u64, file: u64) -> bool {
        match self.policy {
            CrashPolicy::KeepNone => false,
            CrashPolicy::KeepAll => true,
            CrashPolicy::KeepPrefix if sequence == self.cut => self.coin(),
            CrashPolicy::KeepPrefix => sequence < self.cut,
            CrashPolicy::PerFile => {
                let coin = self.random.one_in(2);
                *self.files.entry(file).or_insert(coin)
            }
            CrashPolicy::PerWrite | CrashPolicy::PerSector => self.coin(),
        }
    }

    fn keep_sectors(&mut self, sequence: u64, file: u64, write: &PendingWrite) -> Vec<bool> {
        let torn = self.policy == CrashPolicy::PerSector
            || self.policy == CrashPolicy::KeepPrefix && sequence == self.cut;
        if torn && !write.atomic {
            return write.live.iter().map(|_| self.coin()).collect();
        }
        vec![self.keep(sequence, file); write.live.len()]
    }
}

/// The disk as it is found after a crash of `old`.
pub(super) fn image(old: &State, policy: Option<CrashPolicy>, seed: u64) -> State {
    let mut random = Generator::new(seed ^ 0xC4A5_4000_0000_0000);
    let drawn = CrashPolicy::ALL[random.below(CrashPolicy::ALL.len() as u64) as usize];
    let mut new = State::new(random.next_u64(), old.settings.clone());
    let mut chooser = Chooser::new(policy.unwrap_or(drawn), random, &unsettled(old));
    let names = old.names.image(|sequence| chooser.keep(sequence, NAMES));
    for (&number, inode) in &old.inodes {
        let flying = old.in_flight.iter().filter(|(_, flying)| flying.inode == number);
        let effects = inode.pending.iter().cloned().chain(landing(inode, flying));
        let content = survive(number, inode.durable.clone(), effects, &mut chooser);
        if names.files.values().any(|linked| *linked == number) {
            new.inodes.insert(number, inode.settled(content));
        }
    }
    // New files must not get the numbers of old ones.
    while new.number() <= new.inodes.keys().next_back().copied().unwrap_or(0) {}
    new.names = Names::settled(names);
    new
}

/// Sequence numbers of everything a crash may lose, in order.
fn unsettled(old: &State) -> Vec<u64> {
    let effects = old.inodes.values().flat_map(|inode| inode.pending.iter().map(|e| e.sequence));
    let mut sequences: Vec<u64> =
        effects.chain(old.in_flight.keys().copied()).chain(old.names.pending_sequences()).collect();
    sequences.sort_unstable();
    sequences
}

/// The writes in flight to a file as if they had just reached the device.
fn landing<'a>(
    inode: &'a Inode,
    flying: impl Iterator<Item = (&'a u64, &'a InFlight)> + 'a,
) -> impl Iterator<Item = Effect> + 'a {
    let mut len = inode.visible.len();
    flying.filter_map(|(id, flying)| Some((*id, flying.offset, flying.write.as_ref()?))).flat_map(
        move |(sequence, offset, write)| {
            let end = offset + write.data.len() as u64;
            let grow = (end > len).then_some(end);
            len = len.max(end);
            let effect = |offset, grow, live| {
                let (data, atomic) = (write.data.clone(), write.kind.atomic);
                let live = vec![live; data.len() / SECTOR];
                Effect { sequence, change: Change::Write(PendingWrite { offset, data, live, atomic, grow }) }
            };
            let home = effect(offset, grow, write.target == Target::Home);
            let elsewhere = match write.target {
                Target::Elsewhere(offset) => Some(effect(offset, None, true)),
                _ => None,
            };
            std::iter::once(home).chain(elsewhere)
        },
    )
}

/// Applies the effects that survive to what is durable.
fn survive(
    file: u64,
    mut content: Content,
    effects: impl Iterator<Item = Effect>,
    chooser: &mut Chooser,
) -> Content {
    let mut journal_goes_on = true;
    for Effect { sequence, change } in effects {
        let Change::Write(write) = change else {
            journal_goes_on = journal_goes_on && chooser.keep(sequence, file);
            if journal_goes_on {
                change.apply(&mut content);
            }
            continue;
        };
        if let Some(len) = write.grow {
            journal_goes_on = journal_goes_on && chooser.keep(sequence, file);
            if journal_goes_on {
                content.grow(len);
            }
        }
        let keep = chooser.keep_sectors(sequence, file, &write);
        // An atomic write that would be cut by the file's end did not happen.
        if !write.atomic || content.len() >= write.end() || content.len() <= write.offset {
            write.store(&mut content, |index| keep[index]);
        }
    }
    // Sectors that arrived behind a size that did not.
    content.set_len(content.len());
    content
}
