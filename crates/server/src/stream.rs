//! A connection's bytes: over a Unix socket, TCP, or TLS.

use crate::message::Output;
use gannet_base::clock::{self, Instant};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A socket. Several handles share its one descriptor: another thread may shut it down.
///
/// A read asks for what is there and, where nothing is, waits by `poll` for something to read; behind a write, which the other
/// side answers first, it waits at once. To wait in `recv` is one call less, but a Unix socket wakes whoever sleeps there also when the other
/// side has taken its last message: for nothing, once for each answer.
///
/// A write that the client makes wait goes on when it reads again, or fails when the connection is to end, or its time is over: nobody
/// holds a session by not reading.
#[derive(Debug)]
pub(crate) struct Socket {
    end: Arc<End>,
    patience: Patience,
    /// Nothing was read since something was written.
    has_written: bool,
    /// Writes that would wait for room fail with [`io::ErrorKind::WouldBlock`].
    at_once: bool,
    /// Of all handles: nobody is to wait for the client any more.
    ending: Arc<AtomicBool>,
    /// Of all handles: there is something of the client's that was taken from the socket and not looked at yet, or somebody looks for it just now.
    ahead: Arc<AtomicBool>,
}

/// Says whether whoever waits has had enough.
pub type GiveUp = Arc<dyn Fn() -> bool + Send + Sync>;

/// How long it is waited for the other side.
#[derive(Clone, Default)]
pub(crate) struct Patience {
    deadline: Option<Instant>,
    give_up: Option<GiveUp>,
}

impl std::fmt::Debug for Patience {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "until {:?}", self.deadline)
    }
}

impl Patience {
    /// So much time from now; `None`: for ever.
    pub(crate) fn within(limit: Option<Duration>) -> Self {
        let deadline = limit.map(|limit| {
            let nanos = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
            Instant::from_nanos(clock::now().as_nanos().saturating_add(nanos))
        });
        Patience { deadline, give_up: None }
    }

    /// And no longer than until somebody gives up.
    pub(crate) fn unless(self, give_up: GiveUp) -> Self {
        Patience { give_up: Some(give_up), ..self }
    }

    /// Whether its time has passed.
    pub(crate) fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| clock::now().as_nanos() >= deadline.as_nanos())
    }

    /// How long to wait before asking again.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] when the time is over, [`io::ErrorKind::ConnectionAborted`] when somebody has given up.
    pub(crate) fn turn(&self) -> io::Result<Option<Duration>> {
        if self.give_up.as_ref().is_some_and(|give_up| give_up()) {
            // Not an interruption: after one, readers try again.
            return Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                "nobody waits for the server any more",
            ));
        }
        let left = match self.deadline {
            None => None,
            Some(deadline) => match deadline.as_nanos().saturating_sub(clock::now().as_nanos()) {
                0 => return Err(io::ErrorKind::TimedOut.into()),
                nanos => Some(Duration::from_nanos(nanos)),
            },
        };
        let look = self.give_up.as_ref().map(|_| GIVE_UP_PERIOD);
        Ok(left.into_iter().chain(look).min())
    }
}

#[derive(Debug)]
enum End {
    /// On this machine.
    Unix(UnixStream),
    /// Anywhere.
    Tcp(TcpStream),
}

impl From<UnixStream> for Socket {
    fn from(socket: UnixStream) -> Self {
        Socket {
            end: Arc::new(End::Unix(socket)),
            patience: Patience::default(),
            has_written: false,
            at_once: false,
            ending: Arc::default(),
            ahead: Arc::default(),
        }
    }
}

impl From<TcpStream> for Socket {
    fn from(socket: TcpStream) -> Self {
        Socket {
            end: Arc::new(End::Tcp(socket)),
            patience: Patience::default(),
            has_written: false,
            at_once: false,
            ending: Arc::default(),
            ahead: Arc::default(),
        }
    }
}

impl Socket {
    /// Where the other end is, if it is not on this machine's own sockets.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        match &*self.end {
            End::Unix(_) => None,
            End::Tcp(socket) => socket.peer_addr().ok(),
        }
    }

    /// Whether it is one of this machine's own sockets.
    pub(crate) fn is_local(&self) -> bool {
        matches!(&*self.end, End::Unix(_))
    }

    /// Another handle to the same socket, by the same descriptor.
    pub(crate) fn share(&self) -> Self {
        Socket {
            end: Arc::clone(&self.end),
            patience: Patience::default(),
            has_written: false,
            at_once: false,
            ending: Arc::clone(&self.ending),
            ahead: Arc::clone(&self.ahead),
        }
    }

    /// Ends waiting for the client: for its next message, or for it to read. What it has room for can still be sent.
    pub(crate) fn stop_waiting(&self) {
        self.ending.store(true, Ordering::SeqCst);
        self.shut_down(Shutdown::Read);
    }

    /// Ends everything.
    pub(crate) fn close(&self) {
        self.shut_down(Shutdown::Both);
    }

    fn shut_down(&self, how: Shutdown) {
        // It may be closed already, which is just as well.
        let _ = match &*self.end {
            End::Unix(socket) => socket.shutdown(how),
            End::Tcp(socket) => socket.shutdown(how),
        };
    }

    /// Reads and writes through this handle that would wait fail with [`io::ErrorKind::TimedOut`] when so much time has passed from now;
    /// `None`: never.
    pub(crate) fn set_deadline(&mut self, limit: Option<Duration>) {
        self.set_patience(Patience::within(limit));
    }

    /// Reads and writes through this handle wait only so long.
    pub(crate) fn set_patience(&mut self, patience: Patience) {
        self.patience = patience;
    }

    /// Waits until there is room for something to send, or an error to be told.
    fn wait_for_room(&self) -> io::Result<()> {
        while !self.ending.load(Ordering::SeqCst) {
            let left = self.patience.turn()?.map_or(ENDING_PERIOD, |left| left.min(ENDING_PERIOD));
            let period = Timespec::try_from(left).map_err(io::Error::other)?;
            match poll(&mut [PollFd::new(self, PollFlags::OUT)], Some(&period)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        // Not a time-out: those have a message of their own.
        Err(io::ErrorKind::ConnectionAborted.into())
    }

    /// Whether there is something to read, or an end or error to be told, now.
    pub(crate) fn has_something(&self) -> io::Result<bool> {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut [PollFd::new(self, PollFlags::IN)], Some(&now)) {
            Ok(count) => Ok(count > 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the client of a poll's `events` is gone: its end is closed, or, by TCP, it sends nothing more and everything it has sent was looked at. Nothing
    /// else shows there that it is gone, until something is sent to it; a Unix socket tells its end.
    pub(crate) fn is_gone(&self, events: PollFlags) -> bool {
        if events.intersects(PollFlags::HUP | PollFlags::ERR) {
            return true;
        }
        // In this order: what is taken from the socket is ahead before it is taken.
        events.contains(PollFlags::RDHUP) && !self.is_local() && !self.has_unread() && !self.is_ahead()
    }

    /// Whether there is something to be read, other than that TLS ends. What cannot be told counts as something.
    fn has_unread(&self) -> bool {
        let mut bytes = [0; 64];
        match recv(self, &mut bytes, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok((read, _)) => read > 0 && !is_alert(&bytes[..read]),
            Err(Errno::AGAIN) => false,
            Err(_) => true,
        }
    }

    fn is_ahead(&self) -> bool {
        self.ahead.load(Ordering::Relaxed)
    }

    /// Waits until there is something to read, an end or error to be told, or patience to be looked at.
    fn wait(&self) -> io::Result<()> {
        let left = self.patience.turn()?;
        let left = left.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(self, PollFlags::IN)], left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// How often who waits for a client to read looks whether the connection is to end.
const ENDING_PERIOD: Duration = Duration::from_millis(100);
/// How often who waits for the other side looks whether somebody has given up.
const GIVE_UP_PERIOD: Duration = Duration::from_millis(100);
/// When a TCP client says nothing for so long, it is asked whether it is still there.
const ASK_AFTER: Duration = Duration::from_secs(60);
/// So often it is asked, and so many times before it is taken for gone.
const ASK_EVERY: Duration = Duration::from_secs(10);
const ASK_TIMES: u32 = 6;

impl Socket {
    /// Finds out when the other side vanishes without a word: what its session holds is not to be held for ever.
    pub(crate) fn keep_asking(&self) -> io::Result<()> {
        if let End::Tcp(socket) = &*self.end {
            sockopt::set_socket_keepalive(socket, true)?;
            sockopt::set_tcp_keepidle(socket, ASK_AFTER)?;
            sockopt::set_tcp_keepintvl(socket, ASK_EVERY)?;
            sockopt::set_tcp_keepcnt(socket, ASK_TIMES)?;
        }
        Ok(())
    }
}

/// Whether these bytes are one alert of TLS and nothing else. TLS 1.3 hides it among data, but none is as short: no message of a client's has two bytes. None begins
/// with such a byte where nothing is encrypted.
fn is_alert(bytes: &[u8]) -> bool {
    const ALERT: u8 = 21;
    const DATA: u8 = 23;
    /// Level and description, the type that is hidden, and what proves them.
    const HIDDEN: usize = 2 + 1 + 16;
    match bytes {
        [kind, 3, _, 0, len, rest @ ..] if rest.len() == usize::from(*len) => {
            *kind == ALERT || *kind == DATA && rest.len() == HIDDEN
        }
        _ => false,
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &*self.end {
            End::Unix(socket) => socket.as_fd(),
            End::Tcp(socket) => socket.as_fd(),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if std::mem::take(&mut self.has_written) {
            self.wait()?;
        }
        loop {
            match recv(&*self, &mut *buffer, RecvFlags::DONTWAIT) {
                Ok((read, _)) => return Ok(read),
                Err(Errno::AGAIN) => self.wait()?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match send(&*self, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(sent) => {
                    self.has_written = true;
                    return Ok(sent);
                }
                Err(Errno::AGAIN) if self.at_once => return Err(io::ErrorKind::WouldBlock.into()),
                Err(Errno::AGAIN) => self.wait_for_room()?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes until there is no room; how much that was.
fn write_parts(socket: &mut Socket, bytes: &[u8]) -> io::Result<usize> {
    let mut sent = 0;
    while sent < bytes.len() {
        match socket.write(&bytes[sent..]) {
            Ok(more) => sent += more,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
}

/// The same of what is encrypted, which nothing follows as long as some of it waits: how much was taken, and whether that is on its way.
fn encrypt_now(conn: &mut ServerConnection, socket: &mut Socket, bytes: &[u8]) -> io::Result<(usize, bool)> {
    let mut taken = 0;
    loop {
        while conn.wants_write() {
            match conn.write_tls(socket) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok((taken, false)),
                Err(error) => return Err(error),
            }
        }
        if taken == bytes.len() {
            return Ok((taken, true));
        }
        taken += conn.writer().write(&bytes[taken..])?;
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
    /// See [`Socket`].
    ahead: Arc<AtomicBool>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes that were given to whoever asked.
    position: u64,
    /// A write has failed: the client may have got half a message, and what came now would be taken for the rest of it.
    broken: bool,
}

/// Bytes that are read at once.
const READ_SIZE: usize = 16 << 10;

impl Stream {
    pub(crate) fn new(socket: Socket) -> Self {
        Stream {
            ahead: Arc::clone(&socket.ahead),
            layer: Some(Layer::Plain(socket)),
            buffer: vec![0; READ_SIZE],
            start: 0,
            end: 0,
            position: 0,
            broken: false,
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
                self.layer = Some(Layer::Tls(Box::new(StreamOwned::new(connection, socket))));
                let done = self.shake_hands();
                if done.is_err() {
                    // To write anything more would be to wait for the handshake to go on.
                    self.layer = None;
                }
                done
            }
            other => {
                self.layer = other;
                Err(io::Error::new(io::ErrorKind::InvalidData, "the connection is encrypted already"))
            }
        }
    }

    fn shake_hands(&mut self) -> io::Result<()> {
        loop {
            let Some(Layer::Tls(tls)) = &mut self.layer else {
                return Err(io::ErrorKind::NotConnected.into());
            };
            let StreamOwned { conn, sock } = &mut **tls;
            while conn.wants_write() {
                conn.write_tls(sock)?;
            }
            if !conn.is_handshaking() {
                return Ok(());
            }
            if conn.read_tls(sock)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Err(error) = conn.process_new_packets() {
                // The client is told by an alert, if it can be.
                let _ = conn.write_tls(sock);
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
        }
    }

    /// Tells a client that encrypts that nothing more comes. Nobody waits for it.
    pub(crate) fn say_goodbye(&mut self) {
        if let Some(Layer::Tls(tls)) = &mut self.layer {
            tls.sock.set_deadline(Some(Duration::ZERO));
            tls.conn.send_close_notify();
            let _ = tls.conn.write_tls(&mut tls.sock);
        }
    }

    /// Whether it is encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        matches!(self.layer, Some(Layer::Tls(_)))
    }

    /// See [`Socket::set_deadline`].
    pub(crate) fn set_deadline(&mut self, limit: Option<Duration>) {
        match &mut self.layer {
            Some(Layer::Plain(socket)) => socket.set_deadline(limit),
            Some(Layer::Tls(tls)) => tls.sock.set_deadline(limit),
            None => {}
        }
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

    /// Reads into the buffer, which is empty.
    fn fill(&mut self) -> io::Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let read = self.read_some(&mut buffer);
        self.buffer = buffer;
        (self.start, self.end) = (0, read?);
        Ok(())
    }

    /// Fills `into`. False when the other side has ended before its first byte.
    pub(crate) fn read_exact(&mut self, into: &mut [u8]) -> io::Result<bool> {
        let mut filled = 0;
        if self.read_on(into, &mut filled)? {
            return Ok(true);
        }
        if filled == 0 { Ok(false) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// Fills the rest of `into`, of which so many bytes are there: as many as there are then, where it fails. False when the other side has ended.
    pub(crate) fn read_on(&mut self, into: &mut [u8], filled: &mut usize) -> io::Result<bool> {
        // Whoever reads finds the client's end himself.
        self.ahead.store(true, Ordering::Relaxed);
        let read = self.read_more(into, filled);
        let more = self.has_more();
        self.ahead.store(more, Ordering::Relaxed);
        read
    }

    /// What was read that nobody has asked for yet.
    pub(crate) fn already_read(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Bytes that were asked for, from the begin on.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Whether something was read that nobody has asked for yet.
    fn has_more(&mut self) -> bool {
        match &mut self.layer {
            _ if self.start != self.end => true,
            Some(Layer::Tls(tls)) => {
                tls.conn.process_new_packets().is_ok_and(|state| state.plaintext_bytes_to_read() > 0)
            }
            _ => false,
        }
    }

    fn read_more(&mut self, into: &mut [u8], filled: &mut usize) -> io::Result<bool> {
        while *filled < into.len() {
            if self.start == self.end {
                if into.len() - *filled >= READ_SIZE {
                    // Large pieces go past the buffer.
                    let read = self.read_some(&mut into[*filled..])?;
                    if read == 0 {
                        return Ok(false);
                    }
                    *filled += read;
                    self.position += read as u64;
                    continue;
                }
                self.fill()?;
                if self.end == 0 {
                    return Ok(false);
                }
            }
            let part = (into.len() - *filled).min(self.end - self.start);
            into[*filled..*filled + part].copy_from_slice(&self.buffer[self.start..][..part]);
            self.start += part;
            self.position += part as u64;
            *filled += part;
        }
        Ok(true)
    }

    /// Sends what there is room for now; how many bytes were taken, and whether all that was is on its way. Nobody waits for the client. Whoever writes next goes
    /// on behind what was taken. After a failure nothing is sent any more.
    fn write_now(&mut self, bytes: &[u8]) -> io::Result<(usize, bool)> {
        if self.broken {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let written = match &mut self.layer {
            Some(Layer::Plain(socket)) => {
                socket.at_once = true;
                let written = write_parts(socket, bytes);
                socket.at_once = false;
                written.map(|sent| (sent, sent == bytes.len()))
            }
            Some(Layer::Tls(tls)) => {
                let StreamOwned { conn, sock } = &mut **tls;
                sock.at_once = true;
                let written = encrypt_now(conn, sock, bytes);
                sock.at_once = false;
                written
            }
            None => Err(io::ErrorKind::NotConnected.into()),
        };
        self.broken = written.is_err();
        written
    }

    /// The same of whole messages; whether nothing is left.
    pub(crate) fn send_now(&mut self, out: &mut Output) -> bool {
        match self.write_now(out.bytes()) {
            Ok((sent, is_all)) => {
                out.sent(sent);
                is_all && out.bytes().is_empty()
            }
            // A client that is gone is noticed elsewhere.
            Err(_) => false,
        }
    }

    /// Sends all of it. After a failure nothing is sent any more.
    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.broken {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let written = match &mut self.layer {
            Some(Layer::Plain(socket)) => socket.write_all(bytes),
            Some(Layer::Tls(tls)) => tls.write_all(bytes).and_then(|()| tls.flush()),
            None => Err(io::ErrorKind::NotConnected.into()),
        };
        self.broken = written.is_err();
        written
    }
}

#[cfg(test)]
mod tests;
