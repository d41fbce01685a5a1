//! What a connection goes over: a socket, with TLS or without it.

use super::address::{Address, Host, SslMode};
use super::{invalid, tls};
use crate::stream::{Patience, Socket};
use rustls::{ClientConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};

/// A socket, encrypted or not.
#[derive(Debug)]
pub(super) enum Layer {
    Plain(Socket),
    Tls(Box<StreamOwned<ClientConnection, Socket>>),
}

impl Read for Layer {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Layer::Plain(socket) => socket.read(buffer),
            // Nothing is written meanwhile: what a server has said before it closed is there to be read.
            Layer::Tls(tls) => loop {
                let StreamOwned { conn, sock } = &mut **tls;
                match conn.reader().read(buffer) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    read => return read,
                }
                // Its end is told by the reader, which knows whether it was in good order.
                conn.read_tls(sock)?;
                conn.process_new_packets()
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            },
        }
    }
}

impl Write for Layer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Layer::Plain(socket) => socket.write(bytes),
            Layer::Tls(tls) => tls.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Layer::Plain(socket) => socket.flush(),
            Layer::Tls(tls) => tls.flush(),
        }
    }
}

impl Layer {
    /// Whether a read finds something of a message, or an end, without waiting for the other side.
    pub(super) fn has_something(&mut self) -> io::Result<bool> {
        match self {
            Layer::Plain(socket) => socket.has_something(),
            Layer::Tls(tls) => {
                let StreamOwned { conn, sock } = &mut **tls;
                loop {
                    let state = conn
                        .process_new_packets()
                        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                    if state.plaintext_bytes_to_read() > 0 || state.peer_has_closed() {
                        return Ok(true);
                    }
                    // What comes may be TLS's own affair, such as a ticket, or a part of a record.
                    if !sock.has_something()? {
                        return Ok(false);
                    }
                    if conn.read_tls(sock)? == 0 {
                        return Ok(true);
                    }
                }
            }
        }
    }

    /// What is below.
    pub(super) fn socket(&mut self) -> &mut Socket {
        match self {
            Layer::Plain(socket) => socket,
            Layer::Tls(tls) => &mut tls.sock,
        }
    }
}

/// Opens a socket, and encrypts it where that was asked for. What is read from it waits as long as this did.
pub(super) fn open(address: &Address, patience: &Patience) -> io::Result<Layer> {
    let mut socket = connect(address, patience)?;
    socket.set_patience(patience.clone());
    if matches!(address.host, Host::Unix(_)) || address.ssl == SslMode::Disable {
        return Ok(Layer::Plain(socket));
    }
    socket.write_all(&[0, 0, 0, 8, 4, 210, 22, 47])?;
    let mut answer = [0];
    socket.read_exact(&mut answer)?;
    match answer[0] {
        b'S' => Ok(Layer::Tls(Box::new(tls::encrypt(socket, address)?))),
        b'N' if address.ssl == SslMode::Prefer => Ok(Layer::Plain(socket)),
        b'N' => Err(invalid(format!("the server has no TLS, which sslmode={} needs", address.ssl.name()))),
        _ => Err(invalid("the server does not speak PostgreSQL's protocol")),
    }
}

/// Makes a socket. A thread of its own does it: neither a name that nobody resolves nor a host that is silent can be asked to stop.
fn connect(address: &Address, patience: &Patience) -> io::Result<Socket> {
    let (host, port) = (address.host.clone(), address.port);
    let (send, made) = mpsc::sync_channel(1);
    // Not joined: who gives up does not wait for it.
    std::thread::Builder::new().name("gannet-connect".into()).spawn(move || {
        let socket = match &host {
            Host::Unix(folder) => connect_unix(&folder.join(format!(".s.PGSQL.{port}"))),
            Host::Name(name) => connect_tcp(name, port),
        };
        // Nobody may be there any more.
        let _ = send.send(socket);
    })?;
    loop {
        let turn = patience.turn()?;
        let done = match turn {
            Some(turn) => made.recv_timeout(turn),
            None => made.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match done {
            Ok(socket) => return socket,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(io::Error::other("connecting broke off")),
        }
    }
}

fn connect_unix(path: &Path) -> io::Result<Socket> {
    let socket = crate::unix::connect(path);
    socket
        .map(Socket::from)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

fn connect_tcp(name: &str, port: u16) -> io::Result<Socket> {
    let place = |error: io::Error| io::Error::new(error.kind(), format!("{name} port {port}: {error}"));
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (name, port).to_socket_addrs().map_err(place)? {
        match TcpStream::connect(address) {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                let socket = Socket::from(socket);
                // What a server does may take hours, and be silent. Where the system cannot do it, the connection is as good as any other.
                let _ = socket.keep_asking();
                return Ok(socket);
            }
            Err(error) => last = error,
        }
    }
    Err(place(last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::sockopt::socket_keepalive;
    use std::net::TcpListener;

    #[test]
    fn a_server_that_vanishes_is_found_out() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = connect_tcp("127.0.0.1", listener.local_addr().unwrap().port()).unwrap();
        assert!(socket_keepalive(&socket).unwrap());
    }
}
