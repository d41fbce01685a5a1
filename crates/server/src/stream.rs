//! A connection's bytes: over a Unix socket, TCP, or TLS.

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// A socket. Its handles can be cloned: another thread may shut it down.
#[derive(Debug)]
pub(crate) enum Socket {
    /// On this machine.
    Unix(UnixStream),
    /// Anywhere.
    Tcp(TcpStream),
}

impl Socket {
    /// Where the other end is, if it is not on this machine's own sockets.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        match self {
            Socket::Unix(_) => None,
            Socket::Tcp(socket) => socket.peer_addr().ok(),
        }
    }

    /// Another handle to the same socket.
    pub(crate) fn duplicate(&self) -> io::Result<Self> {
        Ok(match self {
            Socket::Unix(socket) => Socket::Unix(socket.try_clone()?),
            Socket::Tcp(socket) => Socket::Tcp(socket.try_clone()?),
        })
    }

    /// Ends reading, so that whoever waits for the client's next message wakes up.
    pub(crate) fn stop_reading(&self) {
        // It may be closed already, which is just as well.
        let _ = match self {
            Socket::Unix(socket) => socket.shutdown(Shutdown::Read),
            Socket::Tcp(socket) => socket.shutdown(Shutdown::Read),
        };
    }

    /// Ends everything.
    pub(crate) fn close(&self) {
        let _ = match self {
            Socket::Unix(socket) => socket.shutdown(Shutdown::Both),
            Socket::Tcp(socket) => socket.shutdown(Shutdown::Both),
        };
    }

    fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            Socket::Unix(socket) => socket.set_read_timeout(limit),
            Socket::Tcp(socket) => socket.set_read_timeout(limit),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Unix(socket) => socket.as_fd(),
            Socket::Tcp(socket) => socket.as_fd(),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(socket) => socket.read(buffer),
            Socket::Tcp(socket) => socket.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(socket) => socket.write(bytes),
            Socket::Tcp(socket) => socket.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes as they are, or encrypted.
#[derive(Debug)]
enum Layer {
    Plain(Socket),
    Tls(Box<StreamOwned<ServerConnection, Socket>>),
}

/// A connection's bytes, with a buffer for reading.
#[derive(Debug)]
pub(crate) struct Stream {
    layer: Option<Layer>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// How long reads wait, as the socket was told last.
    timeout: Option<Duration>,
}

/// Bytes that are read at once.
const READ_SIZE: usize = 16 << 10;

impl Stream {
    pub(crate) fn new(socket: Socket) -> Self {
        Stream {
            layer: Some(Layer::Plain(socket)),
            buffer: vec![0; READ_SIZE],
            start: 0,
            end: 0,
            timeout: None,
        }
    }

    /// Encrypts from now on. Nothing may have been read beyond the request: bytes sent ahead would be taken for encrypted ones
    /// (CVE-2021-23214).
    pub(crate) fn encrypt(&mut self, config: Arc<ServerConfig>) -> io::Result<()> {
        if self.start != self.end {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "unencrypted data after the SSL request"));
        }
        let connection = ServerConnection::new(config).map_err(io::Error::other)?;
        match self.layer.take() {
            Some(Layer::Plain(socket)) => {
                let mut tls = StreamOwned::new(connection, socket);
                while tls.conn.is_handshaking() {
                    tls.conn.complete_io(&mut tls.sock)?;
                }
                self.layer = Some(Layer::Tls(Box::new(tls)));
                Ok(())
            }
            other => {
                self.layer = other;
                Err(io::Error::new(io::ErrorKind::InvalidData, "the connection is encrypted already"))
            }
        }
    }

    /// Whether it is encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        matches!(self.layer, Some(Layer::Tls(_)))
    }

    fn socket(&self) -> io::Result<&Socket> {
        match &self.layer {
            Some(Layer::Plain(socket)) => Ok(socket),
            Some(Layer::Tls(tls)) => Ok(&tls.sock),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// How long the next reads wait; [`io::ErrorKind::WouldBlock`] when it passes.
    pub(crate) fn set_read_timeout(&mut self, limit: Option<Duration>) -> io::Result<()> {
        if limit != self.timeout {
            self.socket()?.set_read_timeout(limit)?;
            self.timeout = limit;
        }
        Ok(())
    }

    fn read_some(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = match &mut self.layer {
                Some(Layer::Plain(socket)) => socket.read(into),
                Some(Layer::Tls(tls)) => tls.read(into),
                None => return Err(io::ErrorKind::NotConnected.into()),
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    /// Whether something was read that nobody has taken yet.
    pub(crate) fn has_buffered(&self) -> bool {
        self.start < self.end
    }

    /// Waits until there is something to be read, or the other side has ended.
    pub(crate) fn peek(&mut self) -> io::Result<()> {
        if self.start == self.end {
            let mut buffer = std::mem::take(&mut self.buffer);
            let read = self.read_some(&mut buffer);
            self.buffer = buffer;
            (self.start, self.end) = (0, read?);
        }
        Ok(())
    }

    /// Fills `into`. False when the other side has ended before its first byte.
    pub(crate) fn read_exact(&mut self, into: &mut [u8]) -> io::Result<bool> {
        let mut filled = 0;
        while filled < into.len() {
            if self.start == self.end {
                if into.len() - filled >= READ_SIZE {
                    // Large pieces go past the buffer.
                    let read = self.read_some(&mut into[filled..])?;
                    if read == 0 {
                        return ended(filled);
                    }
                    filled += read;
                    continue;
                }
                let mut buffer = std::mem::take(&mut self.buffer);
                let read = self.read_some(&mut buffer);
                self.buffer = buffer;
                (self.start, self.end) = (0, read?);
                if self.end == 0 {
                    return ended(filled);
                }
            }
            let part = (into.len() - filled).min(self.end - self.start);
            into[filled..filled + part].copy_from_slice(&self.buffer[self.start..][..part]);
            self.start += part;
            filled += part;
        }
        Ok(true)
    }

    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.layer {
            Some(Layer::Plain(socket)) => socket.write_all(bytes),
            Some(Layer::Tls(tls)) => {
                tls.write_all(bytes)?;
                tls.flush()
            }
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

fn ended(filled: usize) -> io::Result<bool> {
    if filled == 0 { Ok(false) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}
