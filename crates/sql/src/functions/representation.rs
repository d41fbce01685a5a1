//! The functions by which PostgreSQL reads, writes and subscripts values of its types, under its names and numbers: clients learn from
//! them what a type is, as `typreceive` of arrays is `array_recv`. They can be named, by `pg_type`, `pg_proc` and regproc; calls are
//! refused by name, as most take or give what no value is here (`cstring`, `internal`).

use super::Volatility::{self, Immutable, Stable};
use crate::types::Type;

/// PostgreSQL's numbers of types in signatures.
const BOOL: u32 = 16;
const BYTEA: u32 = 17;
const INT4: u32 = 23;
const OID: u32 = 26;
const CSTRING: u32 = 2275;
const CSTRING_ARRAY: u32 = 1263;
const ANY_ARRAY: u32 = 2277;
const INTERNAL: u32 = 2281;

/// Such a function.
#[derive(Clone, Debug)]
pub struct Routine {
    /// PostgreSQL's number of it; unique among all functions.
    pub oid: u32,
    /// Its name; unique among all functions.
    pub name: &'static str,
    /// Numbers of the types that it takes.
    pub arguments: Vec<u32>,
    /// Number of the type that it gives.
    pub returns: u32,
    /// When it gives the same again.
    pub volatility: Volatility,
}

/// The numbers of a type's routines, as `pg_type` has them; 0 where there is none.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Routines {
    /// `typinput`
    pub input: u32,
    /// `typoutput`
    pub output: u32,
    /// `typreceive`
    pub receive: u32,
    /// `typsend`
    pub send: u32,
    /// `typmodin`
    pub modifier_input: u32,
    /// `typmodout`
    pub modifier_output: u32,
    /// `typanalyze`
    pub analyze: u32,
    /// `typsubscript`
    pub subscript: u32,
}

type Named = (u32, &'static str);

/// How the values of a type are read and written.
struct Representation {
    /// All arrays have one.
    ty: Option<Type>,
    input: Named,
    output: Named,
    receive: Named,
    send: Named,
    /// Volatility of reading and writing text, and of the same in binary.
    text: Volatility,
    binary: Volatility,
    /// Whether reading takes the element's type and a modifier, too.
    with_modifier: bool,
}

macro_rules! representations {
    ($($ty:expr, $input:literal $read:literal, $output:literal $write:literal, $receive:literal $received:literal, $send:literal $sent:literal,
        $text:ident $binary:ident $with_modifier:literal;)*) => {
        &[$(Representation {
            ty: $ty,
            input: ($input, $read),
            output: ($output, $write),
            receive: ($receive, $received),
            send: ($send, $sent),
            text: $text,
            binary: $binary,
            with_modifier: $with_modifier,
        }),*]
    };
}

#[rustfmt::skip]
const REPRESENTATIONS: &[Representation] = representations! {
    Some(Type::Bool), 1242 "boolin", 1243 "boolout", 2436 "boolrecv", 2437 "boolsend", Immutable Immutable false;
    Some(Type::Bytea), 1244 "byteain", 31 "byteaout", 2412 "bytearecv", 2413 "byteasend", Immutable Immutable false;
    Some(Type::Char), 1245 "charin", 33 "charout", 2434 "charrecv", 2435 "charsend", Immutable Immutable false;
    Some(Type::Name), 34 "namein", 35 "nameout", 2422 "namerecv", 2423 "namesend", Immutable Stable false;
    Some(Type::Int8), 460 "int8in", 461 "int8out", 2408 "int8recv", 2409 "int8send", Immutable Immutable false;
    Some(Type::Int2), 38 "int2in", 39 "int2out", 2404 "int2recv", 2405 "int2send", Immutable Immutable false;
    Some(Type::Int2Vector), 40 "int2vectorin", 41 "int2vectorout", 2410 "int2vectorrecv", 2411 "int2vectorsend", Immutable Immutable false;
    Some(Type::Int4), 42 "int4in", 43 "int4out", 2406 "int4recv", 2407 "int4send", Immutable Immutable false;
    Some(Type::Regproc), 44 "regprocin", 45 "regprocout", 2444 "regprocrecv", 2445 "regprocsend", Stable Immutable false;
    Some(Type::Text), 46 "textin", 47 "textout", 2414 "textrecv", 2415 "textsend", Immutable Stable false;
    Some(Type::Oid), 1798 "oidin", 1799 "oidout", 2418 "oidrecv", 2419 "oidsend", Immutable Immutable false;
    Some(Type::Xid), 50 "xidin", 51 "xidout", 2440 "xidrecv", 2441 "xidsend", Immutable Immutable false;
    Some(Type::OidVector), 54 "oidvectorin", 55 "oidvectorout", 2420 "oidvectorrecv", 2421 "oidvectorsend", Immutable Immutable false;
    Some(Type::NodeTree), 195 "pg_node_tree_in", 196 "pg_node_tree_out", 197 "pg_node_tree_recv", 198 "pg_node_tree_send", Immutable Stable false;
    Some(Type::Float4), 200 "float4in", 201 "float4out", 2424 "float4recv", 2425 "float4send", Immutable Immutable false;
    Some(Type::Float8), 214 "float8in", 215 "float8out", 2426 "float8recv", 2427 "float8send", Immutable Immutable false;
    Some(Type::Unknown), 109 "unknownin", 110 "unknownout", 2416 "unknownrecv", 2417 "unknownsend", Immutable Immutable false;
    Some(Type::Bpchar), 1044 "bpcharin", 1045 "bpcharout", 2430 "bpcharrecv", 2431 "bpcharsend", Immutable Stable true;
    Some(Type::Varchar), 1046 "varcharin", 1047 "varcharout", 2432 "varcharrecv", 2433 "varcharsend", Immutable Stable true;
    Some(Type::Date), 1084 "date_in", 1085 "date_out", 2468 "date_recv", 2469 "date_send", Stable Immutable false;
    Some(Type::Timestamp), 1312 "timestamp_in", 1313 "timestamp_out", 2474 "timestamp_recv", 2475 "timestamp_send", Stable Immutable true;
    Some(Type::TimestampTz), 1150 "timestamptz_in", 1151 "timestamptz_out", 2476 "timestamptz_recv", 2477 "timestamptz_send", Stable Immutable true;
    Some(Type::Numeric), 1701 "numeric_in", 1702 "numeric_out", 2460 "numeric_recv", 2461 "numeric_send", Immutable Immutable true;
    Some(Type::Regclass), 2218 "regclassin", 2219 "regclassout", 2452 "regclassrecv", 2453 "regclasssend", Stable Immutable false;
    Some(Type::Regtype), 2220 "regtypein", 2221 "regtypeout", 2454 "regtyperecv", 2455 "regtypesend", Stable Immutable false;
    Some(Type::Regnamespace), 4084 "regnamespacein", 4085 "regnamespaceout", 4087 "regnamespacerecv", 4088 "regnamespacesend", Stable Immutable false;
    Some(Type::Record), 2290 "record_in", 2291 "record_out", 2402 "record_recv", 2403 "record_send", Stable Stable true;
    Some(Type::Void), 2298 "void_in", 2299 "void_out", 3120 "void_recv", 3121 "void_send", Immutable Immutable false;
    None, 750 "array_in", 751 "array_out", 2400 "array_recv", 2401 "array_send", Stable Stable true;
};

/// How modifiers of a type, and of arrays of it, are read and written.
const MODIFIERS: &[(Type, Named, Named)] = &[
    (Type::Bpchar, (2913, "bpchartypmodin"), (2914, "bpchartypmodout")),
    (Type::Varchar, (2915, "varchartypmodin"), (2916, "varchartypmodout")),
    (Type::Timestamp, (2905, "timestamptypmodin"), (2906, "timestamptypmodout")),
    (Type::TimestampTz, (2907, "timestamptztypmodin"), (2908, "timestamptztypmodout")),
    (Type::Numeric, (2917, "numerictypmodin"), (2918, "numerictypmodout")),
];

const ANALYZE_ARRAY: Named = (3816, "array_typanalyze");
const SUBSCRIPT_ARRAY: Named = (6179, "array_subscript_handler");
/// Of values whose bytes are those of their elements.
const SUBSCRIPT_NAME: Named = (6180, "raw_array_subscript_handler");

impl Representation {
    fn routines(&self) -> [Routine; 4] {
        let ty = self.ty.map_or(ANY_ARRAY, Type::oid);
        let routine = |(oid, name): Named, arguments: &[u32], returns, volatility| Routine {
            oid,
            name,
            arguments: arguments.to_vec(),
            returns,
            volatility,
        };
        let taken = if self.with_modifier { 3 } else { 1 };
        [
            routine(self.input, &[CSTRING, OID, INT4][..taken], ty, self.text),
            routine(self.output, &[ty], CSTRING, self.text),
            routine(self.receive, &[INTERNAL, OID, INT4][..taken], ty, self.binary),
            routine(self.send, &[ty], BYTEA, self.binary),
        ]
    }
}

/// All of them.
pub fn routines() -> impl Iterator<Item = Routine> {
    let values = REPRESENTATIONS.iter().flat_map(Representation::routines);
    let immutable = |(oid, name): Named, argument, returns| Routine {
        oid,
        name,
        arguments: vec![argument],
        returns,
        volatility: Immutable,
    };
    let modifiers = MODIFIERS.iter().flat_map(move |(_, input, output)| {
        [immutable(*input, CSTRING_ARRAY, INT4), immutable(*output, INT4, CSTRING)]
    });
    let handlers = [SUBSCRIPT_ARRAY, SUBSCRIPT_NAME].map(|handler| immutable(handler, INTERNAL, INTERNAL));
    let analyze = Routine { volatility: Stable, ..immutable(ANALYZE_ARRAY, INTERNAL, BOOL) };
    values.chain(modifiers).chain(handlers).chain([analyze])
}

/// Those of a type.
pub fn routines_of(ty: Type) -> Routines {
    let is_vector = matches!(ty, Type::Int2Vector | Type::OidVector);
    let element = ty.element().filter(|_| !is_vector);
    let wanted = if element.is_some() { None } else { Some(ty) };
    let mut routines = Routines::default();
    if let Some(found) = REPRESENTATIONS.iter().find(|known| known.ty == wanted) {
        (routines.input, routines.output) = (found.input.0, found.output.0);
        (routines.receive, routines.send) = (found.receive.0, found.send.0);
    }
    if let Some((_, input, output)) = MODIFIERS.iter().find(|(of, ..)| *of == element.unwrap_or(ty)) {
        (routines.modifier_input, routines.modifier_output) = (input.0, output.0);
    }
    if element.is_some() {
        routines.analyze = ANALYZE_ARRAY.0;
    }
    routines.subscript = match ty {
        Type::Name => SUBSCRIPT_NAME.0,
        _ if ty.element().is_some() => SUBSCRIPT_ARRAY.0,
        _ => 0,
    };
    routines
}

/// The name of a type in a signature.
pub(super) fn type_name(oid: u32) -> &'static str {
    match oid {
        CSTRING => "cstring",
        CSTRING_ARRAY => "cstring[]",
        ANY_ARRAY => "anyarray",
        INTERNAL => "internal",
        _ => Type::from_oid(oid).map_or("???", Type::name),
    }
}
