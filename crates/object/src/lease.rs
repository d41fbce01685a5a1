//! Locks in a store that has none: an object that its holder renews.
//!
//! # Invariants
//! 1. The object is made on the condition that there is none, and replaced on the condition that it is as it was when it was read last: of
//!    several who want it one gets it.
//! 2. Its holder renews it every [`Settings::renewed_every`](crate::Settings), with other bytes each time. Who finds it unchanged for
//!    [`Settings::free_after`](crate::Settings) takes it over: so it matters only how long something takes, not what anybody's clock shows.
//!    The holder counts that time from the begin of the renewal whose bytes stand there, however late he hears of it.
//! 3. Who finds that it is not his any more does nothing more on that disk. Who cannot renew it in that time does nothing there until he can, which shows
//!    that nobody has had it meanwhile, as he renews it on the condition that it is as he has left it; after
//!    [`Settings::regained_within`](crate::Settings) he has lost it. Only parts of an object are uploaded meanwhile, which nobody sees. Somebody who is
//!    stopped for longer, and goes on at once with a request under way, is not kept from that; whoever relies on the lock looks afterwards whether what
//!    he wrote is still there.

use crate::disk::{Shared, delete_own, put_own, read_back};
use crate::error::{of_store, words};
use gannet_base::clock::{self, Instant};
use gannet_base::random;
use gannet_base::sync::Mutex;
use gannet_io::{Error, ErrorKind, Result};
use object_store::path::Path as Key;
use object_store::{ObjectStore, PutMode, UpdateVersion};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::AbortHandle;

/// How a lock stands.
#[derive(Debug)]
enum Standing {
    Held,
    /// It could not be renewed in time: somebody else may have it.
    Unknown,
    /// It is another one's by now, or was given up, and why.
    Lost(String),
}

/// How the locks stand that were taken on a disk, by their numbers. One that was lost stays: nothing more is done there.
#[derive(Debug, Default)]
pub(crate) struct Standings(Mutex<Vec<(u64, Standing)>>);

impl Standings {
    /// Whether all are held; an error, with the reason, where one was lost.
    pub(crate) fn are_held(&self) -> std::result::Result<bool, String> {
        let all = self.0.lock();
        let lost = all.iter().find_map(|(_, standing)| match standing {
            Standing::Lost(why) => Some(why.clone()),
            _ => None,
        });
        lost.map_or_else(|| Ok(!all.iter().any(|(_, it)| matches!(it, Standing::Unknown))), Err)
    }

    fn begin(&self, number: u64) {
        self.0.lock().push((number, Standing::Held));
    }

    /// Says how one stands, if it was not given back yet.
    fn set(&self, number: u64, standing: Standing) {
        if let Some((_, at)) = self.0.lock().iter_mut().find(|(of, _)| *of == number) {
            *at = standing;
        }
    }

    /// Forgets one that is given back, unless it was lost: then false.
    fn end(&self, number: u64) -> bool {
        let mut all = self.0.lock();
        all.retain(|(of, standing)| *of != number || matches!(standing, Standing::Lost(_)));
        all.iter().all(|(of, _)| *of != number)
    }
}

/// A lock that is held.
pub(crate) struct Lease {
    shared: Arc<Shared>,
    path: PathBuf,
    number: u64,
    renewal: AbortHandle,
}

/// Who holds a lock here, for people.
pub(crate) fn who() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { "a machine" } else { host.trim() };
    format!("process {} of {host}", std::process::id())
}

/// What stands in the object: who holds it, and what tells this lock, and this time, from all others.
struct Text {
    who: String,
    number: u64,
    renewals: u64,
}

impl Text {
    fn next(&mut self) -> Vec<u8> {
        self.renewals += 1;
        format!("{}\n{:016x} {}\n", self.who, self.number, self.renewals).into_bytes()
    }
}

/// Whether these bytes are of the lock with this number, of whatever time.
fn is_of(number: u64, bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    text.lines().nth(1).and_then(|line| line.split(' ').next()) == Some(&format!("{number:016x}"))
}

/// Which renewal of a lock has left these bytes.
fn renewals_in(bytes: &[u8]) -> Option<u64> {
    let text = String::from_utf8_lossy(bytes);
    text.lines().nth(1)?.split(' ').nth(1)?.parse().ok()
}

impl Lease {
    /// Takes the lock; waits where somebody has it, until it is known whether he is still there.
    pub(crate) fn take(shared: &Arc<Shared>, path: &Path, who: String) -> Result<Self> {
        let key = shared.key("lock", path)?;
        let mut text = Text { who, number: random::next_u64(), renewals: 0 };
        let mut known: Option<(UpdateVersion, Instant)> = None;
        loop {
            let mode = match &known {
                Some((version, since)) if since.elapsed() >= shared.settings.free_after => {
                    PutMode::Update(version.clone())
                }
                _ => PutMode::Create,
            };
            let (store, place, bytes) = (Arc::clone(&shared.store), key.clone(), text.next());
            let begin = clock::now();
            let put = async move { Ok(put_own(&*store, &place, bytes, mode).await) };
            let number = text.number;
            let put = shared.run("lock", path, put).inspect_err(|_| {
                shared.forget_own("lock", path, move |there| is_of(number, there));
            });
            match put? {
                Ok(version) => return Ok(Self::hold(shared, path, key, text, (version, begin))),
                Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                }
                Err(error) => return Err(of_store("lock", path, &error)),
            }
            let (store, place) = (Arc::clone(&shared.store), key.clone());
            let look = async move { read_back(&*store, &place).await };
            match shared.run("lock", path, look) {
                Ok((bytes, version)) => match &known {
                    Some((seen, _)) if *seen != version => {
                        let text = String::from_utf8_lossy(&bytes);
                        let holder = text.lines().next().unwrap_or_default();
                        let what = format!("by {holder}");
                        return Err(Error::new(ErrorKind::Locked, "lock", path, what));
                    }
                    Some(_) => {}
                    None => known = Some((version, clock::now())),
                },
                // It was given back meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => known = None,
                Err(error) => return Err(error),
            }
            if known.is_some() {
                let pause = shared.settings.renewed_every.min(shared.settings.free_after) / 4;
                let waited = async move {
                    tokio::time::sleep(pause).await;
                    Ok(())
                };
                shared.run("lock", path, waited)?;
            }
        }
    }

    fn hold(
        shared: &Arc<Shared>,
        path: &Path,
        key: Key,
        text: Text,
        (version, begin): (UpdateVersion, Instant),
    ) -> Self {
        let number = text.number;
        let renewal = Renewal {
            store: Arc::clone(&shared.store),
            key,
            text,
            version,
            every: shared.settings.renewed_every,
            free_after: shared.settings.free_after,
            regained_within: shared.settings.regained_within,
            standings: Arc::clone(&shared.standings),
        };
        shared.standings.begin(number);
        let renewal = shared.runtime.spawn(renewal.run(begin));
        Lease { shared: Arc::clone(shared), path: path.to_owned(), number, renewal }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.renewal.abort();
        if !self.shared.standings.end(self.number) {
            return;
        }
        let Ok(key) = self.shared.key("unlock", &self.path) else { return };
        let (store, number) = (Arc::clone(&self.shared.store), self.number);
        // What stays is taken over by the next one. Who was stopped for long looks before he deletes
        // what another one may have taken over.
        let what = || format!("the lock {}", self.path.display());
        let work = async move { delete_own(&*store, &key, |there| is_of(number, there)).await };
        let _ = self.shared.take_back("unlock", &self.path, what, work);
    }
}

/// What renews a lock.
struct Renewal {
    store: Arc<dyn ObjectStore>,
    key: Key,
    text: Text,
    version: UpdateVersion,
    every: Duration,
    free_after: Duration,
    regained_within: Duration,
    standings: Arc<Standings>,
}

impl Renewal {
    /// `renewed` is when what stands in the object was begun to be written.
    async fn run(mut self, mut renewed: Instant) {
        // Renewals whose answers were lost: their bytes may stand there, or come to stand there yet.
        let mut unanswered: Vec<(u64, Instant)> = Vec::new();
        loop {
            tokio::time::sleep(self.every).await;
            let is_late = renewed.elapsed() >= self.free_after;
            if is_late {
                self.tell(Standing::Unknown);
            }
            let failure = match self.renew(&mut renewed, &mut unanswered, is_late).await {
                Ok(failure) => failure,
                Err(why) => return self.tell(Standing::Lost(why)),
            };
            if renewed.elapsed() + self.every < self.free_after {
                self.tell(Standing::Held);
            } else if renewed.elapsed() < self.regained_within {
                self.tell(Standing::Unknown);
            } else {
                let why = failure.unwrap_or_else(|| "the store is too slow".to_owned());
                return self.tell(Standing::Lost(format!("it could not be renewed: {why}")));
            }
        }
    }

    fn tell(&self, standing: Standing) {
        self.standings.set(self.text.number, standing);
    }

    /// Renews it once, or finds out since when it stands as it does. Gives what has failed of that, or as an error that it is not his any more.
    async fn renew(
        &mut self,
        renewed: &mut Instant,
        unanswered: &mut Vec<(u64, Instant)>,
        is_late: bool,
    ) -> std::result::Result<Option<String>, String> {
        use object_store::Error as E;
        let begin = clock::now();
        let mode = PutMode::Update(self.version.clone());
        let bytes = self.text.next();
        unanswered.push((self.text.renewals, begin));
        // One that stalls leaves time for others, and none beyond that in which the lock is held.
        let (every, free_after) = (self.every, self.free_after);
        let patience = |renewed: Instant| match is_late {
            true => every,
            false => free_after.saturating_sub(renewed.elapsed()).min(every),
        };
        let silent = || "the store does not answer".to_owned();
        let put = put_own(&*self.store, &self.key, bytes, mode);
        let refused = match tokio::time::timeout(patience(*renewed), put).await {
            Ok(Ok(version)) => {
                (self.version, *renewed) = (version, begin);
                unanswered.clear();
                return Ok(None);
            }
            Ok(Err(error @ (E::NotFound { .. } | E::Precondition { .. } | E::AlreadyExists { .. }))) => error,
            Ok(Err(error)) => return Ok(Some(words(&error))),
            Err(_) => return Ok(Some(silent())),
        };
        match tokio::time::timeout(patience(*renewed), self.own_version()).await {
            // An answer was lost to a renewal before: since that one the object is as it is.
            Ok(Ok(Some((version, renewals)))) => {
                let known = unanswered.iter().find(|&&(number, _)| Some(number) == renewals);
                (self.version, *renewed) = (version, known.map_or(*renewed, |&(_, begin)| begin));
                unanswered.retain(|&(_, begin)| begin > *renewed);
                Ok(Some("answers of the store were lost".to_owned()))
            }
            Ok(Ok(None)) => Err(format!("somebody else has taken the lock over: {}", words(&refused))),
            // Whose it is by now is asked again.
            Ok(Err(error)) => Ok(Some(words(&error))),
            Err(_) => Ok(Some(silent())),
        }
    }

    /// The object's version, if what stands in it is of this lock, and which renewal has left it; `None` where it is another one's, or gone.
    async fn own_version(&self) -> object_store::Result<Option<(UpdateVersion, Option<u64>)>> {
        match read_back(&*self.store, &self.key).await {
            Ok((bytes, version)) => {
                Ok(is_of(self.text.number, &bytes).then(|| (version, renewals_in(&bytes))))
            }
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
