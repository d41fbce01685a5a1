//! The server as its clients see it: a server on sockets in a temporary folder, and a client that speaks the protocol byte by byte.

mod cancel;
mod client;
mod copy;
mod extended;
mod fixture;
mod fuzz;
mod large;
mod lifetime;
mod login;
mod malformed;
mod simple;
mod types;
