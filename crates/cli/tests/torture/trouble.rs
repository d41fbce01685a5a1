//! A full disk, and one that turns read-only, under load: errors that say what is wrong, and nothing lost.

use crate::ledger::Mark;
use crate::load::{self, CLIENTS, Known, Shared, Verdict};
use crate::server::{Client, Options, Server};
use crate::verify;
use crate::volume::Volume;
use gannet_server::frontend::{Address, Failure, Report};

/// Commits that show that service goes on.
const SOME: u64 = 200;
/// Rows that one statement adds to the table that fills the disk, and bytes of each.
const FILLER: (u64, u64) = (400, 2000);

/// The disk is full: whoever needs room is told so, and may try again.
fn full(report: &Report) -> Verdict {
    if report.state == "53100" { Verdict::Again } else { load::ordinary(report) }
}

/// The disk is read-only: an I/O error, or the refusal to change anything after one.
fn read_only(report: &Report) -> Verdict {
    match report.state.as_str() {
        // io_error, read_only_sql_transaction
        "58030" | "25006" => Verdict::End,
        _ => load::ordinary(report),
    }
}

/// A server on a volume of its own, with the load's tables.
struct Scene {
    volume: Volume,
    options: Options,
    shared: Shared,
}

impl Scene {
    fn new(volume: Volume, seed: u64, judge: fn(&Report) -> Verdict) -> Result<(Self, Server), String> {
        let options = Options { database: volume.path().join("trouble.gnt"), record: None, archive: None };
        let server = Server::serving(&options)?;
        load::set_up(&mut connect(&server.address())?).map_err(|failure| failure.to_string())?;
        let shared = Shared::new(load::new_ledger(), None, judge);
        shared.note(Mark::Ready { seed });
        Ok((Scene { volume, options, shared }, server))
    }

    /// Waits until this many more transactions have been committed.
    fn wait_for_commits(&self, count: u64) {
        let before = self.shared.ledger().acknowledged();
        self.shared.wait(|known| known.ledger.acknowledged() >= before + count);
    }

    fn was_refused(&self, state: &str, times: u64) {
        self.shared.wait(|known| known.refused(state) >= times);
    }

    /// Starts the server again, and looks at everything.
    fn look(&self, filler: u64) -> Result<(), String> {
        let server = Server::serving(&self.options)?;
        let mut client = connect(&server.address())?;
        verify::contents(&mut client, &mut self.shared.ledger())?;
        let rows = query(&mut client, "select count(*) from filler")?;
        if rows[0][0] != filler.to_string() {
            return Err(format!("{} rows of filler, acknowledged were {filler}", rows[0][0]));
        }
        drop(client);
        server.stop()?;
        verify::structure(&self.options.database)
    }
}

fn connect(address: &Address) -> Result<Client, String> {
    Client::connect(address).map_err(|failure| failure.to_string())
}

fn query(client: &mut Client, sql: &str) -> Result<Vec<Vec<String>>, String> {
    client.query(sql).map_err(|failure| format!("{sql}: {failure}"))
}

/// Adds rows until the disk is full; gives how many were acknowledged.
fn fill_table(address: &Address) -> Result<u64, String> {
    let mut client = connect(address)?;
    query(&mut client, "create table filler (id bigint primary key, stuff text)")?;
    let mut rows = 0;
    loop {
        let (count, bytes) = FILLER;
        let sql = format!(
            "insert into filler select {rows} + i, repeat('x', {bytes}) from generate_series(1, {count}) as i"
        );
        match client.query(&sql) {
            Ok(_) => rows += count,
            Err(Failure::Server(report)) if report.state == "53100" => return Ok(rows),
            Err(other) => return Err(format!("{rows} rows: {other}")),
        }
    }
}

/// Fills the disk under load, gives room back, fills it again and kills the server; says what was seen.
pub(crate) fn full_disk(volume: Volume, seed: u64) -> Result<String, String> {
    let (scene, server) = Scene::new(volume, seed, full)?;
    let address = server.address();
    let filler = std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (shared, address) = (&scene.shared, &address);
            scope.spawn(move || shared.work(address, client));
        }
        let ended = full_and_free_again(&scene, &address);
        // Full once more, and no chance to end in good order.
        let ended = ended.and_then(|rows| scene.volume.fill().map(|()| rows));
        server.kill();
        scene.shared.stop();
        ended
    })?;
    let on_full = match Server::serving(&scene.options) {
        Ok(server) => {
            verify::contents(&mut connect(&server.address())?, &mut scene.shared.ledger())?;
            server.kill();
            "serves".to_owned()
        }
        Err(said) if said.contains("no space left") => "says that there is no space left".to_owned(),
        Err(said) => return Err(format!("a start on a full disk: {said}")),
    };
    scene.volume.free()?;
    scene.look(filler)?;
    let known = scene.shared.known();
    let commits = known.ledger.acknowledged();
    Ok(format!("{commits} commits, {filler} rows of filler; started on a full disk it {on_full}; {known}"))
}

fn full_and_free_again(scene: &Scene, address: &Address) -> Result<u64, String> {
    scene.wait_for_commits(SOME);
    let rows = fill_table(address)?;
    scene.volume.fill()?;
    let mut client = connect(address)?;
    query(&mut client, "select sum(balance) from account")?;
    // The load goes on in the room that there is, or is refused.
    let before = scene.shared.ledger().acknowledged();
    let many = |known: &Known| known.ledger.acknowledged() >= before + 5 * SOME;
    scene.shared.wait(|known| known.refused("53100") > 0 || many(known));
    let copy = "insert into filler select -id, stuff from filler where id > 0";
    match client.query(copy) {
        Err(Failure::Server(report)) if report.state == "53100" => {}
        other => return Err(format!("a full disk is said to have had room: {other:?}")),
    }
    query(&mut client, "select sum(balance) from account")?;
    scene.volume.free()?;
    // Service goes on by itself.
    scene.wait_for_commits(SOME);
    query(&mut client, &format!("{copy} and id <= {}", FILLER.0))?;
    Ok(rows + FILLER.0)
}

/// Turns the disk read-only under load; says what was seen.
pub(crate) fn read_only_disk(volume: Volume, seed: u64) -> Result<String, String> {
    let (scene, server) = Scene::new(volume, seed, read_only)?;
    let address = server.address();
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (shared, address) = (&scene.shared, &address);
            scope.spawn(move || shared.work(address, client));
        }
        let mut client = connect(&address)?;
        query(&mut client, "create table filler ()")?;
        scene.wait_for_commits(SOME);
        scene.volume.abort()?;
        scene.was_refused("58030", 1);
        server.wait_for_words("database \"trouble\" has failed; restart once the cause is gone: ");
        // Who only reads goes on.
        let rows = query(&mut client, "select count(*) from account")?;
        let more = query(&mut connect(&address)?, "select count(*) from total")?;
        scene.shared.stop();
        if (rows[0][0].as_str(), more[0][0].as_str()) == ("24", "6") {
            Ok(())
        } else {
            Err(format!("{rows:?} {more:?}"))
        }
    })?;
    ended_and_refused(&scene, server)?;
    scene.volume.repair()?;
    scene.look(0)?;
    let known = scene.shared.known();
    Ok(format!("{} commits; {known}", known.ledger.acknowledged()))
}

/// The server says why it cannot close the database, and another one why it cannot open it.
fn ended_and_refused(scene: &Scene, server: Server) -> Result<(), String> {
    server.terminate();
    let ended = server.wait();
    let words = "Read-only file system";
    // A sync fails in other words than a write.
    let named = [words, "Input/output error"].iter().any(|words| ended.said.contains(words));
    if ended.status.success() || !ended.said.contains("was not closed") || !named {
        return Err(format!("it ended with {}; it said: {:?}", ended.status, ended.said));
    }
    match Server::serving(&scene.options) {
        Err(said) if said.contains(words) => Ok(()),
        other => Err(format!("a start on a read-only disk: {:?}", other.map(drop))),
    }
}
