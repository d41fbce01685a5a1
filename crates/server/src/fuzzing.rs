//! What arbitrary bytes must not do: the entry point of the fuzz target in `fuzz/`, and of the test that runs the kept corpus
//! through it. It takes any bytes at all and panics where a guarantee of [`crate::message`] is broken.

use crate::message::{First, Message, Output, Target, is_known, parse, parse_first};

/// A message of a client: `type u8 | body`; of type 0 the first one of a connection. What is read is written, and read again as
/// the same.
pub fn message(data: &[u8]) {
    let Some((&kind, body)) = data.split_first() else { return };
    if kind == 0 {
        return first(body);
    }
    let Ok(message) = parse(kind, body) else { return };
    assert!(is_known(kind));
    let mut out = Output::default();
    write(&message, out.begin(kind));
    assert!(out.end());
    assert_eq!(parse(kind, &out.bytes()[5..]).expect("what is written is read"), message);
}

fn first(body: &[u8]) {
    let Ok(first) = parse_first(body) else { return };
    let First::Startup { minor, parameters } = &first else { return };
    let mut out = Output::default();
    out.begin(0).u32(3 << 16 | u32::from(*minor));
    for (name, value) in parameters {
        out.str(name).str(value);
    }
    assert!(out.u8(0).end());
    assert_eq!(parse_first(&out.bytes()[5..]).expect("what is written is read"), first);
}

fn write(message: &Message<'_>, out: &mut Output) {
    match message {
        Message::Query(text) | Message::CopyFail(text) => out.str(text),
        Message::Parse { name, sql, types } => {
            out.str(name).str(sql).count(types.len());
            types.iter().fold(out, |out, ty| out.u32(*ty))
        }
        Message::Bind { portal, statement, formats, values, results } => {
            out.str(portal).str(statement).count(formats.len());
            formats.iter().fold(&mut *out, |out, format| out.i16(format)).count(values.len());
            for value in values {
                match value {
                    None => out.i32(-1),
                    Some(value) => out.value(|bytes| bytes.extend_from_slice(value)),
                };
            }
            out.count(results.len());
            results.iter().fold(out, |out, format| out.i16(format))
        }
        Message::Describe(target, name) | Message::Close(target, name) => {
            out.u8(if *target == Target::Statement { b'S' } else { b'P' }).str(name)
        }
        Message::Execute { portal, limit } => out.str(portal).i32(*limit),
        Message::CopyData(bytes) => out.raw(bytes),
        Message::Flush | Message::Sync | Message::CopyDone | Message::FunctionCall | Message::Terminate => {
            out
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Codes;
    use gannet_base::corpus;

    #[test]
    fn kept_inputs_pass() {
        corpus::replay("message", message);
    }

    #[test]
    fn messages_of_every_type_pass() {
        let bind = Message::Bind {
            portal: "p",
            statement: "s",
            formats: Codes(&[[0, 0], [0, 1]]),
            values: vec![None, Some(b"abc")],
            results: Codes(&[[0, 1]]),
        };
        let messages = [
            (b'Q', Message::Query("select 1")),
            (b'P', Message::Parse { name: "s", sql: "select $1, $2", types: vec![23, 25] }),
            (b'B', bind),
            (b'D', Message::Describe(Target::Statement, "s")),
            (b'C', Message::Close(Target::Portal, "p")),
            (b'E', Message::Execute { portal: "p", limit: 10 }),
            (b'd', Message::CopyData(b"1\ta\n")),
            (b'f', Message::CopyFail("enough")),
            (b'S', Message::Sync),
        ];
        let mut seeds: Vec<Vec<u8>> = vec![b"\0\0\x03\0\0user\0me\0database\0db\0\0".to_vec()];
        for (kind, message) in messages {
            let mut out = Output::default();
            write(&message, out.begin(kind));
            out.end();
            seeds.push([&[kind], &out.bytes()[5..]].concat());
        }
        corpus::offer("message", &seeds, message);
    }
}
