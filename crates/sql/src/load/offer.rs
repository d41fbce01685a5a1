//! The client's side of a load of files that it offers (see [`super::offered`]): it answers what the server asks, and shows nothing but what the
//! user has named: one file, or regular files that lie directly in one folder. What a server asks for beyond that is refused.

use super::files::{Blocks, OnDisk};
use super::offered::{Answer, READ_MOST, Request};
use gannet_io::{AlignedBuffer, Disk, ModeRequest};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of a piece of data.
const PIECE: usize = 64 << 10;
/// Room beside a piece that was asked for, where it does not begin at a place that the device reads from.
const BLOCK: usize = READ_MOST as usize + (64 << 10);

/// What a user has named.
#[derive(Clone, Debug)]
enum Source {
    File(PathBuf),
    Folder(PathBuf),
}

/// What a client offers.
pub struct Offer {
    source: Source,
    name: String,
    disk: Arc<dyn Disk>,
    mode: ModeRequest,
    /// What was asked last, so that it is not opened for each piece.
    open: Option<(String, OnDisk)>,
    block: AlignedBuffer,
    requests: VecDeque<Request>,
    /// What is left to be sent of an answer.
    answer: Vec<u8>,
    sent: usize,
}

impl std::fmt::Debug for Offer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Offer").field("source", &self.source).finish_non_exhaustive()
    }
}

impl Offer {
    /// One file, which the server knows by this name.
    pub fn file(path: &Path, name: &str, disk: &Arc<dyn Disk>, mode: ModeRequest) -> Self {
        Offer::new(Source::File(path.to_owned()), name, disk, mode)
    }

    /// The files of a folder.
    pub fn folder(path: &Path, name: &str, disk: &Arc<dyn Disk>, mode: ModeRequest) -> Self {
        Offer::new(Source::Folder(path.to_owned()), name, disk, mode)
    }

    fn new(source: Source, name: &str, disk: &Arc<dyn Disk>, mode: ModeRequest) -> Self {
        Offer {
            source,
            name: name.to_owned(),
            disk: Arc::clone(disk),
            mode,
            open: None,
            block: AlignedBuffer::zeroed(BLOCK),
            requests: VecDeque::new(),
            answer: Vec::new(),
            sent: 0,
        }
    }

    /// The server asks for something.
    pub fn ask(&mut self, request: Request) {
        self.requests.push_back(request);
    }

    /// Appends a piece of the answers to what was asked; nothing, where all of that was answered; false when nothing more will be asked.
    pub fn read(&mut self, data: &mut Vec<u8>) -> bool {
        if self.sent == self.answer.len() {
            let answer = match self.requests.pop_front() {
                None => return true,
                Some(Request::End {}) => return false,
                Some(Request::Len(file)) => self.len(&file),
                Some(Request::Read { file, at, bytes }) => self.piece(&file, at, bytes),
            };
            (self.answer, self.sent) = (answer.unwrap_or_else(Answer::Failed).encode(), 0);
        }
        let piece = &self.answer[self.sent..];
        let piece = &piece[..piece.len().min(PIECE)];
        data.extend_from_slice(piece);
        self.sent += piece.len();
        true
    }

    /// Where a file lies that the server may see; `None`: it is not there.
    fn find(&self, name: &str) -> Result<Option<PathBuf>, String> {
        let refused = |why: &str| format!("{name:?} was not offered: {why}");
        let folder = match &self.source {
            Source::File(path) if name == self.name => return Ok(Some(path.clone())),
            Source::File(_) => return Err(refused("it is another file than the one that is loaded")),
            Source::Folder(folder) => folder,
        };
        if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\\', '\0']) {
            return Err(refused("it is no plain name of a file in the folder that is loaded"));
        }
        let path = folder.join(name);
        let real = match std::fs::canonicalize(&path) {
            Ok(real) => real,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let folder = std::fs::canonicalize(folder).map_err(|error| error.to_string())?;
        // A link may lead to another file of the folder, not out of it.
        if real.parent() != Some(&folder) {
            return Err(refused("it leads out of the folder that is loaded"));
        }
        if !real.is_file() {
            return Err(refused("it is no file"));
        }
        Ok(Some(real))
    }

    /// Opens a file, unless it is open; false where there is none.
    fn look(&mut self, name: &str) -> Result<bool, String> {
        if self.open.as_ref().is_none_or(|(open, _)| open != name) {
            self.open = None;
            let Some(path) = self.find(name)? else { return Ok(false) };
            let file = OnDisk::open(&self.disk, &path, self.mode).map_err(|error| error.to_string())?;
            self.open = Some((name.to_owned(), file));
        }
        Ok(true)
    }

    fn len(&mut self, name: &str) -> Result<Answer, String> {
        // As it is now, not as it was.
        self.open = None;
        self.look(name)?;
        let len = |(_, file): &(String, OnDisk)| Answer::Bytes(file.len().to_be_bytes().to_vec());
        Ok(self.open.as_ref().map_or(Answer::Missing, len))
    }

    fn piece(&mut self, name: &str, at: u64, bytes: u32) -> Result<Answer, String> {
        if bytes > READ_MOST {
            return Err(format!("{bytes} bytes are more than is read at once"));
        }
        let there = self.look(name)?;
        match (&self.open, there) {
            (Some((_, file)), true) => read(file, at, bytes as usize, &mut self.block).map(Answer::Bytes),
            _ => Ok(Answer::Missing),
        }
    }
}

/// Reads so many bytes, or up to the end.
fn read(file: &OnDisk, at: u64, bytes: usize, block: &mut AlignedBuffer) -> Result<Vec<u8>, String> {
    let end = file.len().min(at.saturating_add(bytes as u64));
    let mut piece = Vec::with_capacity(end.saturating_sub(at) as usize);
    let mut from = at / file.alignment() as u64 * file.alignment() as u64;
    while from < end {
        // No more than is wanted, as far as the device reads it.
        let most = ((end - from) as usize).next_multiple_of(file.alignment()).min(block.len());
        let count = file.read_block(from, &mut block[..most]).map_err(|error| error.to_string())?;
        if count == 0 {
            break;
        }
        let skipped = at.saturating_sub(from).min(count as u64) as usize;
        let wanted = (end - from).min(count as u64) as usize;
        piece.extend_from_slice(&block[skipped..wanted.max(skipped)]);
        from += count as u64;
    }
    Ok(piece)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_store::{Engine, EngineOptions};

    struct Site {
        folder: tempfile::TempDir,
        engine: Engine,
    }

    impl Site {
        fn new() -> Self {
            let folder = tempfile::tempdir_in(".").unwrap();
            std::fs::create_dir(folder.path().join("offered")).unwrap();
            std::fs::write(folder.path().join("secret"), "secret").unwrap();
            std::fs::write(folder.path().join("offered/a.csv"), "rows").unwrap();
            let options = EngineOptions { memory: 64 << 20, ..EngineOptions::default() };
            Site { folder, engine: Engine::new(&options).unwrap() }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        fn folder(&self) -> Offer {
            Offer::folder(&self.path("offered"), "offered", self.engine.disk(), ModeRequest::Auto)
        }

        fn file(&self) -> Offer {
            Offer::file(&self.path("offered/a.csv"), "x/a.csv", self.engine.disk(), ModeRequest::Auto)
        }
    }

    fn answer(offer: &mut Offer, request: Request) -> Answer {
        let mut answers = super::super::offered::Answers::default();
        answers.expect(&request);
        offer.ask(request);
        let mut data = Vec::new();
        loop {
            let before = data.len();
            assert!(offer.read(&mut data));
            if data.len() == before {
                break;
            }
            assert!(data.len() - before <= PIECE);
        }
        answers.feed(&data).unwrap();
        answers.next().unwrap().unwrap()
    }

    fn read_of(file: &str, at: u64, bytes: u32) -> Request {
        Request::Read { file: file.to_owned(), at, bytes }
    }

    #[test]
    fn a_server_sees_nothing_but_what_the_user_has_named() {
        let site = Site::new();
        std::os::unix::fs::symlink("../secret", site.path("offered/out")).unwrap();
        std::os::unix::fs::symlink(site.path("secret").canonicalize().unwrap(), site.path("offered/far"))
            .unwrap();
        std::os::unix::fs::symlink("a.csv", site.path("offered/in")).unwrap();
        std::fs::create_dir(site.path("offered/deeper")).unwrap();
        std::fs::write(site.path("offered/deeper/b"), "b").unwrap();
        let secret = site.path("secret").canonicalize().unwrap();
        let secret = secret.to_str().unwrap();
        let mut folder = site.folder();
        for name in [
            "../secret",
            "..",
            ".",
            "",
            "deeper/b",
            "deeper",
            "out",
            "far",
            "a.csv/..",
            "..\\secret",
            "a\0",
            secret,
        ] {
            for request in [Request::Len(name.to_owned()), read_of(name, 0, 10)] {
                let Answer::Failed(why) = answer(&mut folder, request.clone()) else { panic!("{request:?}") };
                assert!(why.contains("was not offered"), "{why}");
            }
        }
        assert_eq!(answer(&mut folder, Request::Len("nothing".to_owned())), Answer::Missing);
        assert_eq!(answer(&mut folder, read_of("in", 0, 10)), Answer::Bytes(b"rows".to_vec()));
        let mut file = site.file();
        for name in ["a.csv", "../secret", secret, "", "x/../x/a.csv", "x"] {
            let Answer::Failed(why) = answer(&mut file, read_of(name, 0, 10)) else { panic!("{name}") };
            assert!(why.contains("was not offered"), "{why}");
        }
        assert_eq!(answer(&mut file, read_of("x/a.csv", 1, 2)), Answer::Bytes(b"ow".to_vec()));
    }

    #[test]
    fn pieces_come_from_wherever_they_are_asked_for() {
        let site = Site::new();
        let text: Vec<u8> = (0..3_000_000_u32).map(|at| (at / 251) as u8).collect();
        std::fs::write(site.path("offered/long"), &text).unwrap();
        let mut folder = site.folder();
        let len = answer(&mut folder, Request::Len("long".to_owned()));
        assert_eq!(len, Answer::Bytes(3_000_000_u64.to_be_bytes().to_vec()));
        for (at, bytes) in
            [(0, 10), (4095, 2), (1 << 20, 1 << 20), (1_048_577, 1 << 20), (2_999_000, 5000), (3_000_000, 1)]
        {
            let wanted = &text[at.min(text.len())..text.len().min(at + bytes)];
            let got = answer(&mut folder, read_of("long", at as u64, bytes as u32));
            assert!(got == Answer::Bytes(wanted.to_vec()), "{at}+{bytes}");
        }
        assert_eq!(answer(&mut folder, read_of("long", u64::MAX, 10)), Answer::Bytes(Vec::new()));
        let Answer::Failed(why) = answer(&mut folder, read_of("long", 0, READ_MOST + 1)) else { panic!() };
        assert!(why.contains("more than is read at once"), "{why}");
        folder.ask(Request::End {});
        assert!(!folder.read(&mut Vec::new()));
    }
}
