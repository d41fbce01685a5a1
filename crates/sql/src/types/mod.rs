//! Data types, their values, and how values are read, written, compared and converted.
//!
//! Every expression has a [`Type`] before it is run, so a [`Value`] does not repeat it: all integers, dates and
//! timestamps are one variant, all strings another. What a value means is said by the type beside it.
//!
//! | module | job |
//! |---|---|
//! | `value` | the value itself: order, equality, hash |
//! | [`numeric`] | exact numbers of any length |
//! | [`datetime`] | dates and timestamps: reading, writing, parts, time zones |
//! | [`text`] | text representation of every type, both ways |
//! | [`binary`] | PostgreSQL's binary representation, both ways |
//! | [`cast`] | which type converts to which, when, and how |

pub mod binary;
pub mod cast;
pub mod datetime;
pub mod numeric;
pub mod text;
mod value;

pub use numeric::Numeric;
pub use value::{Array, Record, Shape, Value, unpadded};

/// A type modifier as PostgreSQL has it: the length of `varchar(n)` and `char(n)` plus 4, precision and scale of
/// `numeric(p, s)` as `(p << 16 | s) + 4`, the digits of `timestamp(p)`; [`NO_MODIFIER`] where there is none.
pub type Modifier = i32;

/// No type modifier.
pub const NO_MODIFIER: Modifier = -1;

macro_rules! types {
    ($($variant:ident $oid:literal $name:literal $internal:literal $len:literal $category:literal $element:ident $array:ident;)*) => {
        /// A data type.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum Type {
            $(#[doc = concat!("`", $name, "`")] $variant,)*
        }

        impl Type {
            /// Every type.
            pub const ALL: &'static [Type] = &[$(Type::$variant),*];

            /// PostgreSQL's number of the type.
            pub fn oid(self) -> u32 {
                match self { $(Type::$variant => $oid,)* }
            }

            /// The type of this number.
            pub fn from_oid(oid: u32) -> Option<Type> {
                match oid { $($oid => Some(Type::$variant),)* _ => None }
            }

            /// The name as SQL standard and error messages have it, such as `integer`.
            pub fn name(self) -> &'static str {
                match self { $(Type::$variant => $name,)* }
            }

            /// The name in `pg_type`, such as `int4`.
            pub fn internal_name(self) -> &'static str {
                match self { $(Type::$variant => $internal,)* }
            }

            /// The type of this name in `pg_type`.
            pub fn from_internal_name(name: &str) -> Option<Type> {
                match name { $($internal => Some(Type::$variant),)* _ => None }
            }

            /// `pg_type.typlen`: bytes of the binary representation, or -1 where it varies.
            #[expect(clippy::len_without_is_empty, reason = "it is no collection, but PostgreSQL's name for the size")]
            pub fn len(self) -> i16 {
                match self { $(Type::$variant => $len,)* }
            }

            /// `pg_type.typcategory`.
            pub fn category(self) -> char {
                match self { $(Type::$variant => $category,)* }
            }

            /// The type of an array's elements.
            pub fn element(self) -> Option<Type> {
                match self { $(Type::$variant => types!(@some $variant $element),)* }
            }

            /// The type of arrays of this type.
            pub fn array(self) -> Option<Type> {
                match self { $(Type::$variant => types!(@some $variant $array),)* }
            }
        }
    };
    (@some $variant:ident None) => { None };
    (@some $variant:ident $other:ident) => { Some(Type::$other) };
}

types! {
    Bool 16 "boolean" "bool" 1 'B' None BoolArray;
    Bytea 17 "bytea" "bytea" -1 'U' None ByteaArray;
    Char 18 "\"char\"" "char" 1 'Z' None CharArray;
    Name 19 "name" "name" 64 'S' None NameArray;
    Int8 20 "bigint" "int8" 8 'N' None Int8Array;
    Int2 21 "smallint" "int2" 2 'N' None Int2Array;
    Int2Vector 22 "int2vector" "int2vector" -1 'A' Int2 None;
    Int4 23 "integer" "int4" 4 'N' None Int4Array;
    Regproc 24 "regproc" "regproc" 4 'N' None None;
    Text 25 "text" "text" -1 'S' None TextArray;
    Oid 26 "oid" "oid" 4 'N' None OidArray;
    Xid 28 "xid" "xid" 4 'U' None None;
    OidVector 30 "oidvector" "oidvector" -1 'A' Oid None;
    NodeTree 194 "pg_node_tree" "pg_node_tree" -1 'Z' None None;
    Float4 700 "real" "float4" 4 'N' None Float4Array;
    Float8 701 "double precision" "float8" 8 'N' None Float8Array;
    Unknown 705 "unknown" "unknown" -2 'X' None None;
    Bpchar 1042 "character" "bpchar" -1 'S' None BpcharArray;
    Varchar 1043 "character varying" "varchar" -1 'S' None VarcharArray;
    Date 1082 "date" "date" 4 'D' None DateArray;
    Timestamp 1114 "timestamp without time zone" "timestamp" 8 'D' None TimestampArray;
    TimestampTz 1184 "timestamp with time zone" "timestamptz" 8 'D' None TimestampTzArray;
    Numeric 1700 "numeric" "numeric" -1 'N' None NumericArray;
    Regclass 2205 "regclass" "regclass" 4 'N' None None;
    Regtype 2206 "regtype" "regtype" 4 'N' None None;
    Regnamespace 4089 "regnamespace" "regnamespace" 4 'N' None None;
    Record 2249 "record" "record" -1 'P' None None;
    Void 2278 "void" "void" 4 'P' None None;
    BoolArray 1000 "boolean[]" "_bool" -1 'A' Bool None;
    ByteaArray 1001 "bytea[]" "_bytea" -1 'A' Bytea None;
    CharArray 1002 "\"char\"[]" "_char" -1 'A' Char None;
    NameArray 1003 "name[]" "_name" -1 'A' Name None;
    Int2Array 1005 "smallint[]" "_int2" -1 'A' Int2 None;
    Int4Array 1007 "integer[]" "_int4" -1 'A' Int4 None;
    TextArray 1009 "text[]" "_text" -1 'A' Text None;
    BpcharArray 1014 "character[]" "_bpchar" -1 'A' Bpchar None;
    VarcharArray 1015 "character varying[]" "_varchar" -1 'A' Varchar None;
    Int8Array 1016 "bigint[]" "_int8" -1 'A' Int8 None;
    Float4Array 1021 "real[]" "_float4" -1 'A' Float4 None;
    Float8Array 1022 "double precision[]" "_float8" -1 'A' Float8 None;
    OidArray 1028 "oid[]" "_oid" -1 'A' Oid None;
    TimestampArray 1115 "timestamp without time zone[]" "_timestamp" -1 'A' Timestamp None;
    DateArray 1182 "date[]" "_date" -1 'A' Date None;
    TimestampTzArray 1185 "timestamp with time zone[]" "_timestamptz" -1 'A' TimestampTz None;
    NumericArray 1231 "numeric[]" "_numeric" -1 'A' Numeric None;
}

impl Type {
    /// Whether values are [`Value::Int`].
    pub fn is_int(self) -> bool {
        matches!(
            self,
            Type::Int2
                | Type::Int4
                | Type::Int8
                | Type::Oid
                | Type::Xid
                | Type::Regproc
                | Type::Regclass
                | Type::Regtype
                | Type::Regnamespace
                | Type::Date
                | Type::Timestamp
                | Type::TimestampTz
        )
    }

    /// smallint, integer or bigint.
    pub fn is_integer(self) -> bool {
        matches!(self, Type::Int2 | Type::Int4 | Type::Int8)
    }

    /// A type of category "string" or one that is kept as [`Value::Text`].
    pub fn is_string(self) -> bool {
        matches!(
            self,
            Type::Text
                | Type::Varchar
                | Type::Bpchar
                | Type::Name
                | Type::Char
                | Type::Unknown
                | Type::NodeTree
        )
    }

    /// `pg_type.typispreferred`: wins among the types of its category.
    pub fn is_preferred(self) -> bool {
        matches!(self, Type::Bool | Type::Text | Type::Float8 | Type::Oid | Type::TimestampTz)
    }

    /// Whether a column of a table may have the type. The others exist for system tables and expressions.
    pub fn is_storable(self) -> bool {
        matches!(
            self,
            Type::Bool
                | Type::Bytea
                | Type::Int2
                | Type::Int4
                | Type::Int8
                | Type::Float4
                | Type::Float8
                | Type::Numeric
                | Type::Text
                | Type::Varchar
                | Type::Bpchar
                | Type::Name
                | Type::Oid
                | Type::Date
                | Type::Timestamp
                | Type::TimestampTz
        )
    }

    /// The name with its modifier, as `format_type` gives it: `character varying(10)`, `numeric(12,2)`.
    pub fn display(self, modifier: Modifier) -> String {
        if modifier < 0 {
            return self.name().to_owned();
        }
        match self {
            Type::Varchar | Type::Bpchar => format!("{}({})", self.name(), modifier - 4),
            Type::Numeric => {
                let packed = modifier - 4;
                // The scale is a signed number of 11 bits.
                let scale = ((packed & 0x7ff) ^ 1024) - 1024;
                format!("numeric({},{scale})", packed >> 16 & 0xffff)
            }
            Type::Timestamp => format!("timestamp({modifier}) without time zone"),
            Type::TimestampTz => format!("timestamp({modifier}) with time zone"),
            _ => self.name().to_owned(),
        }
    }
}

impl serde::Serialize for Type {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.internal_name())
    }
}

impl<'de> serde::Deserialize<'de> for Type {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        Type::from_internal_name(&name)
            .ok_or_else(|| serde::de::Error::custom(format!("there is no type \"{name}\"")))
    }
}
