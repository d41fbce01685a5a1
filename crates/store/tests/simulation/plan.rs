//! What a seed stands for: the shape of the database, of the load, and of the trouble.

use gannet_base::sim::Generator;
use gannet_io::sim::{Chance, Faults, Settings};
use gannet_store::{CreateOptions, EngineOptions, OpenOptions};
use std::time::Duration;

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) create: CreateOptions,
    pub(crate) engine: EngineOptions,
    pub(crate) open: OpenOptions,
    pub(crate) disk: Settings,
    pub(crate) epochs: u64,
    pub(crate) sessions: u64,
    pub(crate) transactions: u64,
    pub(crate) operations: u64,
    pub(crate) keys: u64,
    /// Longest part of a key that carries no information.
    pub(crate) key_padding: u64,
    pub(crate) value_max: u64,
    /// One value in so many goes to pages of its own; 0 for none.
    pub(crate) long_one_in: u64,
    pub(crate) long_max: u64,
    pub(crate) initial_rows: u64,
    pub(crate) trees: u64,
    /// Percent of the writes that remove a row, on top of the usual ones.
    pub(crate) deletes: u64,
    /// One transaction in so many does more than a restart reverts at one time; 0 for none.
    pub(crate) huge_one_in: u64,
    /// Somebody compacts the database while others work.
    pub(crate) compacts: bool,
    /// Somebody takes backups of the database while others work, and restores them.
    pub(crate) backs_up: bool,
    /// In the last life bytes go bad.
    pub(crate) damage: Option<Damage>,
}

/// What goes wrong in one life of the database.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    /// Nothing, and a clean end.
    None,
    /// The power goes at this I/O from the opening on.
    Crash(u64),
    /// The device fails now and then; `power` says whether the machine goes down with it.
    Faults { faults: Box<Faults>, power: bool },
    /// Others fill the device, but for so many bytes.
    Full(u64),
}

/// How bytes go bad.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ill {
    /// Bits change where they lie.
    Rot,
    /// Writes are stored in another place of the file, and acknowledged.
    Misdirected,
    /// Writes are acknowledged, and not stored.
    Lost,
}

/// Bytes go bad in one file.
#[derive(Clone, Debug)]
pub(crate) struct Damage {
    pub(crate) ill: Ill,
    /// What the file's path ends with.
    pub(crate) file: &'static str,
    /// Places that rot at one time; one write in so many is a lie.
    pub(crate) amount: u64,
    /// While the database is closed, before this life and behind it.
    pub(crate) before: bool,
    pub(crate) behind: bool,
    /// The power goes at this I/O.
    pub(crate) crash: Option<u64>,
}

impl Damage {
    fn new(random: &mut Generator) -> Self {
        let ill = pick(random, &[Ill::Rot, Ill::Rot, Ill::Misdirected, Ill::Lost]);
        let most = if ill == Ill::Rot { 4 } else { 40 };
        let within = 1 << (4 + random.below(8));
        Damage {
            ill,
            file: pick(random, &[".gnt", ".gnt", ".gnt", "/ring", "/hot", ".log"]),
            amount: 1 + random.below(most),
            before: ill == Ill::Rot && random.one_in(2),
            behind: ill == Ill::Rot && random.one_in(2),
            crash: random.one_in(2).then(|| 1 + random.below(within)),
        }
    }

    /// What the device does about it while the database is in use.
    pub(crate) fn faults(&self) -> Faults {
        let chance = |ill| if self.ill == ill { Chance::OneIn(self.amount) } else { Chance::Never };
        Faults {
            misdirected_write: chance(Ill::Misdirected),
            lost_write: chance(Ill::Lost),
            only: Some(self.file.to_owned()),
            // A page that was lost reads as well as any. From then on nothing the database says can be held against it.
            power_off_at_lie: Some(".gnt".to_owned()),
            ..Faults::default()
        }
    }
}

/// Operations that a huge transaction does beyond those of others.
pub(crate) const HUGE_OPERATIONS: u64 = 300;

fn pick<T: Clone>(random: &mut Generator, of: &[T]) -> T {
    of[random.below(of.len() as u64) as usize].clone()
}

impl Plan {
    pub(crate) fn new(seed: u64) -> Self {
        let random = &mut Generator::new(seed ^ 0x5EED);
        let page_size = pick(random, &[4096, 4096, 4096, 8192, 8192, 16384, 32768]);
        let segment_size = (64 * page_size as u64).max(1 << 18);
        let memory = if page_size == 32768 { 10 << 20 } else { 8 << 20 };
        let large = random.one_in(4);
        let keys = if large { 2000 + random.below(3000) } else { 10 + random.below(300) };
        let mut plan = Plan {
            seed,
            create: CreateOptions { page_size, segment_size },
            engine: EngineOptions { memory, ..EngineOptions::default() },
            open: OpenOptions {
                wal_limit: if random.one_in(4) { 64 << 20 } else { 4 * segment_size },
                max_delay: Duration::from_millis(pick(random, &[2, 20, 200])),
                shutdown_limit: Duration::from_millis(pick(random, &[0, 5, 10_000, 10_000])),
                // Drawn apart, as below.
                archive: Generator::new(seed ^ 0xA_2C417E).one_in(2).then(|| "archive".into()),
                ..OpenOptions::default()
            },
            disk: Settings {
                atomic_write_max: if random.one_in(6) { 32768 } else { 0 },
                // What `fit_the_disk` bounds is in the log, in an archive that crashes make repeat itself, and in what is restored from it.
                capacity_bytes: Some(4 << 30),
                ..Settings::default()
            },
            epochs: 2 + random.below(4),
            sessions: 1 + random.below(5),
            transactions: if random.one_in(6) { 100 } else { 4 + random.below(24) },
            operations: pick(random, &[3, 8, 8, 20, 80]),
            keys,
            key_padding: pick(random, &[0, 0, 20, 400]),
            value_max: if large { 900 } else { pick(random, &[20, 100, 700]) },
            long_one_in: pick(random, &[0, 30, 10]),
            long_max: pick(random, &[20_000, 60_000, 400_000]),
            initial_rows: if large { keys } else { random.below(keys) },
            trees: 1 + random.below(4),
            deletes: pick(random, &[0, 0, 30, 60]),
            huge_one_in: pick(random, &[0, 0, 10, 40]),
            // Drawn apart: what else a seed stands for is as it was before there were compactions.
            compacts: Generator::new(seed ^ 0xC0_47AC7).one_in(2),
            backs_up: Generator::new(seed ^ 0xBAC_0B5).one_in(3),
            damage: random.one_in(3).then(|| Damage::new(random)),
        };
        plan.fit_the_disk();
        plan
    }

    /// Shortens the long values of a plan that would write more than the disk holds: an archive keeps all of the log, and only the
    /// troubles of a life are to be about a full disk.
    fn fit_the_disk(&mut self) {
        if self.open.archive.is_some() && self.long_bytes() > self.bytes_most() {
            self.long_max = 2 * self.bytes_most() / self.long_values();
        }
    }

    /// Long values that are written, about.
    fn long_values(&self) -> u64 {
        let huge = HUGE_OPERATIONS.checked_div(self.huge_one_in).unwrap_or(0);
        let operations = self.epochs * self.sessions * self.transactions * (self.operations + huge);
        operations.checked_div(self.long_one_in).unwrap_or(0)
    }

    /// Bytes of these: one is half of the longest in the mean.
    pub(crate) fn long_bytes(&self) -> u64 {
        self.long_values() * self.long_max / 2
    }

    /// Bytes of long values that may be written where all of the log is kept.
    pub(crate) fn bytes_most(&self) -> u64 {
        self.disk.capacity_bytes.expect("every plan has one") / 16
    }

    pub(crate) fn trouble(&self, random: &mut Generator) -> Trouble {
        let io = |random: &mut Generator| {
            let within = 1 << (3 + random.below(11));
            1 + random.below(within)
        };
        match random.below(10) {
            0..=1 => Trouble::None,
            2..=5 => Trouble::Crash(io(random)),
            6 => {
                let within = 4096 << random.below(11);
                Trouble::Full(random.below(within))
            }
            _ => {
                let (faults, power) = self.faults(random);
                Trouble::Faults { faults: Box::new(faults), power }
            }
        }
    }

    /// Something that fails now and then, and whether the machine goes down with it.
    pub(crate) fn faults(&self, random: &mut Generator) -> (Faults, bool) {
        let mut faults =
            Faults { short_read: Chance::OneIn(5), latency_spike: Chance::OneIn(40), ..Faults::default() };
        let mut power = random.one_in(2);
        let often = Chance::OneIn(5 << random.below(8));
        match random.below(7) {
            0 => faults.read_error = often,
            1 => faults.write_error = often,
            2 => {
                faults.sync_error = often;
                // What a failed sync left in the cache looks durable and is not: only a power cut tells.
                power = random.one_in(2);
            }
            3 => faults.no_space = Chance::OneIn(1 + random.below(8)),
            4 => faults.size_error = Chance::OneIn(1 + random.below(8)),
            5 => faults.name_error = Chance::OneIn(1 + random.below(8)),
            _ => {}
        }
        if random.one_in(3) {
            let files = [".log", ".new", ".gnt", "/ring", "/hot", "-wal"];
            faults.only = Some(pick(random, &files).to_owned());
        }
        (faults, power)
    }

    /// The key with this number.
    pub(crate) fn key(&self, number: u64) -> Vec<u8> {
        let hash = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        let mut key = format!("{:05}", (number * 7919) % 99_991).into_bytes();
        if self.key_padding > 0 {
            key.resize(key.len() + (hash % self.key_padding) as usize, b'a' + (hash % 26) as u8);
        }
        key
    }

    /// The value of a token. Everything about it follows from the token.
    pub(crate) fn value(&self, token: u64) -> Vec<u8> {
        let mut random = Generator::new(token);
        let long = self.long_one_in > 0 && random.one_in(self.long_one_in);
        let len = 8 + random.below(if long { self.long_max } else { self.value_max });
        let mut value = token.to_le_bytes().to_vec();
        value.extend((0..len.saturating_sub(8)).map(|i| (token.wrapping_mul(31) ^ i.wrapping_mul(7)) as u8));
        value
    }

    /// The same, where it has to fit a page.
    pub(crate) fn short_value(&self, token: u64) -> Vec<u8> {
        let mut value = self.value(token);
        value.truncate(8 + (token % 200) as usize);
        value
    }

    /// The token of a value.
    pub(crate) fn token(&self, value: &[u8]) -> Result<u64, String> {
        let head = value.get(..8).ok_or_else(|| format!("a value of {} bytes", value.len()))?;
        let token = u64::from_le_bytes(head.try_into().expect("eight bytes"));
        let (whole, short) = (self.value(token), self.short_value(token));
        if value != whole && value != short {
            let at = whole.iter().zip(value).position(|(a, b)| a != b);
            return Err(format!(
                "token {token}: {} bytes, wrong from {at:?} on, not {}",
                value.len(),
                whole.len()
            ));
        }
        Ok(token)
    }
}

/// Tells what happens, where `SIM_TRACE` asks for it.
pub(crate) fn trace(text: impl FnOnce() -> String) {
    static ASKED: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    if *ASKED.get_or_init(|| std::env::var_os("SIM_TRACE").is_some()) {
        eprintln!("[{:>12}] {}", gannet_base::clock::now().as_nanos() / 1000, text());
    }
}
