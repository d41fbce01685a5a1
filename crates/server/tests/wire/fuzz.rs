//! Conversations with some bytes changed: the server answers in proper messages or hangs up, and goes on for everybody else.
//!
//! `WIRE_SEEDS` says how many seeds are run (200), `WIRE_SEED` which is the first one (1). A failure names its seed.

use crate::client::{Body, Reply, Wire, bind, execute, first, frame, parse, query, sync, target};
use crate::fixture::Fixture;
use std::io::Read;

const TABLE: &str = "create table t (a int primary key, b text); insert into t select n, 'row ' || n from generate_series(1, 50) n;
    create role ann login password 'pencil'";

/// Splitmix64, by Sebastiano Vigna.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

/// Messages that follow each other well.
fn conversations() -> Vec<Vec<Vec<u8>>> {
    vec![
        vec![query("select a, b from t where a < 5; update t set b = 'x' where a = 3; select 1/0")],
        vec![
            parse("s", "select a, b from t where a > $1 and b like $2 order by a", &[23, 25]),
            target(b'D', b'S', "s"),
            bind("p", "s", 0, &[Some(b"3"), Some(b"row%")], 1),
            target(b'D', b'P', "p"),
            execute("p", 4),
            frame(b'H', b""),
            execute("p", 0),
            target(b'C', b'P', "p"),
            target(b'C', b'S', "s"),
            sync(),
        ],
        vec![
            query("begin"),
            parse("", "insert into t values ($1, $2) returning *", &[]),
            bind("", "", 1, &[Some(&[0, 0, 3, 0]), Some(b"new")], 0),
            execute("", 0),
            sync(),
            query("savepoint s; select nothing; rollback to s; commit"),
        ],
        vec![
            query("copy t from stdin"),
            frame(b'd', b"1001\tone\n1002\t"),
            frame(b'd', b"two\n"),
            frame(b'c', b""),
            query("copy t to stdout (format csv)"),
            query("copy t from stdin"),
            frame(b'f', b"why\0"),
        ],
        vec![
            parse("n", "select $1::numeric, $2::timestamptz, $3::int4[], $4::bytea", &[]),
            bind(
                "",
                "n",
                1,
                &[
                    Some(&Body::new().i16(2).i16(0).i16(0).i16(2).i16(12).i16(3400).0),
                    Some(&Body::new().i32(0).i32(77).0),
                    Some(&Body::new().i32(1).i32(0).i32(23).i32(1).i32(1).i32(4).i32(9).0),
                    None,
                ],
                1,
            ),
            execute("", 0),
            sync(),
        ],
    ]
}

/// Changes some of the messages: bytes, lengths, order, number.
fn mutate(messages: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut messages = messages.to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(messages.len());
        let len = messages[at].len();
        match random.below(9) {
            0 | 1 => {
                let place = random.below(len);
                messages[at][place] ^= 1 << random.below(8);
            }
            2 => {
                let place = random.below(len);
                messages[at][place] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)];
            }
            // Cut, with a length that fits or does not.
            3 => {
                messages[at].truncate(random.below(len) + 1);
                if random.below(2) == 0 && messages[at].len() >= 5 {
                    let short = messages[at].len() as u32 - 1;
                    messages[at][1..5].copy_from_slice(&short.to_be_bytes());
                }
            }
            4 => {
                let again = messages[at].clone();
                messages.insert(random.below(messages.len()), again);
            }
            5 => {
                let other = random.below(messages.len());
                messages.swap(at, other);
            }
            6 => {
                let place = random.below(len);
                let more: Vec<u8> = (0..random.below(20)).map(|_| random.next() as u8).collect();
                messages[at].splice(place..place, more);
            }
            7 if len >= 9 => {
                let place = 5 + random.below(len - 8);
                messages[at][place..place + 4].copy_from_slice(&(random.next() as u32).to_be_bytes());
            }
            _ => {
                messages.remove(at);
                if messages.is_empty() {
                    messages.push(sync());
                }
            }
        }
    }
    messages.concat()
}

/// Everything the server says, which has to be proper messages of the server, up to its end.
fn check_answer(wire: &mut Wire, seed: u64) {
    let mut bytes = Vec::new();
    // A server that ends while there is more to be read resets the connection.
    let _ = wire.stream.read_to_end(&mut bytes);
    let mut rest = bytes.as_slice();
    while rest.len() >= 5 {
        let len = u32::from_be_bytes(rest[1..5].try_into().unwrap()) as usize;
        assert!(b"RSKZTDCIEN123nstGHdcAvV".contains(&rest[0]), "seed {seed}: message {}", rest[0]);
        assert!((4..1 << 20).contains(&len), "seed {seed}: length {len}");
        let Some(next) = rest.get(1 + len..) else { return };
        let reply = Reply { kind: rest[0], body: rest[5..=len].to_vec() };
        if reply.kind == b'E' {
            assert!(
                !reply.body.windows(6).any(|part| part == b"CXX000"),
                "seed {seed}: {}",
                String::from_utf8_lossy(&reply.body)
            );
        }
        rest = next;
    }
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let from = number("WIRE_SEED", 1);
    from..from + number("WIRE_SEEDS", 200)
}

#[test]
fn changed_messages_hurt_nobody() {
    let fixture = Fixture::with(TABLE, |_| {});
    let mut witness = fixture.connect();
    for seed in seeds() {
        let mut random = Random(seed);
        let conversations = conversations();
        let mut wire = fixture.connect();
        let bytes = mutate(&conversations[random.below(conversations.len())], &mut random);
        wire.send(&bytes);
        wire.stream.finish();
        check_answer(&mut wire, seed);
        assert_eq!(witness.run("select 1").one(), "1", "seed {seed}");
    }
    fixture.wait_for("select count(*) from pg_stat_activity", "2");
}

#[test]
fn changed_first_messages_hurt_nobody() {
    let fixture = Fixture::with(TABLE, |options| options.listen = vec!["127.0.0.1:0".parse().unwrap()]);
    let mut witness = fixture.connect();
    let initial = Body::new().str("SCRAM-SHA-256").value(Some(b"n,,n=,r=abcdef"));
    let beginnings = [
        vec![
            first(3 << 16, &[("user", "ann"), ("database", "shop"), ("options", "-c TimeZone=UTC")]),
            frame(b'p', &initial.0),
            frame(b'p', b"c=biws,r=abcdef,p=AAAA"),
        ],
        vec![
            first(80_877_103, &[]),
            first((3 << 16) + 2, &[("user", "ann"), ("database", "shop"), ("_pq_.x", "1")]),
        ],
        vec![first(80_877_102, &[]), first(80_877_104, &[])],
    ];
    for seed in seeds() {
        let mut random = Random(seed);
        let mut wire = Wire::tcp(fixture.server().addresses()[0]);
        wire.send(&mutate(&beginnings[random.below(beginnings.len())], &mut random));
        wire.stream.finish();
        let mut bytes = Vec::new();
        let _ = wire.stream.read_to_end(&mut bytes);
        assert!(!bytes.windows(3).any(|part| part == b"Z\0\0"), "seed {seed}: let in");
        assert_eq!(witness.run("select 1").one(), "1", "seed {seed}");
    }
}
