//! What tests of commands share: running them, and a server beside a file.

#![allow(dead_code, reason = "each test uses what it needs")]

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// A command in a folder, without settings from outside.
pub(crate) fn gannet(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gannet"));
    command.args(arguments).current_dir(folder).env_remove("GANNET_MEMORY").env_remove("GANNET_IO");
    command
}

/// Runs a command without input.
pub(crate) fn run(folder: &Path, arguments: &[&str]) -> Output {
    gannet(folder, arguments).stdin(Stdio::null()).output().unwrap()
}

/// Standard output of a command that must have ended with this status, and what it complained of: its standard error without the
/// lines of progress, which work gets that takes its time on a slow machine.
#[track_caller]
pub(crate) fn texts(arguments: &[&str], output: Output, status: i32) -> (String, String) {
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {output:?}");
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let is_rate = |text: &str| {
        let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
        unit.starts_with("/s") || unit.starts_with(" MB/s")
    };
    let progress = |line: &str| !line.starts_with("gannet: ") && line.split(" at ").skip(1).any(is_rate);
    let complaints = text(output.stderr).split_inclusive('\n').filter(|line| !progress(line)).collect();
    (text(output.stdout), complaints)
}

/// Runs a command that must end with this status; gives standard output and complaints.
#[track_caller]
pub(crate) fn ends(folder: &Path, arguments: &[&str], status: i32) -> (String, String) {
    texts(arguments, run(folder, arguments), status)
}

/// The address of the server beside `NAME.gnt`, by its socket.
pub(crate) fn address(folder: &Path, name: &str) -> String {
    let socket = std::fs::canonicalize(folder.join(format!("{name}.gnt-socket"))).unwrap();
    format!("postgres:///{name}?host={}&port=5433", socket.display())
}

/// A server that is ended with the test.
pub(crate) struct Served(pub(crate) Child);

impl Served {
    /// Serves these files of the folder.
    pub(crate) fn start(folder: &Path, databases: &[&str]) -> Self {
        let arguments = [&["serve"], databases, &["--listen", "none"]].concat();
        let mut server = gannet(folder, &arguments).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(server.stderr.take().unwrap());
        let mut text = String::new();
        while !text.contains("Ctrl-C") && said.read_line(&mut text).unwrap() > 0 {}
        // Whatever else it says is to be taken, too.
        std::thread::spawn(move || said.read_to_end(&mut Vec::new()));
        Served(server)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status();
        let _ = self.0.wait();
    }
}
