//! The server within this process: its listeners, its jobs, its sockets' folders.

use super::*;
use gannet_base::clock;
use gannet_store::{CreateOptions, EngineOptions, JobKind, JobOrder, JobReport, JobState, Watch};
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;

/// A server of a database `shop`, of which nobody sweeps anything by himself.
fn shop(folder: &Path, max_connections: usize) -> Server {
    let temp_folder = Some(folder.join("temp"));
    let engine = Engine::new(&EngineOptions { memory: 64 << 20, temp_folder }).unwrap();
    let path = folder.join("shop.gnt");
    let create = CreateOptions { segment_size: 1 << 20, ..CreateOptions::default() };
    let open = OpenOptions { sweep: false, ..OpenOptions::default() };
    Database::create(&engine, &path, &create, &open, "owner").unwrap().close().unwrap();
    let options = ServerOptions {
        paths: vec![path],
        listen: Vec::new(),
        sockets: Vec::new(),
        port: 5513,
        insecure_trust: false,
        tls: None,
        max_connections,
        open,
        owner: "owner".to_owned(),
    };
    Server::start(&engine, &options).unwrap()
}

#[test]
fn a_listener_ends_however_many_connections_come() {
    let folder = tempfile::tempdir().unwrap();
    let server = shop(folder.path(), 1);
    let listener = UnixStream::pair().unwrap();
    let mut came = 0;
    accept(&server.shared, &listener.0, || {
        came += 1;
        assert!(came < 100, "it goes on");
        server.shared.stopping.store(true, Ordering::SeqCst);
        Ok((UnixStream::pair()?.0.into(), true))
    });
    server.stop(DROP_LIMIT).unwrap();
}

/// Connects as the owner, and reads until the server is ready.
fn client(server: &Server) -> UnixStream {
    let mut client = UnixStream::connect(&server.sockets()[0]).unwrap();
    let mut words = 196_608_u32.to_be_bytes().to_vec();
    words.extend_from_slice(b"user\0owner\0database\0shop\0\0");
    let mut first = (words.len() as u32 + 4).to_be_bytes().to_vec();
    first.extend_from_slice(&words);
    client.write_all(&first).unwrap();
    loop {
        let mut head = [0; 5];
        client.read_exact(&mut head).unwrap();
        let [kind, len @ ..] = head;
        client.read_exact(&mut vec![0; u32::from_be_bytes(len) as usize - 4]).unwrap();
        if kind == b'Z' {
            return client;
        }
    }
}

/// It waited for room in the socket, and looked at nothing meanwhile, whether it had the turn to sweep or not.
#[test]
fn a_job_whose_client_does_not_read_can_be_cancelled() {
    let folder = tempfile::tempdir().unwrap();
    let server = shop(folder.path(), 5);
    let database = server.shared.database("shop").unwrap();
    let mut session = database.session("owner").unwrap();
    let garbage = "create table t (a int primary key); insert into t values (1); delete from t";
    session.run(garbage, &mut gannet_sql::session::Rows::default()).unwrap();
    drop(session);
    let mut client = client(&server);
    for entered in server.shared.entered.lock().values() {
        rustix::net::sockopt::set_socket_send_buffer_size(&*entered.socket, 4096).unwrap();
    }
    // Somebody else has the turn for as long as the test wants.
    let (let_go, waits) = std::sync::mpsc::channel::<()>();
    let holder = {
        let database = database.clone();
        std::thread::spawn(move || {
            let job = database.store().jobs().begin(JobOrder::new(JobKind::Sweep));
            let mut tell = |report: &JobReport| {
                if report.phase == "sweeps" {
                    let _ = waits.recv();
                }
                Ok(())
            };
            let swept = database.store().sweep_watched(false, &mut Watch::new(&job, &mut tell));
            job.end(swept).unwrap()
        })
    };
    let reports = |phase: &str| -> Vec<JobReport> {
        let reports = database.store().jobs().reports().into_iter();
        reports.filter(|job| job.phase == phase && job.state == JobState::Running).collect()
    };
    while reports("sweeps").is_empty() {
        clock::sleep(Duration::from_millis(5));
    }
    client.write_all(b"Q\0\0\0\x1bsweep database verbose\0").unwrap();
    // By then it has been told more than there is room for.
    clock::sleep(Duration::from_secs(5));
    let waiting = reports("waits for another sweep");
    assert_eq!(waiting.len(), 1);
    assert!(database.store().jobs().cancel(waiting[0].id));
    let begun = clock::now();
    while !reports("waits for another sweep").is_empty() && begun.elapsed() < Duration::from_secs(10) {
        clock::sleep(Duration::from_millis(5));
    }
    let left = reports("waits for another sweep").len();
    let_go.send(()).unwrap();
    drop(let_go);
    assert_eq!((left, holder.join().unwrap().cleaned.dead_entries), (0, 1));
    drop((client, database));
    server.stop(DROP_LIMIT).unwrap();
}

#[test]
fn a_link_stood_for_the_folder_of_a_socket() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    assert!(private_folder(&place("deep/own")).unwrap(), "it was made");
    assert!(!private_folder(&place("deep/own")).unwrap(), "it was there");
    symlink(place("deep/own"), place("link")).unwrap();
    symlink(place("nowhere"), place("loose")).unwrap();
    fs::write(place("file"), "").unwrap();
    for name in ["link", "loose", "file"] {
        let refused = private_folder(&place(name)).unwrap_err().to_string();
        assert!(refused.contains("name the folder itself"), "{name}: {refused}");
    }
    fs::set_permissions(place("deep/own"), fs::Permissions::from_mode(0o710)).unwrap();
    assert!(private_folder(&place("deep/own")).is_err(), "others can enter it");
}
