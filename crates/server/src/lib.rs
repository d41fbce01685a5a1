//! Gannet's server: PostgreSQL's wire protocol, authentication, TLS, connections.
//!
//! A thread serves each connection on a blocking socket, so a page miss blocks only the session that has it. One more
//! thread watches clients whose statements run, and one (in `gannet-sql`) the time-outs.
//!
//! | module | job |
//! |---|---|
//! | `server` | databases, listeners, the end |
//! | `startup` | how a connection begins: encryption, authentication, its session |
//! | `connection` | the loop of a connection's messages |
//! | `client` | results on their way to the client |
//! | [`frontend`] | the client's side of the protocol |
//! | `message` | the protocol's messages, both ways |
//! | [`settings`] | what was asked for, by whom, and what is in effect |
//! | `scram`, `tls` | passwords, encryption |
//! | `stream`, `unix`, `watch` | bytes of a connection; sockets of this machine; clients that went away |

mod ahead;
mod client;
mod connection;
pub mod frontend;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod message;
mod scram;
mod server;
pub mod settings;
mod startup;
mod stream;
mod tls;
mod unix;
mod watch;
pub mod window;

pub use server::{Server, ServerOptions, archive_of, is_listened_at, socket_folder};
pub use unix::LONGEST_SOCKET_PATH;

/// Result of setting a server up.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a server does not start, or not end well.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What is to be changed before it can.
    #[error("{0}")]
    Setup(String),
}
