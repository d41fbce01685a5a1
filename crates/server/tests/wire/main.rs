//! The server as its clients see it: a server on sockets in a temporary folder, and a client that speaks the protocol byte by byte.

mod client;
mod extended;
mod fixture;
mod simple;
