//! The aggregates.

use super::Aggregate;
use super::accumulator::{Accumulator, Bits, Spread};
use std::cmp::Ordering;

macro_rules! aggregates {
    ($($oid:literal $name:literal ($($argument:ident)*) $returns:ident = $start:expr;)*) => {
        &[$(Aggregate {
            oid: $oid,
            name: $name,
            arguments: &[$(argument!($argument)),*],
            returns: returns!($returns),
            start: $start,
        }),*]
    };
}

const VAR_POP: Spread = Spread { sample: false, root: false };
const VAR_SAMP: Spread = Spread { sample: true, root: false };
const STDDEV_POP: Spread = Spread { sample: false, root: true };
const STDDEV_SAMP: Spread = Spread { sample: true, root: true };

macro_rules! greatest {
    () => {
        |_| Accumulator::extreme(Ordering::Greater)
    };
}

macro_rules! least {
    () => {
        |_| Accumulator::extreme(Ordering::Less)
    };
}

macro_rules! spread {
    (float $spread:expr) => {
        |_| Accumulator::moments(Some($spread))
    };
    (exact $spread:expr) => {
        |_| Accumulator::spread($spread)
    };
}

#[rustfmt::skip]
pub(super) const AGGREGATES: &[Aggregate] = aggregates! {
    2803 "count" () Int8 = |_| Accumulator::rows();
    2147 "count" (any) Int8 = |_| Accumulator::count();
    2109 "sum" (Int2) Int8 = |_| Accumulator::sum();
    2108 "sum" (Int4) Int8 = |_| Accumulator::sum();
    2107 "sum" (Int8) Numeric = |_| Accumulator::whole(false);
    2110 "sum" (Float4) Float4 = |_| Accumulator::float(true);
    2111 "sum" (Float8) Float8 = |_| Accumulator::float(false);
    2114 "sum" (Numeric) Numeric = |_| Accumulator::exact(false);
    2102 "avg" (Int2) Numeric = |_| Accumulator::whole(true);
    2101 "avg" (Int4) Numeric = |_| Accumulator::whole(true);
    2100 "avg" (Int8) Numeric = |_| Accumulator::whole(true);
    2103 "avg" (Numeric) Numeric = |_| Accumulator::exact(true);
    2104 "avg" (Float4) Float8 = |_| Accumulator::moments(None);
    2105 "avg" (Float8) Float8 = |_| Accumulator::moments(None);
    2050 "max" (anyarray) anyarray = greatest!();
    2115 "max" (Int8) Int8 = greatest!();
    2116 "max" (Int4) Int4 = greatest!();
    2117 "max" (Int2) Int2 = greatest!();
    2118 "max" (Oid) Oid = greatest!();
    2119 "max" (Float4) Float4 = greatest!();
    2120 "max" (Float8) Float8 = greatest!();
    2122 "max" (Date) Date = greatest!();
    2126 "max" (Timestamp) Timestamp = greatest!();
    2127 "max" (TimestampTz) TimestampTz = greatest!();
    2129 "max" (Text) Text = greatest!();
    2130 "max" (Numeric) Numeric = greatest!();
    2244 "max" (Bpchar) Bpchar = greatest!();
    2051 "min" (anyarray) anyarray = least!();
    2131 "min" (Int8) Int8 = least!();
    2132 "min" (Int4) Int4 = least!();
    2133 "min" (Int2) Int2 = least!();
    2134 "min" (Oid) Oid = least!();
    2135 "min" (Float4) Float4 = least!();
    2136 "min" (Float8) Float8 = least!();
    2138 "min" (Date) Date = least!();
    2142 "min" (Timestamp) Timestamp = least!();
    2143 "min" (TimestampTz) TimestampTz = least!();
    2145 "min" (Text) Text = least!();
    2146 "min" (Numeric) Numeric = least!();
    2245 "min" (Bpchar) Bpchar = least!();
    2154 "stddev" (Int8) Numeric = spread!(exact STDDEV_SAMP);
    2155 "stddev" (Int4) Numeric = spread!(exact STDDEV_SAMP);
    2156 "stddev" (Int2) Numeric = spread!(exact STDDEV_SAMP);
    2157 "stddev" (Float4) Float8 = spread!(float STDDEV_SAMP);
    2158 "stddev" (Float8) Float8 = spread!(float STDDEV_SAMP);
    2159 "stddev" (Numeric) Numeric = spread!(exact STDDEV_SAMP);
    2724 "stddev_pop" (Int8) Numeric = spread!(exact STDDEV_POP);
    2725 "stddev_pop" (Int4) Numeric = spread!(exact STDDEV_POP);
    2726 "stddev_pop" (Int2) Numeric = spread!(exact STDDEV_POP);
    2727 "stddev_pop" (Float4) Float8 = spread!(float STDDEV_POP);
    2728 "stddev_pop" (Float8) Float8 = spread!(float STDDEV_POP);
    2729 "stddev_pop" (Numeric) Numeric = spread!(exact STDDEV_POP);
    2712 "stddev_samp" (Int8) Numeric = spread!(exact STDDEV_SAMP);
    2713 "stddev_samp" (Int4) Numeric = spread!(exact STDDEV_SAMP);
    2714 "stddev_samp" (Int2) Numeric = spread!(exact STDDEV_SAMP);
    2715 "stddev_samp" (Float4) Float8 = spread!(float STDDEV_SAMP);
    2716 "stddev_samp" (Float8) Float8 = spread!(float STDDEV_SAMP);
    2717 "stddev_samp" (Numeric) Numeric = spread!(exact STDDEV_SAMP);
    2718 "var_pop" (Int8) Numeric = spread!(exact VAR_POP);
    2719 "var_pop" (Int4) Numeric = spread!(exact VAR_POP);
    2720 "var_pop" (Int2) Numeric = spread!(exact VAR_POP);
    2721 "var_pop" (Float4) Float8 = spread!(float VAR_POP);
    2722 "var_pop" (Float8) Float8 = spread!(float VAR_POP);
    2723 "var_pop" (Numeric) Numeric = spread!(exact VAR_POP);
    2641 "var_samp" (Int8) Numeric = spread!(exact VAR_SAMP);
    2642 "var_samp" (Int4) Numeric = spread!(exact VAR_SAMP);
    2643 "var_samp" (Int2) Numeric = spread!(exact VAR_SAMP);
    2644 "var_samp" (Float4) Float8 = spread!(float VAR_SAMP);
    2645 "var_samp" (Float8) Float8 = spread!(float VAR_SAMP);
    2646 "var_samp" (Numeric) Numeric = spread!(exact VAR_SAMP);
    2148 "variance" (Int8) Numeric = spread!(exact VAR_SAMP);
    2149 "variance" (Int4) Numeric = spread!(exact VAR_SAMP);
    2150 "variance" (Int2) Numeric = spread!(exact VAR_SAMP);
    2151 "variance" (Float4) Float8 = spread!(float VAR_SAMP);
    2152 "variance" (Float8) Float8 = spread!(float VAR_SAMP);
    2153 "variance" (Numeric) Numeric = spread!(exact VAR_SAMP);
    2517 "bool_and" (Bool) Bool = |_| Accumulator::truth(false);
    2518 "bool_or" (Bool) Bool = |_| Accumulator::truth(true);
    2519 "every" (Bool) Bool = |_| Accumulator::truth(false);
    3538 "string_agg" (Text Text) Text = |_| Accumulator::text();
    3545 "string_agg" (Bytea Bytea) Bytea = |_| Accumulator::bytes();
    2335 "array_agg" (anynonarray) anyarray = Accumulator::array;
    2236 "bit_and" (Int2) Int2 = |_| Accumulator::bits(Bits::And);
    2238 "bit_and" (Int4) Int4 = |_| Accumulator::bits(Bits::And);
    2240 "bit_and" (Int8) Int8 = |_| Accumulator::bits(Bits::And);
    2237 "bit_or" (Int2) Int2 = |_| Accumulator::bits(Bits::Or);
    2239 "bit_or" (Int4) Int4 = |_| Accumulator::bits(Bits::Or);
    2241 "bit_or" (Int8) Int8 = |_| Accumulator::bits(Bits::Or);
    6164 "bit_xor" (Int2) Int2 = |_| Accumulator::bits(Bits::Xor);
    6165 "bit_xor" (Int4) Int4 = |_| Accumulator::bits(Bits::Xor);
    6166 "bit_xor" (Int8) Int8 = |_| Accumulator::bits(Bits::Xor);
};
