//! What is sent to a client that does not read.

use super::*;
use gannet_base::thread;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::path::Path;

/// A server's end with little room, and the client's.
fn pair() -> (Stream, UnixStream) {
    let (server, client) = UnixStream::pair().unwrap();
    sockopt::set_socket_send_buffer_size(&server, 4096).unwrap();
    (Stream::new(Socket::from(server)), client)
}

fn key(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire/keys").join(name)
}

/// Tells of progress many times, as a session does; how often that went out.
fn tell(stream: &mut Stream, out: &mut Output) -> usize {
    let mut told = 0;
    for _ in 0..1000 {
        if stream.send_now(out) {
            out.begin(b'N').raw(&[7; 1000]).end();
            stream.send_now(out);
            told += 1;
        }
    }
    told
}

/// Reads until the last message comes: all are whole.
fn take(mut from: impl Read) -> usize {
    for told in 0.. {
        let mut head = [0; 5];
        from.read_exact(&mut head).unwrap();
        let [kind, len @ ..] = head;
        let mut body = vec![0; i32::from_be_bytes(len) as usize - 4];
        from.read_exact(&mut body).unwrap();
        match kind {
            b'N' => assert_eq!(body, [7; 1000]),
            b'Z' => return told,
            other => panic!("{other}"),
        }
    }
    unreachable!()
}

/// A client that had stopped reading held up the job that told it how far it was, and with that every sweep; nobody could cancel it.
#[test]
fn progress_does_not_wait_for_a_client_that_does_not_read() {
    let (mut stream, client) = pair();
    let mut out = Output::default();
    let told = tell(&mut stream, &mut out);
    assert!((1..1000).contains(&told), "{told}");
    assert!(out.bytes().len() <= 2 * 1005, "what is left out is not kept");
    let reader = thread::spawn("reader", move || take(client));
    out.begin(b'Z').u8(b'I').end();
    stream.write_all(out.bytes()).unwrap();
    assert_eq!(reader.join().unwrap(), told);
}

#[test]
fn progress_does_not_wait_for_a_client_that_encrypts_and_does_not_read() {
    let (mut stream, client) = pair();
    let (go, may_read) = std::sync::mpsc::channel();
    let reader = thread::spawn("reader", move || {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(key("ca.pem")).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.unwrap().with_root_certificates(roots).with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let mut tls = StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), client);
        tls.conn.complete_io(&mut tls.sock).unwrap();
        may_read.recv().unwrap();
        take(tls)
    });
    stream.encrypt(crate::tls::load(&key("server.pem"), &key("server.key")).unwrap()).unwrap();
    let mut out = Output::default();
    let told = tell(&mut stream, &mut out);
    assert!((1..1000).contains(&told), "{told}");
    assert!(out.bytes().len() <= 2 * 1005);
    go.send(()).unwrap();
    out.begin(b'Z').u8(b'I').end();
    stream.write_all(out.bytes()).unwrap();
    assert_eq!(reader.join().unwrap(), told);
}

/// Behind half a message a last word would be taken for the rest of it.
#[test]
fn what_a_client_is_told_last_stands_behind_the_rest_of_a_message_that_was_sent_in_part() {
    let mut out = Output::default();
    out.begin(b'N').raw(&[7; 1000]).end();
    out.sent(300);
    out.begin(b'D').raw(&[8; 10]).end();
    out.forget();
    assert_eq!(out.bytes(), [7; 705]);
}
