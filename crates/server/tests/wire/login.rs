//! Who is let in: SCRAM, TLS, limits.

use crate::client::{Body, Outcome, Wire, bind, execute, first, frame, parse, query, tcp};
use crate::fixture::{Fixture, STOP_LIMIT};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use gannet_server::Server;
use gannet_server::frontend::{Address, Column, Connection, Failure, Receiver, Report};
use ring::{digest, hmac, pbkdf2};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const ROLES: &str =
    "create role ann login password 'pencil'; create role bob login; create role carl password 'pencil';
    create role dora login password 'päßwörd'";
const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;

fn with_tcp() -> Fixture {
    Fixture::with(ROLES, |options| options.listen = vec!["127.0.0.1:0".parse().unwrap()])
}

fn with_tls() -> Fixture {
    Fixture::with(ROLES, |options| {
        options.listen = vec!["127.0.0.1:0".parse().unwrap()];
        options.tls = Some((key("server.pem"), key("server.key")));
    })
}

fn key(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire/keys").join(name)
}

fn user(name: &str) -> Vec<u8> {
    first(3 << 16, &[("user", name), ("database", "shop")])
}

/// SASLInitialResponse.
fn initial(mechanism: &str, message: &str) -> Vec<u8> {
    frame(b'p', &Body::new().str(mechanism).value(Some(message.as_bytes())).0)
}

/// What a client answers to the server's first message.
fn proof(password: &str, server_first: &str) -> String {
    let part = |name: &str| server_first.split(',').find_map(|part| part.strip_prefix(name)).unwrap();
    let salt = BASE64.decode(part("s=")).unwrap();
    let mut salted = [0; 32];
    let iterations = part("i=").parse().unwrap();
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, iterations, &salt, password.as_bytes(), &mut salted);
    let sign = |key: &[u8], text: &str| {
        hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
    };
    let client_key = sign(&salted, "Client Key");
    let stored = digest::digest(&digest::SHA256, &client_key);
    let without = format!("c=biws,r={}", part("r="));
    let signature = sign(stored.as_ref(), &format!("n=,r=abcdef,{server_first},{without}"));
    let proof: Vec<u8> = client_key.iter().zip(&signature).map(|(a, b)| a ^ b).collect();
    format!("{without},p={}", BASE64.encode(proof))
}

/// Logs in by SCRAM. The server asks for nothing else, ever.
fn log_in(wire: &mut Wire, name: &str, password: &str) -> Outcome {
    wire.send(&user(name));
    let asked = wire.read().unwrap();
    assert_eq!((asked.kind, asked.body.as_slice()), (b'R', b"\0\0\0\x0aSCRAM-SHA-256\0\0".as_slice()));
    wire.send(&initial("SCRAM-SHA-256", "n,,n=,r=abcdef"));
    let reply = wire.read().unwrap();
    assert_eq!((reply.kind, &reply.body[..4]), (b'R', [0, 0, 0, 11].as_slice()), "{reply:?}");
    let server_first = String::from_utf8(reply.body[4..].to_vec()).unwrap();
    wire.send(&frame(b'p', proof(password, &server_first).as_bytes()));
    wire.started()
}

#[test]
fn the_right_password_is_let_in_and_no_other() {
    let fixture = with_tcp();
    let address = fixture.server().addresses()[0];
    let mut wire = Wire::tcp(address);
    let told = log_in(&mut wire, "ann", "pencil");
    assert!(told.kinds.starts_with("RRS") && told.status == 'I', "{told:?}");
    assert_eq!(wire.run("select current_user").one(), "ann");
    assert_eq!(log_in(&mut Wire::tcp(address), "dora", "päßwörd").status, 'I');
    // Wrong, of a name that does not exist, without password, of a role without permission: all look the same.
    for (name, password) in
        [("ann", "Pencil"), ("ann", ""), ("nobody", "pencil"), ("bob", ""), ("carl", "Pencil"), ("owner", "")]
    {
        let told = log_in(&mut Wire::tcp(address), name, password);
        assert_eq!(
            (told.kinds.as_str(), told.state(), told.errors[0].get('S')),
            ("E", "28P01", "FATAL"),
            "{name}"
        );
        assert_eq!(told.errors[0].message(), format!("password authentication failed for user \"{name}\""));
        assert_eq!(told.errors[0].0.len(), 4, "no more is told: {told:?}");
    }
    // Who knows the password is told more.
    let told = log_in(&mut Wire::tcp(address), "carl", "pencil");
    assert_eq!((told.kinds.as_str(), told.state(), told.errors[0].get('S')), ("RRE", "28000", "FATAL"));
    assert_eq!(told.errors[0].message(), "role \"carl\" is not permitted to log in");
}

#[test]
fn a_database_that_does_not_exist_is_told_only_to_who_was_let_in() {
    let fixture = with_tcp();
    let mut wire = Wire::tcp(fixture.server().addresses()[0]);
    wire.send(&first(3 << 16, &[("user", "ann"), ("database", "nothing")]));
    assert_eq!(wire.read().unwrap().body[3], 10);
    wire.send(&initial("SCRAM-SHA-256", "n,,n=,r=abcdef"));
    let reply = wire.read().unwrap();
    let server_first = String::from_utf8(reply.body[4..].to_vec()).unwrap();
    wire.send(&frame(b'p', proof("pencil", &server_first).as_bytes()));
    assert_eq!(wire.started().state(), "28P01");
}

/// The salt that a client is given.
fn salt(server: &Server, database: &str, name: &str) -> String {
    let mut wire = Wire::tcp(server.addresses()[0]);
    wire.send(&first(3 << 16, &[("user", name), ("database", database)]));
    wire.read().unwrap();
    wire.send(&initial("SCRAM-SHA-256", "n,,n=,r=abcdef"));
    let reply = String::from_utf8(wire.read().unwrap().body[4..].to_vec()).unwrap();
    reply.split(',').find_map(|part| part.strip_prefix("s=")).unwrap().to_owned()
}

#[test]
fn a_made_up_salt_was_the_same_in_every_database_and_another_one_after_a_start() {
    let mut begun = None;
    let mut fixture = Fixture::of(&["shop", "stock"], ROLES, 64 << 20, |options| {
        options.listen = vec!["127.0.0.1:0".parse().unwrap()];
        begun = Some(options.clone());
    });
    let places =
        [("shop", "ann"), ("stock", "ann"), ("shop", "nobody"), ("stock", "nobody"), ("nothing", "ann")];
    let salts = |server: &Server| places.map(|(database, name)| salt(server, database, name));
    let before = salts(fixture.server());
    assert_eq!(before.iter().collect::<std::collections::BTreeSet<_>>().len(), places.len(), "{before:?}");
    fixture.stop().unwrap();
    let again = Server::start(&fixture.engine, &begun.unwrap()).unwrap();
    assert_eq!(salts(&again), before);
    again.stop(STOP_LIMIT).unwrap();
}

#[test]
fn malformed_answers_are_refused() {
    let fixture = with_tcp();
    let address = fixture.server().addresses()[0];
    let good = "n,,n=,r=abcdef";
    let firsts: Vec<Vec<u8>> = vec![
        frame(b'p', b"pencil\0"),
        frame(b'p', b""),
        initial("SCRAM-SHA-256-PLUS", "p=tls-server-end-point,,n=,r=abcdef"),
        initial("PLAIN", "\0ann\0pencil"),
        initial("SCRAM-SHA-256", ""),
        initial("SCRAM-SHA-256", "n,,n="),
        initial("SCRAM-SHA-256", "p=tls-unique,,n=,r=abc"),
        frame(b'p', &Body::new().str("SCRAM-SHA-256").i32(1000).raw(good.as_bytes()).0),
        frame(b'p', &Body::new().str("SCRAM-SHA-256").i32(-1).0),
        frame(b'p', &Body::new().str("SCRAM-SHA-256").i32(2).raw(b"\xff\xfe").0),
        frame(b'Q', b"select 1\0"),
        b"p\x7f\xff\xff\xff".to_vec(),
        b"p\0\0\0\0".to_vec(),
    ];
    for bytes in firsts {
        let mut wire = Wire::tcp(address);
        wire.send(&user("ann"));
        assert_eq!(wire.read().unwrap().kind, b'R');
        wire.send(&bytes);
        let told = wire.started();
        assert_eq!(told.kinds, "E", "{bytes:?}");
        assert_eq!(told.errors[0].get('S'), "FATAL");
        assert!(matches!(told.state(), "08P01" | "0A000" | "22021"), "{told:?}");
    }
    for last in ["", "c=biws", "c=biws,r=abcdef,p=AAAA", "c=eSws,r=abcdef,p=AAAA", "p=,p=,p="] {
        let mut wire = Wire::tcp(address);
        wire.send(&[user("ann"), initial("SCRAM-SHA-256", good)].concat());
        assert_eq!((wire.read().unwrap().kind, wire.read().unwrap().kind), (b'R', b'R'));
        wire.send(&frame(b'p', last.as_bytes()));
        let told = wire.started();
        assert_eq!((told.kinds.as_str(), told.state()), ("E", "08P01"), "{last:?}");
    }
    // None of it has hurt anybody.
    assert_eq!(log_in(&mut Wire::tcp(address), "ann", "pencil").status, 'I');
}

#[test]
fn trust_lets_in_who_exists_and_may_log_in() {
    let fixture = Fixture::with(ROLES, |options| {
        options.listen = vec!["127.0.0.1:0".parse().unwrap()];
        options.insecure_trust = true;
    });
    let address = fixture.server().addresses()[0];
    let start = |name| Wire::tcp(address).start(&[("user", name), ("database", "shop")]);
    assert_eq!(start("bob").status, 'I');
    assert_eq!((start("nobody").state(), start("carl").state()), ("28000", "28000"));
    // Over the Unix socket likewise.
    let told = fixture.raw().start(&[("user", "nobody"), ("database", "shop")]);
    assert_eq!((told.state(), told.errors[0].message()), ("28000", "role \"nobody\" does not exist"));
}

/// Encrypts a connection; the certificate has to be the server's.
fn encrypted(address: std::net::SocketAddr) -> Wire {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(key("ca.pem")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut stream = tcp(address);
    std::io::Write::write_all(&mut stream, &first(SSL_REQUEST, &[])).unwrap();
    let mut answer = [0];
    std::io::Read::read_exact(&mut stream, &mut answer).unwrap();
    assert_eq!(answer, *b"S");
    let name = ServerName::try_from("localhost").unwrap();
    let connection = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    Wire::over(Box::new(rustls::StreamOwned::new(connection, stream)))
}

#[test]
fn encrypted_connections_work_like_others() {
    let fixture = with_tls();
    let mut wire = encrypted(fixture.server().addresses()[0]);
    assert_eq!(log_in(&mut wire, "ann", "pencil").status, 'I');
    let text = "x".repeat(300_000);
    let told = wire.series(&[
        parse("", "select $1::text", &[]),
        bind("", "", 0, &[Some(text.as_bytes())], 0),
        execute("", 0),
    ]);
    assert_eq!(told.one(), text);
    assert_eq!(
        wire.run("select count(*), sum(a) from generate_series(1, 100000) a").text(),
        [["100000", "5000050000"]]
    );
    wire.run("set idle_session_timeout = '30ms'");
    assert_eq!(wire.outcome().state(), "57P05");
    // Without encryption the password still goes by SCRAM only.
    assert_eq!(log_in(&mut Wire::tcp(fixture.server().addresses()[0]), "ann", "pencil").status, 'I');
}

#[test]
fn encrypted_clients_that_say_nothing_more_wait_where_something_followed() {
    let fixture = with_tls();
    let connect = || {
        let mut wire = encrypted(fixture.server().addresses()[0]);
        assert_eq!(log_in(&mut wire, "ann", "pencil").status, 'I');
        wire
    };
    let mut wire = connect();
    wire.send(&[query("select pg_sleep(2)"), frame(b'X', b"")].concat());
    wire.stream.finish();
    assert_eq!(wire.outcome().tags, ["SELECT 1"]);
    // The goodbye of TLS is none of the protocol's.
    let mut wire = connect();
    wire.send(&query("select pg_sleep(1000)"));
    fixture.wait_until_running("select pg_sleep");
    wire.stream.finish();
    assert_eq!(wire.outcome().state(), "57014");
}

#[test]
fn a_certificate_that_is_refused_says_what_to_do() {
    // The server's own, which is an authority's, too; one signed by an authority, but not by this one.
    for (certificate, root, words) in [
        ("self.pem", "self.pem", "give the server one with basicConstraints=CA:FALSE"),
        ("server.pem", "self.pem", "is not signed by an authority in sslrootcert="),
    ] {
        let fixture = Fixture::with(ROLES, |options| {
            options.listen = vec!["127.0.0.1:0".parse().unwrap()];
            options.tls = Some((key(certificate), key("server.key")));
        });
        let port = fixture.server().addresses()[0].port();
        let text = format!(
            "postgres://ann:pencil@localhost:{port}/shop?sslmode=verify-full&sslrootcert={}",
            key(root).display()
        );
        let address = Address::parse(&text, &|_| None, "ann").unwrap();
        let error = Connection::open(&address, "test").unwrap_err().to_string();
        assert!(error.contains(words), "{certificate}: {error}");
    }
}

/// Rows of which the first one is bad, so many bytes of them as were asked for.
#[derive(Default)]
struct Bad(usize);

impl Receiver for Bad {
    fn columns(&mut self, _: &[Column]) -> std::io::Result<()> {
        Ok(())
    }

    fn row(&mut self, _: &[Option<&str>]) -> std::io::Result<()> {
        Ok(())
    }

    fn complete(&mut self, _: &str) -> std::io::Result<()> {
        Ok(())
    }

    fn notice(&mut self, _: &Report) {}

    fn copy_read(&mut self, data: &mut Vec<u8>) -> std::io::Result<bool> {
        let before = data.len();
        data.extend((0..10_000).flat_map(|_| *b"nobody\n"));
        self.0 += data.len() - before;
        Ok(self.0 < 512 << 20)
    }
}

#[test]
fn a_copy_that_fails_is_sent_no_more_data_encrypted_or_not() {
    let fixture = Fixture::with(&format!("create table t (a int); {ROLES}"), |options| {
        options.listen = vec!["127.0.0.1:0".parse().unwrap()];
        options.tls = Some((key("server.pem"), key("server.key")));
    });
    let port = fixture.server().addresses()[0].port();
    for ssl in ["disable", "require"] {
        let text = format!("postgres://ann:pencil@localhost:{port}/shop?sslmode={ssl}");
        let address = Address::parse(&text, &|_| None, "ann").unwrap();
        let mut connection = Connection::open(&address, "test").unwrap();
        assert_eq!(connection.is_encrypted(), ssl == "require");
        let mut bad = Bad::default();
        let Err(Failure::Server(report)) = connection.query("copy t from stdin", &mut bad) else {
            panic!("no error")
        };
        assert_eq!(report.state, "22P02");
        assert!(bad.0 < 256 << 20, "{ssl}: {}", bad.0);
        // It is good for more.
        connection.query("copy t to stdout", &mut Bad::default()).unwrap();
    }
}

#[test]
fn encryption_is_asked_for_once_and_nothing_is_sent_ahead() {
    let fixture = with_tls();
    let address = fixture.server().addresses()[0];
    let mut wire = Wire::tcp(address);
    wire.send(&first(GSS_REQUEST, &[]));
    let mut answer = [0];
    wire.stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, *b"N");
    wire.send(&first(GSS_REQUEST, &[]));
    assert_eq!(wire.started().state(), "08P01");
    // What is sent together with the request would be taken for encrypted otherwise.
    let mut wire = Wire::tcp(address);
    wire.send(&[first(SSL_REQUEST, &[]), user("ann")].concat());
    wire.stream.read_exact(&mut answer).unwrap();
    assert_eq!((answer, wire.read()), (*b"S", None));
    // No handshake follows.
    let mut wire = Wire::tcp(address);
    wire.send(&first(SSL_REQUEST, &[]));
    wire.stream.read_exact(&mut answer).unwrap();
    wire.send(b"\x17\x03\x03\0\x05hello");
    let mut rest = Vec::new();
    let _ = wire.stream.read_to_end(&mut rest);
    assert_eq!(rest.first(), Some(&0x15), "an alert");
    // A server without certificate says so.
    drop(fixture);
    let plain = with_tcp();
    let mut wire = Wire::tcp(plain.server().addresses()[0]);
    wire.send(&first(SSL_REQUEST, &[]));
    wire.stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, *b"N");
    assert_eq!(log_in(&mut wire, "ann", "pencil").status, 'I');
}

#[test]
fn the_limit_of_connections_is_told_and_cancelling_is_still_possible() {
    let fixture = Fixture::with("", |options| options.max_connections = 2);
    let (mut a, b) = (fixture.connect(), fixture.connect());
    for _ in 0..3 {
        let told = fixture.raw().start(&[("user", "owner"), ("database", "shop")]);
        assert_eq!((told.kinds.as_str(), told.state(), told.errors[0].get('S')), ("RE", "53300", "FATAL"));
        assert_eq!(told.errors[0].message(), "sorry, too many clients already");
    }
    // Whoever says nothing takes no session away.
    let silent: Vec<Wire> = (0..5).map(|_| fixture.raw()).collect();
    a.send(&crate::client::query("select pg_sleep(1000)"));
    // Nobody can look whether it runs already, as all sessions are taken: it is cancelled until it is.
    let done = AtomicBool::new(false);
    let (pid, secret) = (a.pid, a.secret);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                fixture.cancel(pid, secret);
            }
        });
        assert_eq!(a.outcome().errors[0].state(), "57014");
        done.store(true, Ordering::Relaxed);
    });
    b.vanish();
    // A place is free as soon as the server has noticed.
    while fixture.raw().start(&[("user", "owner"), ("database", "shop")]).status != 'I' {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    drop(silent);
}

#[test]
fn clients_that_do_not_answer_keep_no_session_from_others() {
    let fixture = Fixture::with(ROLES, |options| {
        options.listen = vec!["127.0.0.1:0".parse().unwrap()];
        options.max_connections = 2;
    });
    let address = fixture.server().addresses()[0];
    // Asked for their proof, they say nothing.
    let mut silent: Vec<Wire> = Vec::new();
    for _ in 0..4 {
        let mut wire = Wire::tcp(address);
        wire.send(&user("ann"));
        assert_eq!(wire.read().map(|reply| reply.kind), Some(b'R'));
        silent.push(wire);
    }
    let mut wire = Wire::tcp(address);
    assert_eq!(log_in(&mut wire, "ann", "pencil").status, 'I');
    // So many that no more are taken over TCP; over the Unix socket they are.
    loop {
        let mut wire = Wire::tcp(address);
        wire.send(&user("ann"));
        match wire.read().map(|reply| reply.kind) {
            Some(b'R') => silent.push(wire),
            refused => break assert_ne!(refused, Some(b'Z')),
        }
        assert!(silent.len() < 100);
    }
    let mut owner = fixture.connect();
    owner.send(&crate::client::query("select pg_sleep(1000)"));
    let done = AtomicBool::new(false);
    let (pid, secret) = (owner.pid, owner.secret);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                fixture.cancel(pid, secret);
            }
        });
        assert_eq!(owner.outcome().errors[0].state(), "57014");
        done.store(true, Ordering::Relaxed);
    });
}
