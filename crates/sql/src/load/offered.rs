//! Files that the client of a load has, and offers: the server asks for pieces of them.
//!
//! # How it is asked
//! While the client is in the mode of COPY FROM STDIN, the server sends INFO notices whose detail is a [`Request`] as JSON:
//! `{"len":"orders.csv"}`, `{"read":{"file":"orders.csv","at":1048576,"bytes":1048576}}`, and at the end `{"end":{}}`. Files are called by the name that
//! FILE gave; those of a FOLDER by their own, which has no separators. The client answers one after the other, in `CopyData` messages that may be cut
//! anywhere; to the last one by `CopyDone`. An answer is one byte, the length of what follows as four bytes, the highest first, and that:
//!
//! | byte | answer | what follows |
//! |---|---|---|
//! | 0 | here it is | the bytes asked for, up to the end of the file; its length as eight bytes, the highest first |
//! | 1 | there is no such file | nothing |
//! | 2 | it cannot be read | why, as text |
//!
//! # What it guarantees
//! 1. No more than two requests are under way, and no answer is taken that is longer than what was asked for: a client cannot make the server
//!    keep more.
//! 2. While a file is read from its beginning on, its next piece is asked for before this one is waited for: the way there and back costs no time, as
//!    long as a piece takes longer to load.

use super::files::{Blocks, REQUEST};
use crate::{Error, Result, SqlState};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that are asked for at once, at most.
pub const READ_MOST: u32 = REQUEST as u32;
/// Requests that are under way at a time, at most.
pub(crate) const UNDER_WAY: usize = 2;
/// Longest text of an answer, in bytes.
const TEXT_MOST: usize = 4 << 10;
/// Bytes before what an answer holds.
const HEAD: usize = 5;
/// What offsets are multiples of, which is what most devices want.
const ALIGNMENT: usize = 4096;

/// What a server asks a client who offers files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Request {
    /// How long a file is.
    Len(String),
    /// A piece of it.
    Read {
        /// The file.
        file: String,
        /// Where the piece begins.
        at: u64,
        /// Its bytes: up to [`READ_MOST`], fewer at the end of the file.
        bytes: u32,
    },
    /// Nothing more.
    End {},
}

impl Request {
    /// The most that an answer may hold.
    fn answer_most(&self) -> usize {
        match self {
            Request::Len(_) => size_of::<u64>(),
            Request::Read { bytes, .. } => *bytes as usize,
            Request::End {} => 0,
        }
    }
}

/// What a client answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Here it is.
    Bytes(Vec<u8>),
    /// There is no such file.
    Missing,
    /// It cannot be read: why.
    Failed(String),
}

impl Answer {
    /// As it is sent.
    pub fn encode(&self) -> Vec<u8> {
        let (kind, bytes): (u8, &[u8]) = match self {
            Answer::Bytes(bytes) => (0, bytes),
            Answer::Missing => (1, &[]),
            Answer::Failed(why) => (2, &why.as_bytes()[..why.len().min(TEXT_MOST)]),
        };
        let mut encoded = Vec::with_capacity(HEAD + bytes.len());
        encoded.push(kind);
        encoded.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
        encoded.extend_from_slice(bytes);
        encoded
    }
}

/// Puts answers together of what the client sends.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// The most that each of those may hold that are waited for.
    most: VecDeque<usize>,
    bytes: Vec<u8>,
}

impl Answers {
    /// This was asked, and its answer is waited for.
    pub(crate) fn expect(&mut self, request: &Request) {
        self.most.push_back(request.answer_most());
    }

    /// Whether any is waited for.
    pub(crate) fn are_expected(&self) -> bool {
        !self.most.is_empty()
    }

    /// Takes what has come.
    ///
    /// # Errors
    /// 08P01: it is none of the answers that are waited for.
    pub(crate) fn feed(&mut self, data: &[u8]) -> Result<()> {
        // What is longer than all that is waited for is not kept, not even for a moment.
        let most: usize = self.most.iter().map(|most| HEAD + (*most).max(TEXT_MOST)).sum();
        if most > 0 && self.bytes.len() + data.len() > most {
            return Err(wrong("it is longer than what was asked for"));
        }
        self.bytes.extend_from_slice(data);
        match self.most.front() {
            None if !self.bytes.is_empty() => Err(wrong("nothing was asked for")),
            Some(most) => self.check(*most),
            None => Ok(()),
        }
    }

    fn check(&self, most: usize) -> Result<()> {
        let Some((kind, len)) = self.head() else { return Ok(()) };
        let most = match kind {
            0 => most,
            1 => 0,
            2 => TEXT_MOST,
            _ => return Err(wrong("it is no answer")),
        };
        if len > most {
            return Err(wrong("it is longer than what was asked for"));
        }
        Ok(())
    }

    fn head(&self) -> Option<(u8, usize)> {
        let head = self.bytes.first_chunk::<HEAD>()?;
        Some((head[0], u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize))
    }

    /// The next answer, if all of it is there.
    pub(crate) fn next(&mut self) -> Result<Option<Answer>> {
        let Some((kind, len)) = self.head().filter(|(_, len)| self.bytes.len() >= HEAD + len) else {
            return Ok(None);
        };
        let rest = self.bytes.split_off(HEAD + len);
        let mut bytes = std::mem::replace(&mut self.bytes, rest);
        bytes.drain(..HEAD);
        self.most.pop_front();
        self.feed(&[])?;
        Ok(Some(match kind {
            0 => Answer::Bytes(bytes),
            1 => Answer::Missing,
            _ => Answer::Failed(String::from_utf8_lossy(&bytes).into_owned()),
        }))
    }
}

fn wrong(why: &str) -> Error {
    let message = format!("the client of a load has sent what it should not have: {why}");
    Error::new(SqlState::PROTOCOL_VIOLATION, message)
}

/// The way to a client.
pub(crate) trait Line: Send {
    /// Sends a request.
    fn ask(&mut self, request: Request) -> Result<()>;
    /// Waits a while for the next answer; `None`: it has not come yet.
    fn answer(&mut self) -> Result<Option<Answer>>;
}

/// Files that a client offers. Clones are the same.
#[derive(Clone)]
pub struct Offered {
    /// Files are called by their names alone, as they lie in one folder.
    is_folder: bool,
    line: Arc<Mutex<Asking>>,
}

impl std::fmt::Debug for Offered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Offered").field("is_folder", &self.is_folder).finish_non_exhaustive()
    }
}

struct Asking {
    line: Box<dyn Line>,
    /// What was asked for and has no answer yet: what is waited for, and the piece that was asked for in advance.
    asked: VecDeque<Request>,
}

impl Asking {
    /// The answer to a request, which may be under way; what was asked for in vain comes before it, and is not looked at. `next` is asked for, too.
    /// `None`: it has not come yet. Who gives it up then may ask for something else.
    fn get(&mut self, request: &Request, next: Option<Request>) -> Result<Option<Answer>> {
        while self.asked.front().is_some_and(|asked| asked != request) {
            if self.line.answer()?.is_none() {
                return Ok(None);
            }
            self.asked.pop_front();
        }
        if self.asked.is_empty() {
            self.ask(request.clone())?;
        }
        if let Some(next) = next.filter(|_| self.asked.len() < UNDER_WAY) {
            self.ask(next)?;
        }
        let answer = self.line.answer()?;
        if answer.is_some() {
            self.asked.pop_front();
        }
        Ok(answer)
    }

    fn ask(&mut self, request: Request) -> Result<()> {
        self.line.ask(request.clone())?;
        self.asked.push_back(request);
        Ok(())
    }
}

impl Offered {
    pub(crate) fn new(line: Box<dyn Line>, is_folder: bool) -> Self {
        Offered { is_folder, line: Arc::new(Mutex::new(Asking { line, asked: VecDeque::new() })) }
    }

    /// What it calls a file.
    fn name(&self, path: &Path) -> String {
        let name = if self.is_folder { path.file_name().unwrap_or_default() } else { path.as_os_str() };
        name.to_string_lossy().into_owned()
    }

    fn line(&self) -> MutexGuard<'_, Asking> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of a file, if it has one of that name.
    pub(super) fn len_of(&self, path: &Path) -> Result<Option<u64>> {
        let (request, mut line) = (Request::Len(self.name(path)), self.line());
        let answer = loop {
            if let Some(answer) = line.get(&request, None)? {
                break answer;
            }
        };
        match answer {
            Answer::Bytes(len) => {
                let len = len.as_slice().try_into().map_err(|_| wrong("a length is too short"))?;
                Ok(Some(u64::from_be_bytes(len)))
            }
            Answer::Missing => Ok(None),
            Answer::Failed(why) => Err(unreadable(path, &why)),
        }
    }

    pub(super) fn open(&self, path: &Path) -> Result<Option<OfClient>> {
        let of = |len| OfClient { client: self.clone(), name: self.name(path), len, behind: Mutex::new(0) };
        Ok(self.len_of(path)?.map(of))
    }
}

fn unreadable(path: &Path, why: &str) -> Error {
    Error::new(SqlState::IO_ERROR, format!("the client cannot read {path:?}: {why}"))
}

/// A file of the client.
pub(super) struct OfClient {
    client: Offered,
    name: String,
    len: u64,
    /// Where the piece ends that was read last: who goes on there goes on behind it, too.
    behind: Mutex<u64>,
}

impl OfClient {
    fn request(&self, at: u64, most: usize) -> Option<Request> {
        let bytes = self.len.saturating_sub(at).min(most as u64).min(u64::from(READ_MOST)) as u32;
        (bytes > 0).then(|| Request::Read { file: self.name.clone(), at, bytes })
    }
}

impl Blocks for OfClient {
    fn len(&self) -> u64 {
        self.len
    }

    fn is_of_client(&self) -> bool {
        true
    }

    fn alignment(&self) -> usize {
        ALIGNMENT
    }

    fn read(&self, at: u64, block: &mut [u8]) -> Result<Option<usize>> {
        let Some(request) = self.request(at, block.len()) else { return Ok(Some(0)) };
        let wanted = request.answer_most();
        let end = at + wanted as u64;
        let mut behind = self.behind.lock().unwrap_or_else(PoisonError::into_inner);
        let goes_on = *behind == at || at == 0;
        let next = if goes_on { self.request(end, block.len()) } else { None };
        let Some(answer) = self.client.line().get(&request, next)? else { return Ok(None) };
        *behind = end;
        drop(behind);
        match answer {
            Answer::Bytes(bytes) if bytes.len() == wanted => {
                block[..wanted].copy_from_slice(&bytes);
                Ok(Some(wanted))
            }
            Answer::Bytes(_) | Answer::Missing => {
                Err(unreadable(Path::new(&self.name), "it is shorter than it was"))
            }
            Answer::Failed(why) => Err(unreadable(Path::new(&self.name), &why)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_io::AlignedBuffer;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn requests_are_json_that_stays_as_it_is() {
        for (request, text) in [
            (Request::Len("a.csv".into()), r#"{"len":"a.csv"}"#),
            (
                Request::Read { file: "a".into(), at: 7, bytes: 9 },
                r#"{"read":{"file":"a","at":7,"bytes":9}}"#,
            ),
            (Request::End {}, r#"{"end":{}}"#),
        ] {
            assert_eq!(serde_json::to_string(&request).unwrap(), text);
            assert_eq!(serde_json::from_str::<Request>(text).unwrap(), request);
        }
    }

    #[test]
    fn answers_are_put_together_however_they_were_cut() {
        let sent = [Answer::Bytes(b"12345678".to_vec()), Answer::Missing, Answer::Failed("why".to_owned())];
        let bytes: Vec<u8> = sent.iter().flat_map(Answer::encode).collect();
        for cut in 1..=bytes.len() {
            let mut answers = Answers::default();
            sent.iter().for_each(|_| answers.expect(&Request::Len("x".to_owned())));
            let mut came = Vec::new();
            for piece in bytes.chunks(cut) {
                answers.feed(piece).unwrap();
                while let Some(answer) = answers.next().unwrap() {
                    came.push(answer);
                }
            }
            assert_eq!(came, sent, "{cut}");
            assert!(!answers.are_expected());
        }
    }

    #[test]
    fn what_is_longer_than_all_that_was_asked_for_is_not_kept() {
        let mut answers = Answers::default();
        answers.expect(&Request::Read { file: "a".to_owned(), at: 0, bytes: READ_MOST });
        answers.expect(&Request::Len("a".to_owned()));
        let mut sent = Answer::Bytes(vec![7; REQUEST]).encode();
        sent.resize(2 * REQUEST, 0);
        let error = answers.feed(&sent).unwrap_err();
        assert!(error.to_string().contains("longer than"), "{error}");
        assert_eq!(answers.bytes.capacity(), 0);
    }

    #[test]
    fn what_was_not_asked_for_is_refused_before_it_is_there() {
        let refused = |requests: &[Request], bytes: &[u8]| {
            let mut answers = Answers::default();
            requests.iter().for_each(|request| answers.expect(request));
            let error = answers.feed(bytes).and_then(|()| answers.next()).unwrap_err();
            assert_eq!(error.state(), SqlState::PROTOCOL_VIOLATION);
            error.to_string()
        };
        let read = Request::Read { file: "a".to_owned(), at: 0, bytes: 3 };
        assert!(refused(&[], b"x").contains("nothing was asked for"));
        assert!(refused(std::slice::from_ref(&read), &[0, 0, 0, 0, 4]).contains("longer than"));
        assert!(refused(std::slice::from_ref(&read), &[1, 0, 0, 0, 1]).contains("longer than"));
        assert!(refused(std::slice::from_ref(&read), &[2, 0, 0, 16, 1]).contains("longer than"));
        assert!(refused(std::slice::from_ref(&read), &[9, 0, 0, 0, 1]).contains("no answer"));
        let mut two = Answer::Missing.encode();
        two.push(0);
        assert!(refused(&[read], &two).contains("nothing was asked for"));
    }

    /// A client with one file, that notes what it was asked.
    #[derive(Default)]
    struct Noting {
        file: Vec<u8>,
        asked: Arc<Mutex<Vec<String>>>,
        answers: VecDeque<Answer>,
        /// It takes its time.
        pauses: Arc<AtomicBool>,
    }

    impl Line for Noting {
        fn ask(&mut self, request: Request) -> Result<()> {
            let (answer, note) = match request {
                Request::Len(name) if name != "f" => (Answer::Missing, format!("no {name}")),
                Request::Len(_) => {
                    (Answer::Bytes((self.file.len() as u64).to_be_bytes().to_vec()), "len".to_owned())
                }
                Request::Read { at, bytes, .. } => {
                    let piece = &self.file[at as usize..][..bytes as usize];
                    (Answer::Bytes(piece.to_vec()), format!("{at}+{bytes}"))
                }
                Request::End {} => unreachable!(),
            };
            self.asked.lock().unwrap().push(note);
            self.answers.push_back(answer);
            assert!(self.answers.len() <= UNDER_WAY);
            Ok(())
        }

        fn answer(&mut self) -> Result<Option<Answer>> {
            if self.pauses.load(Ordering::Relaxed) {
                return Ok(None);
            }
            self.asked.lock().unwrap().push("got".to_owned());
            Ok(Some(self.answers.pop_front().unwrap()))
        }
    }

    #[test]
    fn the_next_piece_is_asked_for_before_this_one_is_there() {
        let file: Vec<u8> = (0..2 * REQUEST + 10).map(|at| (at / 4096) as u8).collect();
        let asked = Arc::default();
        let line = Noting { file: file.clone(), asked: Arc::clone(&asked), ..Noting::default() };
        let client = Offered::new(Box::new(line), true);
        let path = PathBuf::from("folder/f");
        let open = client.open(&path).unwrap().unwrap();
        let mut block = AlignedBuffer::zeroed(REQUEST);
        let mut read = |at: usize| {
            let count = open.read(at as u64, &mut block).unwrap().unwrap();
            assert_eq!(block[..count], file[at..at + count]);
            count
        };
        // Its end, from its beginning on, and back to some place.
        assert_eq!(read(2 * REQUEST), 10);
        assert_eq!(
            (read(0), read(REQUEST), read(2 * REQUEST), read(2 * REQUEST + 10)),
            (REQUEST, REQUEST, 10, 0)
        );
        assert_eq!((read(0), read(4096)), (REQUEST, REQUEST));
        assert_eq!(client.len_of(Path::new("folder/other")).unwrap(), None);
        let (len, one, two) = (REQUEST, format!("{REQUEST}+{REQUEST}"), format!("{}+10", 2 * REQUEST));
        let (first, back) = (format!("0+{len}"), format!("4096+{len}"));
        let wanted = [
            "len", "got", &two, "got", &first, &one, "got", &two, "got", "got", &first, &one, "got", "got",
            &back, "got", "no other", "got",
        ];
        assert_eq!(*asked.lock().unwrap(), wanted);
    }

    #[test]
    fn an_answer_that_nobody_waited_for_was_taken_for_that_to_the_next_request() {
        let file: Vec<u8> = (0..4 * REQUEST).map(|at| (at / 4096 % 251) as u8).collect();
        let pauses = Arc::new(AtomicBool::new(false));
        let line = Noting { file: file.clone(), pauses: Arc::clone(&pauses), ..Noting::default() };
        let client = Offered::new(Box::new(line), false);
        let open = client.open(Path::new("f")).unwrap().unwrap();
        let mut block = AlignedBuffer::zeroed(REQUEST);
        // Two pieces are asked for, and given up; then the same or other ones are wanted.
        for wanted in [[0, REQUEST], [REQUEST, 2 * REQUEST], [3 * REQUEST, 4096]] {
            pauses.store(true, Ordering::Relaxed);
            assert_eq!(open.read(0, &mut block).unwrap(), None);
            pauses.store(false, Ordering::Relaxed);
            for at in wanted {
                let count = open.read(at as u64, &mut block).unwrap().unwrap();
                assert_eq!(block[..count], file[at..at + count], "{at}");
            }
        }
    }
}
