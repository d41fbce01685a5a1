//! An object that is being written: parts are gathered from positioned writes that come nearly in order, and uploaded as they fill.
//!
//! # Invariants
//! 1. Parts are handed to the store in order, each of them once, when all of its bytes are there; all have one length but the last.
//! 2. At most `parts_max` parts are in memory, gathered or under way, and `spare` bytes behind them. The first one that is not complete always has its
//!    place, or gets the next that becomes free: whoever writes to it waits for the store only, and not for other writers. So they all come on.
//! 3. On the local file system a part is durable before its place in memory is free, and then the OS forgets it: however long the object, it keeps
//!    no more than these parts in its cache, and they are what is left to be synced at the end.
//! 4. Parts are uploaded also while it is not known who holds the lock: nobody sees them. The object is completed by its holder only.
//! 5. The object is complete when the store has acknowledged that; or, where the answer was lost, when the store shows it (`complete`): objects
//!    are there as a whole or not at all. On the local file system no answer is lost, and what is there without one may not be durable. What
//!    ends otherwise is given up, and taken back from the store.

use crate::complete::{Completion, Handle};
use crate::disk::{Shared, delete, given_up};
use crate::error::{cancelled, of_store};
use crate::runtime::LOOK_EVERY;
use gannet_base::random;
use gannet_base::sync::{Condvar, Mutex, MutexGuard};
use gannet_io::{Error, ErrorKind, Passing, Result};
use object_store::ObjectStoreExt;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::AbortHandle;

/// Bytes of a part, where nothing calls for more or less.
const PART: usize = 8 << 20;
/// Stores want no shorter ones.
const PART_LEAST: usize = 5 << 20;
/// Parts in memory, at least and at most.
const PARTS: (u64, u64) = (2, 4);
/// Parts that an object may have at most, in the store with the fewest.
const PARTS_OF_OBJECT: u64 = 10_000;
/// An object of which nobody knows whether it is complete is of no use: whoever gives up while it is being completed is heard so much later.
const COMPLETED_AFTER: Duration = Duration::from_secs(1);

/// Bytes of a part that is being gathered: what was written, and zeros in front of it.
#[derive(Debug)]
struct Part {
    bytes: Vec<u8>,
    filled: usize,
}

impl Part {
    /// A part that takes no memory yet.
    fn new(len: usize) -> Self {
        Part { bytes: Vec::with_capacity(len), filled: 0 }
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        let end = at + bytes.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[at..end].copy_from_slice(bytes);
        self.filled += bytes.len();
    }
}

#[derive(Debug)]
struct State {
    part_len: usize,
    parts_max: usize,
    /// Bytes that are taken besides.
    spare: u64,
    /// Those that follow `handed` others.
    gathered: VecDeque<Part>,
    handed: u64,
    under_way: usize,
    tasks: Vec<AbortHandle>,
    /// Behind the last byte that was written.
    end: u64,
    failure: Option<Error>,
    /// `None` when it is complete, or was given up.
    upload: Option<Handle>,
    /// It takes no more.
    ended: bool,
    complete: bool,
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Upload {
    path: PathBuf,
    /// What has reserved the name.
    placeholder: Vec<u8>,
    state: Arc<(Mutex<State>, Condvar)>,
    /// What is written on the local file system; nothing elsewhere.
    passing: Arc<[Passing]>,
}

impl Upload {
    /// Reserves the name, and begins.
    pub(crate) fn begin(shared: &Shared, path: &Path) -> Result<Self> {
        let placeholder = format!("being written: {:016x}{:016x}", random::next_u64(), random::next_u64());
        let placeholder = placeholder.into_bytes();
        shared.create("create", path, placeholder.clone()).inspect_err(|_| {
            let own = placeholder.clone();
            shared.forget_own("create", path, move |there| there == own);
        })?;
        let begun = Self::begin_reserved(shared, path, placeholder);
        if begun.is_err() {
            let (store, key) = (Arc::clone(&shared.store), shared.key("create", path)?);
            // What stays says of itself what it is.
            let what = || path.display().to_string();
            let _ = shared.take_back("create", path, what, async move { delete(&*store, &key).await });
        }
        begun
    }

    fn begin_reserved(shared: &Shared, path: &Path, placeholder: Vec<u8>) -> Result<Self> {
        let (store, key) = (Arc::clone(&shared.store), shared.key("create", path)?);
        let upload = shared.run("create", path, async move { store.put_multipart(&key).await })?;
        let state = State {
            part_len: PART,
            parts_max: PARTS.0 as usize,
            spare: 0,
            gathered: VecDeque::new(),
            handed: 0,
            under_way: 0,
            tasks: Vec::new(),
            end: 0,
            failure: None,
            upload: Some(Arc::new(tokio::sync::Mutex::new(upload))),
            ended: false,
            complete: false,
        };
        let state = Arc::new((Mutex::new(state), Condvar::new()));
        let mut upload = Upload { path: path.to_owned(), placeholder, state, passing: Arc::default() };
        let Some(local) = &shared.local else { return Ok(upload) };
        // It is given up where others cannot be kept from it.
        match local.seal(path).and_then(|()| local.passing_staged(path)) {
            Ok(passing) => {
                upload.passing = passing.into();
                Ok(upload)
            }
            Err(error) => {
                upload.give_up(shared);
                Err(error)
            }
        }
    }

    /// What the upload writes on the local file system.
    pub(crate) fn passing(&self) -> &[Passing] {
        &self.passing
    }

    /// See [`gannet_io::File::expect`].
    pub(crate) fn expect(&self, len: u64, memory: u64, spare: u64) -> u64 {
        let mut state = self.state.0.lock();
        if state.handed == 0 && state.gathered.len() <= 1 {
            // With the log, of which nobody knows how long it will be.
            let parts = PARTS_OF_OBJECT * 2 / 3;
            let needed = len.div_ceil(parts).next_multiple_of(1 << 20) as usize;
            let usual = if memory < PARTS.0 * PART as u64 { PART_LEAST } else { PART };
            let part_len = usual.max(needed);
            // What was written fills no part yet.
            if state.end <= part_len as u64 {
                state.part_len = part_len;
                state.parts_max = (memory / part_len as u64).clamp(PARTS.0, PARTS.1) as usize;
            }
        }
        state.spare = spare;
        (state.part_len * state.parts_max) as u64 + spare
    }

    pub(crate) fn len(&self) -> u64 {
        self.state.0.lock().end
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.state.0.lock().failure.is_some()
    }

    /// See [`gannet_io::File::has_room`].
    pub(crate) fn has_room(&self, shared: &Shared, end: u64, limit: Duration) -> bool {
        let mut state = self.state.0.lock();
        // What was given up fails.
        let waits =
            |state: &State| end > state.taken_to() && !state.fails() && !(shared.settings.cancelled)();
        if waits(&state) && !limit.is_zero() {
            self.state.1.wait_for(&mut state, limit);
        }
        !waits(&state)
    }

    /// Waits until something has changed, but not for long.
    fn wait(&self, shared: &Shared, state: &mut MutexGuard<'_, State>) -> Result<()> {
        if (shared.settings.cancelled)() {
            return Err(cancelled("write", &self.path));
        }
        self.state.1.wait_for(state, LOOK_EVERY);
        Ok(())
    }

    fn check(&self, state: &State) -> Result<()> {
        match &state.failure {
            Some(failure) => Err(failure.duplicate()),
            None if state.ended => Err(self.invalid("it is complete")),
            None => Ok(()),
        }
    }

    fn invalid(&self, what: &str) -> Error {
        Error::new(ErrorKind::Invalid, "write", &self.path, what)
    }

    pub(crate) fn write(&self, shared: &Shared, offset: u64, buffer: &[u8]) -> Result<()> {
        let (mut at, mut rest) = (offset, buffer);
        let mut state = self.state.0.lock();
        while !rest.is_empty() {
            self.check(&state)?;
            let len = state.part_len as u64;
            let (index, from) = (at / len, (at % len) as usize);
            let Some(ahead) = index.checked_sub(state.handed) else {
                return Err(self.invalid("a part that was uploaded is written again"));
            };
            let more = rest.len().min((len - from as u64).min(state.taken_to().saturating_sub(at)) as usize);
            if more == 0 {
                self.wait(shared, &mut state)?;
                continue;
            }
            state.part(ahead as usize).write(from, &rest[..more]);
            (at, rest) = (at + more as u64, &rest[more..]);
            state.end = state.end.max(at);
            while state.gathered.front().is_some_and(|part| part.filled as u64 >= len) {
                self.hand_over(shared, &mut state)?;
            }
        }
        Ok(())
    }

    /// Gives the first part to the store.
    fn hand_over(&self, shared: &Shared, state: &mut State) -> Result<()> {
        if state.handed == PARTS_OF_OBJECT {
            let what =
                "it becomes longer than an object can be: compress the backup, or take it into a folder";
            return Err(state.failure.insert(self.invalid(what)).duplicate());
        }
        let not_lost = shared.check_not_lost("write", &self.path);
        not_lost.map_err(|error| state.failure.insert(error).duplicate())?;
        let upload = state.upload.as_ref().and_then(|upload| upload.try_lock().ok());
        let (Some(part), Some(mut upload)) = (state.gathered.pop_front(), upload) else {
            return Err(self.invalid("there is no part to be uploaded"));
        };
        let work = upload.put_part(part.bytes.into());
        drop(upload);
        state.handed += 1;
        state.under_way += 1;
        let (done, path) = (Arc::clone(&self.state), self.path.clone());
        let passing = Arc::clone(&self.passing);
        let task = shared.runtime.spawn(async move {
            let mut ended = PartEnded { done, path, result: None };
            let mut result = work.await;
            if result.is_ok() && !passing.is_empty() {
                result = leave_cache(passing).await;
            }
            ended.result = Some(result);
        });
        state.tasks.retain(|task| !task.is_finished());
        state.tasks.push(task);
        Ok(())
    }

    /// Uploads the rest, and completes the object.
    pub(crate) fn finish(&self, shared: &Shared) -> Result<()> {
        let mut state = self.state.0.lock();
        if state.complete {
            return Ok(());
        }
        self.check(&state)?;
        let last = state.end - state.handed * state.part_len as u64;
        match state.gathered.front_mut() {
            Some(part) if part.filled as u64 != last => return Err(self.invalid("parts of it are missing")),
            Some(_) => self.hand_over(shared, &mut state)?,
            None => {}
        }
        while state.under_way > 0 && state.failure.is_none() {
            self.wait(shared, &mut state)?;
        }
        self.check(&state)?;
        drop(state);
        shared.check_lock("complete", &self.path)?;
        let mut state = self.state.0.lock();
        self.check(&state)?;
        let key = shared.key("complete", &self.path)?;
        state.ended = true;
        let Some(upload) = state.upload.clone() else { return Err(self.invalid("it is complete")) };
        let completion = Completion {
            upload,
            store: Arc::clone(&shared.store),
            key,
            len: state.end,
            placeholder: self.placeholder.clone(),
            loses_answers: shared.local.is_none(),
            within: shared.settings.completed_within,
        };
        drop(state);
        let patience = (&*shared.settings.cancelled as &dyn Fn() -> bool, COMPLETED_AFTER);
        let completed = shared.runtime.run_to_end(completion.limit(), patience, completion.run());
        let mut state = self.state.0.lock();
        let result = match completed {
            Ok(Ok(())) => {
                (state.complete, state.upload) = (true, None);
                self.passing.iter().for_each(Passing::forget);
                return Ok(());
            }
            Ok(Err(error)) => of_store("complete", &self.path, &error),
            Err(ended) => given_up(ended, "complete", &self.path),
        };
        Err(state.failure.insert(result).duplicate())
    }

    /// Takes back what was uploaded of an object that is not complete. Its placeholder stays, for whoever wanted it to remove.
    pub(crate) fn give_up(&self, shared: &Shared) {
        let mut state = self.state.0.lock();
        state.tasks.drain(..).for_each(|task| task.abort());
        state.ended = true;
        let Some(upload) = state.upload.take() else { return };
        drop(state);
        // What cannot be taken back now is up to the store's own rules (docs/operations.md).
        let what = || format!("parts of {}", self.path.display());
        let work = async move { upload.lock().await.abort().await };
        if shared.local.is_some() {
            // It may be gone with the name already, and what stays goes with the next backup that removes older ones.
            let _ = shared.try_take_back("give up", &self.path, work);
            return;
        }
        let _ = shared.take_back("give up", &self.path, what, work);
    }
}

/// Makes durable what is written, and has the OS forget it.
async fn leave_cache(passing: Arc<[Passing]>) -> object_store::Result<()> {
    let synced = tokio::task::spawn_blocking(move || {
        passing.iter().try_for_each(|file| file.sync().map(|()| file.forget()))
    });
    let synced = synced.await.unwrap_or_else(|broken_off| Err(broken_off.into()));
    synced.map_err(|error| object_store::Error::Generic { store: "LocalFileSystem", source: error.into() })
}

/// Tells that a part's upload has ended, however.
struct PartEnded {
    done: Arc<(Mutex<State>, Condvar)>,
    path: PathBuf,
    /// `None`: it has broken off.
    result: Option<object_store::Result<()>>,
}

impl Drop for PartEnded {
    fn drop(&mut self) {
        let failure = match self.result.take() {
            Some(Ok(())) => None,
            Some(Err(error)) => Some(of_store("write", &self.path, &error)),
            None => Some(Error::new(
                ErrorKind::Device,
                "write",
                &self.path,
                "the upload of a part was broken off",
            )),
        };
        let mut state = self.done.0.lock();
        state.under_way -= 1;
        if let Some(failure) = failure {
            state.failure.get_or_insert(failure);
        }
        self.done.1.notify_all();
    }
}

impl State {
    /// Up to where writes are taken. What is taken once, stays so: parts come to an end, and are not begun anew.
    fn taken_to(&self) -> u64 {
        let ended = self.handed - self.under_way as u64;
        (ended + self.parts_max as u64) * self.part_len as u64 + self.spare
    }

    /// Whether every write fails.
    fn fails(&self) -> bool {
        self.failure.is_some() || self.ended
    }

    /// The part that is so far behind the first one.
    fn part(&mut self, ahead: usize) -> &mut Part {
        while self.gathered.len() <= ahead {
            self.gathered.push_back(Part::new(self.part_len));
        }
        &mut self.gathered[ahead]
    }
}
