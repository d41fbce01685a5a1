use super::*;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Counts what it gets.
#[derive(Default)]
struct Counting {
    rows: usize,
    copied: usize,
    tags: Vec<String>,
    notices: Vec<String>,
    /// Fails after so many rows.
    limit: Option<usize>,
}

impl Receiver for Counting {
    fn columns(&mut self, _columns: &[Column]) -> io::Result<()> {
        Ok(())
    }

    fn row(&mut self, _values: &[Option<&str>]) -> io::Result<()> {
        self.rows += 1;
        if self.limit == Some(self.rows) { Err(io::Error::other("enough")) } else { Ok(()) }
    }

    fn complete(&mut self, tag: &str) -> io::Result<()> {
        self.tags.push(tag.to_owned());
        Ok(())
    }

    fn notice(&mut self, notice: &Report) {
        self.notices.push(notice.message.clone());
    }

    fn copy_in(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn copy_read(&mut self, _data: &mut Vec<u8>) -> io::Result<bool> {
        Ok(false)
    }

    fn copy_out(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn copy_write(&mut self, data: &[u8]) -> io::Result<()> {
        self.copied += data.len();
        Ok(())
    }
}

fn address(folder: &Path) -> Address {
    let text = format!("host={} port=1 user=me password=x", folder.display());
    Address::parse(&text, &|_| None, "me").unwrap()
}

/// A server that says what it was told to say to each connection, whatever is asked.
fn server(folder: &Path, says: Vec<Vec<u8>>) -> JoinHandle<()> {
    let listener = UnixListener::bind(folder.join(".s.PGSQL.1")).unwrap();
    std::thread::spawn(move || {
        for text in says {
            let (mut socket, _) = listener.accept().unwrap();
            // Who found out early is gone.
            let _ = socket.write_all(&text);
            let _ = socket.shutdown(std::net::Shutdown::Write);
            let _ = socket.read_to_end(&mut Vec::new());
        }
    })
}

fn greeting() -> Output {
    let mut out = Output::default();
    out.begin(b'R').i32(0).end();
    out.begin(b'S').str("server_version").str("15.0").end();
    out.begin(b'K').i32(7).u32(9).end();
    out.begin(b'Z').u8(b'I').end();
    out
}

fn results(out: &mut Output) {
    out.begin(b'N').u8(b'S').str("NOTICE").u8(b'M').str("by the way").u8(0).end();
    out.begin(b'T').count(1).str("a").u32(0).i16(0).u32(23).i16(4).i32(-1).i16(0).end();
    out.begin(b'D').count(1).value(|bytes| bytes.push(b'1')).end();
    out.begin(b'D').count(1).i32(-1).end();
    out.begin(b'C').str("SELECT 2").end();
    out.begin(b'G').u8(0).count(0).end();
    out.begin(b'H').u8(0).count(0).end();
    out.begin(b'd').raw(b"x\n").end();
    out.plain(b'c');
    out.begin(b'E')
        .u8(b'S')
        .str("ERROR")
        .u8(b'C')
        .str("22012")
        .u8(b'M')
        .str("oh")
        .u8(b'P')
        .str("3")
        .u8(0)
        .end();
    out.begin(b'Z').u8(b'E').end();
}

#[test]
fn results_arrive() {
    let folder = tempfile::tempdir().unwrap();
    let mut out = greeting();
    results(&mut out);
    let server = server(folder.path(), vec![out.bytes().to_vec()]);
    let mut connection = Connection::open(&address(folder.path()), "test").unwrap();
    assert_eq!((connection.setting("server_version"), connection.pid()), (Some("15.0"), 7));
    let mut counting = Counting::default();
    let Err(Failure::Server(report)) = connection.query("select", &mut counting) else { panic!("no error") };
    assert_eq!((report.state.as_str(), report.message.as_str(), report.position), ("22012", "oh", Some(3)));
    assert_eq!((counting.rows, counting.copied), (2, 2));
    assert_eq!(
        (counting.tags, counting.notices),
        (vec!["SELECT 2".to_owned()], vec!["by the way".to_owned()])
    );
    assert_eq!(connection.status(), TransactionStatus::Failed);
    assert!(connection.is_alive());
    let nul = connection.query("select '\0'", &mut Counting::default());
    assert!(matches!(nul, Err(Failure::Receiver(_))) && connection.is_alive());
    assert!(matches!(connection.query("select", &mut Counting::default()), Err(Failure::Connection(_))));
    assert!(!connection.is_alive());
    drop(connection);
    server.join().unwrap();
}

#[test]
fn what_nobody_takes_is_cancelled_and_read_past() {
    let folder = tempfile::tempdir().unwrap();
    let mut out = greeting();
    results(&mut out);
    let server = server(folder.path(), vec![out.bytes().to_vec()]);
    let mut connection = Connection::open(&address(folder.path()), "test").unwrap();
    // The cancel request waits for its turn with this server; nobody answers it before the connection ends.
    std::fs::remove_file(folder.path().join(".s.PGSQL.1")).unwrap();
    let mut counting = Counting { limit: Some(1), ..Counting::default() };
    let done = connection.query("select", &mut counting);
    assert!(matches!(done, Err(Failure::Receiver(error)) if error.to_string() == "enough"));
    assert_eq!((counting.rows, counting.copied, connection.is_alive()), (1, 0, true));
    drop(connection);
    server.join().unwrap();
}

#[test]
fn whatever_a_server_sends_is_read_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut out = greeting();
    results(&mut out);
    let whole = out.bytes().to_vec();
    let mut says: Vec<Vec<u8>> = (0..whole.len()).map(|len| whole[..len].to_vec()).collect();
    for at in 0..whole.len() {
        for byte in [0, 0x7f, 0xff] {
            let mut changed = whole.clone();
            changed[at] = byte;
            says.push(changed);
        }
    }
    let count = says.len();
    // Cancel requests are not to take a turn.
    let server = server(folder.path(), says);
    for _ in 0..count {
        if let Ok(mut connection) = Connection::open(&address(folder.path()), "test") {
            let _ = connection.query("select", &mut Counting::default());
        }
    }
    server.join().unwrap();
}

#[test]
fn a_server_that_skips_the_proof_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut skips = Output::default();
    skips.begin(b'R').i32(10).str("SCRAM-SHA-256").u8(0).end();
    skips.begin(b'R').i32(0).end();
    let mut md5 = Output::default();
    md5.begin(b'R').i32(5).u32(1).end();
    let server = server(folder.path(), vec![skips.bytes().to_vec(), md5.bytes().to_vec()]);
    for expected in ["did not prove", "MD5"] {
        let error = Connection::open(&address(folder.path()), "test").unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    server.join().unwrap();
}

/// The address of a listener whose kernel accepts for it, and that never answers.
fn silent() -> (std::net::TcpListener, Address) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let address = Address::parse(&format!("postgres://me@127.0.0.1:{port}/s"), &|_| None, "me").unwrap();
    (listener, address)
}

#[test]
fn who_waits_for_a_silent_server_can_give_up() {
    use std::sync::atomic::{AtomicU32, Ordering};
    let (_listener, address) = silent();
    for ssl in [SslMode::Prefer, SslMode::Disable] {
        let looked = Arc::new(AtomicU32::new(0));
        let looks = Arc::clone(&looked);
        let give_up: GiveUp = Arc::new(move || looks.fetch_add(1, Ordering::SeqCst) >= 3);
        let opened = Connection::open_unless(&Address { ssl, ..address.clone() }, "test", give_up);
        let Err(Failure::Connection(error)) = opened else { panic!("let in") };
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted, "{error}");
        assert_eq!(looked.load(Ordering::SeqCst), 4);
    }
}

#[test]
fn the_whole_log_in_has_a_limit() {
    let (_listener, address) = silent();
    for ssl in [SslMode::Prefer, SslMode::Disable] {
        let connect_timeout = Some(Duration::from_millis(20));
        let opened = Connection::open(&Address { ssl, connect_timeout, ..address.clone() }, "test");
        let Err(Failure::Connection(error)) = opened else { panic!("let in") };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains("connect_timeout"), "{error}");
    }
}

#[test]
fn a_limit_of_the_log_in_is_none_of_statements() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path(), vec![greeting().bytes().to_vec()]);
    let limited = Address { connect_timeout: Some(Duration::from_secs(3600)), ..address(folder.path()) };
    let mut connection = Connection::open_unless(&limited, "test", Arc::new(|| false)).unwrap();
    assert_eq!(format!("{:?}", connection.layer.get_mut().socket()).matches("until None").count(), 1);
    drop(connection);
    server.join().unwrap();
}

/// Sends so much that nobody has room for it: so many bytes until now.
#[derive(Default)]
struct Endless(usize);

impl Receiver for Endless {
    fn columns(&mut self, _columns: &[Column]) -> io::Result<()> {
        Ok(())
    }

    fn row(&mut self, _values: &[Option<&str>]) -> io::Result<()> {
        Ok(())
    }

    fn complete(&mut self, _tag: &str) -> io::Result<()> {
        Ok(())
    }

    fn notice(&mut self, _notice: &Report) {}

    fn copy_read(&mut self, data: &mut Vec<u8>) -> io::Result<bool> {
        data.resize(SEND_AT, b'x');
        self.0 += SEND_AT;
        assert!(self.0 < 1 << 30, "nobody listens to the server");
        Ok(true)
    }
}

#[test]
fn a_server_that_ends_while_it_is_sent_data_has_said_why() {
    let folder = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(folder.path().join(".s.PGSQL.1")).unwrap();
    let server = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut out = greeting();
        out.begin(b'G').u8(0).count(0).end();
        socket.write_all(out.bytes()).unwrap();
        // Some of the data comes; then nobody reads it.
        socket.read_exact(&mut [0; 2 * SEND_AT]).unwrap();
        out.clear();
        out.begin(b'E').u8(b'S').str("FATAL").u8(b'C').str("57P01").u8(b'M').str("the end").u8(0).end();
        socket.write_all(out.bytes()).unwrap();
    });
    let mut connection = Connection::open(&address(folder.path()), "test").unwrap();
    let Err(Failure::Server(report)) = connection.query("copy t from stdin", &mut Endless::default()) else {
        panic!("no reason")
    };
    assert_eq!((report.state.as_str(), report.message.as_str()), ("57P01", "the end"));
    assert!(!connection.is_alive());
    server.join().unwrap();
    // And before any statement.
    assert!(matches!(connection.query("select", &mut Endless::default()), Err(Failure::Connection(_))));
}

#[test]
fn data_that_the_server_refuses_is_not_sent_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(folder.path().join(".s.PGSQL.1")).unwrap();
    let server = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut out = greeting();
        out.begin(b'G').u8(0).count(0).end();
        out.begin(b'N').u8(b'S').str("NOTICE").u8(b'M').str("by the way").u8(0).end();
        socket.write_all(out.bytes()).unwrap();
        // It is none of what ends a COPY.
        socket.read_exact(&mut vec![0; 64 * SEND_AT]).unwrap();
        out.clear();
        out.begin(b'E').u8(b'S').str("ERROR").u8(b'C').str("22P02").u8(b'M').str("bad").u8(0).end();
        out.begin(b'Z').u8(b'I').end();
        socket.write_all(out.bytes()).unwrap();
        socket.read_to_end(&mut Vec::new()).unwrap();
    });
    let mut connection = Connection::open(&address(folder.path()), "test").unwrap();
    let mut endless = Endless::default();
    let Err(Failure::Server(report)) = connection.query("copy t from stdin", &mut endless) else {
        panic!("no error")
    };
    assert_eq!((&*report.state, connection.status()), ("22P02", TransactionStatus::Idle));
    assert!(connection.is_alive());
    drop(connection);
    server.join().unwrap();
}

fn prepared(out: &mut Output) {
    out.plain(b'1');
    out.begin(b't').count(2).u32(23).u32(25).end();
    out.begin(b'T').count(1).str("a").u32(0).i16(0).u32(23).i16(4).i32(-1).i16(1).end();
    out.begin(b'Z').u8(b'I').end();
}

#[test]
fn prepared_statements_are_run_with_binary_values() {
    let folder = tempfile::tempdir().unwrap();
    let mut out = greeting();
    prepared(&mut out);
    // Two rows; an error; a row that is shorter than it says.
    out.plain(b'2');
    out.begin(b'D').count(1).value(|bytes| bytes.extend_from_slice(&7_i32.to_be_bytes())).end();
    out.begin(b'D').count(1).i32(-1).end();
    out.begin(b'C').str("SELECT 2").end();
    out.begin(b'Z').u8(b'T').end();
    out.begin(b'E').u8(b'C').str("40001").u8(b'M').str("late").u8(0).end();
    out.begin(b'Z').u8(b'E').end();
    out.begin(b'D').count(1).i32(9).raw(b"1").end();
    let server = server(folder.path(), vec![out.bytes().to_vec()]);
    let mut connection = Connection::open(&address(folder.path()), "test").unwrap();
    let statement = connection.prepare("select $1, $2").unwrap();
    assert_eq!(statement.parameters(), [23, 25]);
    assert_eq!(statement.columns(), [Column { name: "a".to_owned(), type_oid: 23 }]);
    let mut rows = Vec::new();
    let mut take = |_: usize, row: &[Option<&[u8]>]| {
        rows.push(row.iter().map(|value| value.map(<[u8]>::to_vec)).collect::<Vec<_>>());
        Ok(())
    };
    let mut given = Vec::new();
    let mut give = |_: usize, place: usize, ty: u32, out: &mut Vec<u8>| {
        given.push((place, ty));
        out.push(b'x');
        Ok(place == 0)
    };
    // What cannot be given is the caller's affair, and nothing was sent.
    let mut none = |_: usize, _: usize, _: u32, _: &mut Vec<u8>| Err(io::Error::other("no"));
    let refused = connection.run(&[&statement], &mut none, &mut |_, _| Ok(()));
    assert!(matches!(refused, Err(Failure::Receiver(_))) && connection.is_alive());
    assert_eq!(connection.run(&[&statement], &mut give, &mut take).unwrap(), ["SELECT 2"]);
    assert_eq!(connection.status(), TransactionStatus::Active);
    let Err(Failure::Server(report)) = connection.run(&[&statement], &mut give, &mut take) else {
        panic!("no error")
    };
    assert_eq!((&*report.state, connection.status()), ("40001", TransactionStatus::Failed));
    assert!(matches!(connection.run(&[&statement], &mut give, &mut take), Err(Failure::Connection(_))));
    assert!(!connection.is_alive());
    assert_eq!(rows, [[Some(vec![0, 0, 0, 7])], [None]]);
    assert_eq!(given, [(0, 23), (1, 25)].repeat(3));
    drop(connection);
    server.join().unwrap();
}

#[test]
fn a_prepared_copy_is_refused_and_statements_belong_to_their_connection() {
    let folder = tempfile::tempdir().unwrap();
    let mut out = greeting();
    prepared(&mut out);
    out.plain(b'2');
    out.begin(b'G').u8(0).count(0).end();
    out.begin(b'E').u8(b'C').str("57014").u8(b'M').str("COPY from stdin failed").u8(0).end();
    out.begin(b'Z').u8(b'I').end();
    let mut other = greeting();
    prepared(&mut other);
    let server = server(folder.path(), vec![out.bytes().to_vec(), other.bytes().to_vec()]);
    let mut connection = Connection::open(&address(folder.path()), "test").unwrap();
    let statement = connection.prepare("copy t from stdin").unwrap();
    let mut give = |_: usize, _: usize, _: u32, _: &mut Vec<u8>| Ok(false);
    let refused = connection.run(&[&statement], &mut give, &mut |_, _| Ok(()));
    assert!(matches!(refused, Err(Failure::Receiver(_))) && connection.is_alive());
    drop(connection);
    let mut connection = Connection::open(&address(folder.path()), "test").unwrap();
    let refused = connection.run(&[&statement], &mut give, &mut |_, _| Ok(()));
    assert!(matches!(refused, Err(Failure::Receiver(_))) && connection.is_alive());
    connection.prepare("select").unwrap();
    drop(connection);
    server.join().unwrap();
}

#[test]
fn statements_that_were_asked_at_once_are_all_answered_or_the_connection_is_of_no_use() {
    let folder = tempfile::tempdir().unwrap();
    // Asked twice, answered once, and thrice.
    let mut scripts = Vec::new();
    for answers in [1, 3] {
        let mut out = greeting();
        prepared(&mut out);
        for _ in 0..answers {
            out.plain(b'2');
            out.begin(b'C').str("UPDATE 1").end();
        }
        out.begin(b'Z').u8(b'I').end();
        scripts.push(out.bytes().to_vec());
    }
    // A server that goes behind its first answer has said why.
    let mut out = greeting();
    prepared(&mut out);
    out.plain(b'2');
    out.begin(b'C').str("UPDATE 1").end();
    out.begin(b'E').u8(b'S').str("FATAL").u8(b'C').str("57P01").u8(b'M').str("the end").u8(0).end();
    scripts.push(out.bytes().to_vec());
    // So has one that goes while more is to be sent than is sent at once, behind an answer or in place of it.
    scripts.push(out.bytes().to_vec());
    let mut out = greeting();
    prepared(&mut out);
    out.begin(b'E').u8(b'S').str("FATAL").u8(b'C').str("57P01").u8(b'M').str("the end").u8(0).end();
    scripts.push(out.bytes().to_vec());
    // A row of a statement that there is not.
    let mut out = greeting();
    prepared(&mut out);
    out.begin(b'C').str("UPDATE 1").end();
    out.begin(b'C').str("UPDATE 1").end();
    out.begin(b'D').count(0).end();
    scripts.push(out.bytes().to_vec());
    let listener = UnixListener::bind(folder.path().join(".s.PGSQL.1")).unwrap();
    let server = std::thread::spawn(move || {
        for (number, text) in scripts.into_iter().enumerate() {
            let (mut socket, _) = listener.accept().unwrap();
            socket.write_all(&text).unwrap();
            if matches!(number, 3 | 4) {
                // It has read something of that, and is gone.
                socket.read_exact(&mut [0; 60_000]).unwrap();
                continue;
            }
            socket.shutdown(std::net::Shutdown::Write).unwrap();
            let _ = socket.read_to_end(&mut Vec::new());
        }
    });
    for number in 0..6 {
        let mut connection = Connection::open(&address(folder.path()), "test").unwrap();
        let statement = connection.prepare("update t set a = $1").unwrap();
        let bytes = if matches!(number, 3 | 4) { 40_000 } else { 1 };
        let mut give = |_: usize, _: usize, _: u32, out: &mut Vec<u8>| {
            out.resize(bytes, b'x');
            Ok(true)
        };
        let told = connection.run(&[&statement, &statement], &mut give, &mut |_, _| Ok(()));
        match (number, told) {
            (0, Err(Failure::Connection(error))) => assert!(error.to_string().contains("2 statements")),
            (1 | 5, Err(Failure::Connection(error))) => assert_eq!(error.kind(), io::ErrorKind::InvalidData),
            (2..=4, Err(Failure::Server(report))) => assert_eq!(report.state, "57P01"),
            (_, told) => panic!("{number}: {told:?}"),
        }
        assert!(!connection.is_alive());
    }
    server.join().unwrap();
}

/// Answers each notice.
#[derive(Default)]
struct Answering {
    asked: Vec<String>,
    answered: usize,
}

impl Receiver for Answering {
    fn columns(&mut self, _columns: &[Column]) -> io::Result<()> {
        Ok(())
    }

    fn row(&mut self, _values: &[Option<&str>]) -> io::Result<()> {
        Ok(())
    }

    fn complete(&mut self, _tag: &str) -> io::Result<()> {
        Ok(())
    }

    fn notice(&mut self, notice: &Report) {
        self.asked.push(notice.message.clone());
    }

    fn answers(&self) -> bool {
        true
    }

    fn copy_read(&mut self, data: &mut Vec<u8>) -> io::Result<bool> {
        let Some(asked) = self.asked.get(self.answered) else { return Ok(true) };
        data.extend_from_slice(asked.as_bytes());
        self.answered += 1;
        Ok(asked != "end")
    }
}

#[test]
fn data_that_answers_notices_waits_for_them() {
    let folder = tempfile::tempdir().unwrap();
    let ask = |out: &mut Output, text: &str| {
        out.begin(b'N').u8(b'S').str("INFO").u8(b'M').str(text).u8(0).end();
    };
    let asking = move |texts: &[&str]| {
        let mut out = greeting();
        out.begin(b'G').u8(0).count(0).end();
        texts.iter().for_each(|text| ask(&mut out, text));
        out
    };
    let mut refusing = asking(&["one"]);
    refusing.begin(b'E').u8(b'S').str("ERROR").u8(b'C').str("57014").u8(b'M').str("oh").u8(0).end();
    refusing.begin(b'Z').u8(b'I').end();
    let mut done = Output::default();
    done.begin(b'C').str("LOAD DATABASE 1").end();
    done.begin(b'Z').u8(b'I').end();
    let listener = UnixListener::bind(folder.path().join(".s.PGSQL.1")).unwrap();
    let serving = std::thread::spawn(move || {
        let says = [(asking(&["one", "two", "end"]), true), (refusing, false), (asking(&["one"]), false)];
        for (said, ends_well) in says {
            let (mut socket, _) = listener.accept().unwrap();
            socket.write_all(said.bytes()).unwrap();
            let mut came = Vec::new();
            while ends_well && !came.ends_with(&[b'c', 0, 0, 0, 4]) {
                let mut byte = [0];
                socket.read_exact(&mut byte).unwrap();
                came.push(byte[0]);
            }
            if ends_well {
                assert!(
                    came.windows(8)
                        .any(|sent| sent[..8] == *b"d\0\0\0\x07one" || sent[..8] == *b"d\0\0\0\x07two")
                );
                socket.write_all(done.bytes()).unwrap();
            }
            let _ = socket.shutdown(std::net::Shutdown::Write);
            let _ = socket.read_to_end(&mut Vec::new());
        }
    });
    let address = address(folder.path());
    let run = || {
        let mut connection = Connection::open(&address, "test").unwrap();
        let mut receiver = Answering::default();
        let done = connection.query("load", &mut receiver);
        (done, receiver.answered)
    };
    assert!(matches!(run(), (Ok(()), 3)));
    let (refused, answered) = run();
    assert!(matches!(refused, Err(Failure::Server(report)) if report.state == "57014") && answered <= 1);
    assert!(matches!(run(), (Err(Failure::Connection(_)), _)));
    serving.join().unwrap();
}
