//! Operators and functions of regular expressions; see [`super::regex`] for their syntax.

use super::arguments::{int_or, text, text_or};
use super::regex::Options;
use super::string::{Room, count, reserve};
use super::{Call, Function, Returns, TableFunction};
use crate::exec::{Context, RowSource};
use crate::types::{Array, Type, Value};
use crate::{Error, Result, SqlState};
use compact_str::CompactString;
use gannet_base::memory::Purpose;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

fn bad(message: String) -> Error {
    Error::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

/// The flags given as an argument. Without `function`, `g` means something.
fn options(a: &[Value], index: usize, function: Option<&str>) -> Result<Options> {
    let given = text_or(a, index, "")?;
    let options = Options::parse(given).map_err(|flag| {
        let error = bad(format!("invalid regular expression option: \"{flag}\""));
        if function.is_none() && flag.is_ascii_digit() {
            return error.hint(
                "If you meant to use regexp_replace() with a start parameter, cast the fourth argument to integer explicitly.",
            );
        }
        error
    })?;
    match function {
        Some(function) if options.global => {
            Err(bad(format!("{function}() does not support the \"global\" option")))
        }
        _ => Ok(options),
    }
}

/// Flags of which `g` means nothing.
fn flags(a: &[Value], index: usize) -> Result<Options> {
    let given = text_or(a, index, "")?;
    Options::parse(given).map_err(|flag| bad(format!("invalid regular expression option: \"{flag}\"")))
}

/// The compiled pattern, kept by the session.
fn compiled(call: &Call<'_, '_>, pattern: &str, options: Options) -> Result<Arc<::regex::Regex>> {
    let context = call.context;
    let mut charge = |bytes| {
        context.check()?;
        Ok(Some(context.session.engine.memory(Purpose::Work, bytes)?))
    };
    context.session.patterns.borrow_mut().compiled(pattern, options, &mut charge)
}

fn is_match<const FOLD: bool, const WANTED: bool>(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let options = Options { fold: FOLD, ..Options::default() };
    Ok(Value::Bool(compiled(call, text(a, 1)?, options)?.is_match(text(a, 0)?) == WANTED))
}

fn like(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let options = options(a, 2, Some("regexp_like"))?;
    Ok(Value::Bool(compiled(call, text(a, 1)?, options)?.is_match(text(a, 0)?)))
}

fn substring(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let regex = compiled(call, text(a, 1)?, Options::default())?;
    let Some(captures) = regex.captures(text(a, 0)?) else { return Ok(Value::Null) };
    let wanted = usize::from(captures.len() > 1);
    let found = captures.get(wanted).map(|found| found.as_str());
    reserve(call, Some(found.map_or(0, str::len)))?;
    Ok(found.map_or(Value::Null, Value::text))
}

/// What was found: the whole, then the groups.
type Found = Vec<Option<Range<usize>>>;

/// Calls `each` with the matches from `start` on, until it says to stop. Unlike in crate `regex`, an empty match may follow upon another
/// match.
fn each_match(
    call: &Call<'_, '_>,
    regex: &::regex::Regex,
    text: &str,
    start: usize,
    mut each: impl FnMut(&::regex::CaptureLocations, Range<usize>) -> Result<bool>,
) -> Result<()> {
    let mut locations = regex.capture_locations();
    let mut from = start;
    while from <= text.len() {
        // Each match may have had a look at all the text.
        call.context.check()?;
        let Some(found) = regex.captures_read_at(&mut locations, text, from) else { break };
        if !each(&locations, found.range())? {
            break;
        }
        from = found.end();
        if found.is_empty() {
            from += text[from..].chars().next().map_or(1, char::len_utf8);
        }
    }
    Ok(())
}

fn ranges(locations: &::regex::CaptureLocations) -> Found {
    (0..locations.len()).map(|index| locations.get(index).map(|(start, end)| start..end)).collect()
}

/// Appends what a match is replaced with: `\1` to `\9` are groups, `\&` is the whole.
fn expand(
    replacement: &str,
    text: &str,
    locations: &::regex::CaptureLocations,
    room: &mut Room<'_, '_, '_>,
    out: &mut String,
) -> Result<()> {
    room.want(out.len() + replacement.len())?;
    let mut rest = replacement;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let group = match rest.as_bytes().first() {
            Some(b'\\') => {
                out.push('\\');
                rest = &rest[1..];
                continue;
            }
            Some(b'&') => 0,
            Some(digit @ b'1'..=b'9') => usize::from(digit - b'0'),
            _ => {
                out.push('\\');
                continue;
            }
        };
        rest = &rest[1..];
        if group < locations.len()
            && let Some((start, end)) = locations.get(group)
        {
            room.want(out.len() + (end - start) + rest.len())?;
            out.push_str(&text[start..end]);
        }
    }
    out.push_str(rest);
    Ok(())
}

/// Replaces match number `which` from `start` on, or all of them where that is 0.
fn replaced(call: &Call<'_, '_>, a: &[Value], start: usize, which: i64, options: Options) -> Result<Value> {
    let (text, replacement) = (text(a, 0)?, text(a, 2)?);
    let regex = compiled(call, text_or(a, 1, "")?, options)?;
    let (mut out, mut room) = (String::new(), Room::new(call));
    let (mut copied, mut number) = (0, 0);
    each_match(call, &regex, text, start, |locations, range| {
        number += 1;
        if which == 0 || number == which {
            room.want(out.len() + range.start - copied)?;
            out.push_str(&text[copied..range.start]);
            expand(replacement, text, locations, &mut room, &mut out)?;
            copied = range.end;
        }
        Ok(which == 0 || number < which)
    })?;
    if out.is_empty() && copied == 0 {
        reserve(call, Some(text.len()))?;
        return Ok(a[0].clone());
    }
    room.want(out.len() + text.len() - copied)?;
    out.push_str(&text[copied..]);
    Ok(Value::Text(CompactString::from(out)))
}

fn replace(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let options = options(a, 3, None)?;
    replaced(call, a, 0, i64::from(!options.global), options)
}

fn checked(a: &[Value], index: usize, name: &str, least: i64) -> Result<i64> {
    let value = int_or(a, index, 1)?;
    if value < least {
        return Err(bad(format!("invalid value for parameter \"{name}\": {value}")));
    }
    Ok(value)
}

/// Where a search begins that is to begin with this character; behind the end where there is none.
fn start_at(text: &str, character: i64) -> usize {
    let index = (character - 1) as usize;
    if index > text.len() {
        return text.len() + 1;
    }
    let mut places = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    places.nth(index).unwrap_or(text.len() + 1)
}

fn replace_from(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let start = checked(a, 3, "start", 1)?;
    let which = checked(a, 4, "n", 0)?;
    // The number says how many are replaced, whatever the flags say of it.
    let options = Options { global: false, ..flags(a, 5)? };
    replaced(call, a, start_at(text(a, 0)?, start), which, options)
}

fn count_matches(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let start = checked(a, 2, "start", 1)?;
    let regex = compiled(call, text(a, 1)?, options(a, 3, Some("regexp_count"))?)?;
    let text = text(a, 0)?;
    let mut number = 0;
    each_match(call, &regex, text, start_at(text, start), |_, _| {
        number += 1;
        Ok(true)
    })?;
    Ok(Value::Int(number))
}

/// The range of a group of a match, by their numbers.
fn nth_match(
    call: &Call<'_, '_>,
    text: &str,
    regex: &::regex::Regex,
    start: i64,
    which: i64,
    group: i64,
) -> Result<Option<Range<usize>>> {
    let mut result = None;
    let mut number = 0;
    each_match(call, regex, text, start_at(text, start), |locations, range| {
        number += 1;
        if number == which {
            result = match usize::try_from(group) {
                Ok(0) => Some(range),
                Ok(group) if group < locations.len() => locations.get(group).map(|(start, end)| start..end),
                _ => None,
            };
        }
        Ok(number < which)
    })?;
    Ok(result)
}

fn instr(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let (start, which) = (checked(a, 2, "start", 1)?, checked(a, 3, "n", 1)?);
    let behind = int_or(a, 4, 0)?;
    if !(0..=1).contains(&behind) {
        return Err(bad(format!("invalid value for parameter \"endoption\": {behind}")));
    }
    let group = int_or(a, 6, 0)?;
    if group < 0 {
        return Err(bad(format!("invalid value for parameter \"subexpr\": {group}")));
    }
    let regex = compiled(call, text(a, 1)?, options(a, 5, Some("regexp_instr"))?)?;
    let text = text(a, 0)?;
    let found = nth_match(call, text, &regex, start, which, group)?;
    let place = found.map_or(0, |range| {
        let at = if behind == 1 { range.end } else { range.start };
        count(&text[..at]) as i64 + 1
    });
    Ok(Value::Int(place))
}

fn substr(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let (start, which) = (checked(a, 2, "start", 1)?, checked(a, 3, "n", 1)?);
    let group = int_or(a, 5, 0)?;
    if group < 0 {
        return Err(bad(format!("invalid value for parameter \"subexpr\": {group}")));
    }
    let regex = compiled(call, text(a, 1)?, options(a, 4, Some("regexp_substr"))?)?;
    let text = text(a, 0)?;
    let found = nth_match(call, text, &regex, start, which, group)?;
    reserve(call, Some(found.as_ref().map_or(0, Range::len)))?;
    Ok(found.map_or(Value::Null, |range| Value::text(&text[range])))
}

fn strings(values: Vec<Value>) -> Value {
    Value::Array(Arc::new(Array { element: Type::Text, values, lower: 1 }))
}

/// Bytes that the groups of a match take at most.
fn bytes_of(found: &Found) -> usize {
    found.iter().map(|range| size_of::<Value>() + range.as_ref().map_or(0, Range::len)).sum()
}

/// The groups of a match, or the whole where there are none.
fn groups(text: &str, found: &Found) -> Value {
    let groups = if found.len() > 1 { &found[1..] } else { &found[..] };
    let group =
        |range: &Option<Range<usize>>| range.clone().map_or(Value::Null, |range| Value::text(&text[range]));
    strings(groups.iter().map(group).collect())
}

fn first_match(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let options = options(a, 2, Some("regexp_match")).map_err(|error| {
        if error.to_string().contains("global") {
            return error.hint("Use the regexp_matches function instead.");
        }
        error
    })?;
    let (text, regex) = (text(a, 0)?, compiled(call, text(a, 1)?, options)?);
    let mut result = Value::Null;
    each_match(call, &regex, text, 0, |locations, _| {
        let found = ranges(locations);
        reserve(call, Some(bytes_of(&found)))?;
        result = groups(text, &found);
        Ok(false)
    })?;
    Ok(result)
}

/// The parts between matches. Empty matches at the ends of the text or right behind another match do not part.
fn split(call: &Call<'_, '_>, a: &[Value], function: &str) -> Result<Vec<Value>> {
    let options = options(a, 2, Some(function))?;
    let (text, regex) = (text(a, 0)?, compiled(call, text(a, 1)?, options)?);
    let (mut parts, mut room, mut bytes) = (Vec::new(), Room::new(call), 0);
    let (mut begin, mut previous) = (0, 0);
    each_match(call, &regex, text, 0, |_, range| {
        if range.start < text.len() && range.end > previous {
            bytes += size_of::<Value>() + range.start - begin;
            room.want(bytes)?;
            parts.push(Value::text(&text[begin..range.start]));
            begin = range.end;
        }
        previous = range.end;
        Ok(true)
    })?;
    room.want(bytes + text.len() - begin)?;
    parts.push(Value::text(&text[begin..]));
    Ok(parts)
}

fn split_to_array(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    split(call, a, "regexp_split_to_array").map(strings)
}

/// Rows of one column that are known from the start.
#[derive(Debug, Default)]
pub(super) struct Given(VecDeque<Value>);

impl Given {
    /// These rows, for which there is room.
    pub(super) fn open(values: Vec<Value>) -> Result<Box<dyn RowSource>> {
        Ok(Box::new(Given(values.into())))
    }
}

impl RowSource for Given {
    fn next(&mut self, _: &Context<'_>, out: &mut Vec<Value>) -> Result<bool> {
        let value = self.0.pop_front();
        let there = value.is_some();
        out.extend(value);
        Ok(there)
    }
}

fn open_split(call: &Call<'_, '_>, a: Vec<Value>) -> Result<Box<dyn RowSource>> {
    if a.iter().any(Value::is_null) {
        return Given::open(Vec::new());
    }
    Given::open(split(call, &a, "regexp_split_to_table")?)
}

fn open_matches(call: &Call<'_, '_>, a: Vec<Value>) -> Result<Box<dyn RowSource>> {
    let (mut rows, mut room, mut bytes) = (Vec::new(), Room::new(call), 0);
    if a.iter().any(Value::is_null) {
        return Given::open(rows);
    }
    let options = options(&a, 2, None)?;
    let (text, regex) = (text(&a, 0)?, compiled(call, text(&a, 1)?, options)?);
    each_match(call, &regex, text, 0, |locations, _| {
        let found = ranges(locations);
        bytes += 3 * size_of::<Value>() + bytes_of(&found);
        room.want(bytes)?;
        rows.push(groups(text, &found));
        Ok(options.global)
    })?;
    Given::open(rows)
}

#[rustfmt::skip]
pub(super) const OPERATORS: &[(&str, Function)] = operators! {
    "~" 1254 "textregexeq" (Text Text) Bool = is_match::<false, true>;
    "~" 79 "nameregexeq" (Name Text) Bool = is_match::<false, true>;
    "~" 1658 "bpcharregexeq" (Bpchar Text) Bool = is_match::<false, true>;
    "!~" 1256 "textregexne" (Text Text) Bool = is_match::<false, false>;
    "!~" 1252 "nameregexne" (Name Text) Bool = is_match::<false, false>;
    "!~" 1659 "bpcharregexne" (Bpchar Text) Bool = is_match::<false, false>;
    "~*" 1238 "texticregexeq" (Text Text) Bool = is_match::<true, true>;
    "~*" 1240 "nameicregexeq" (Name Text) Bool = is_match::<true, true>;
    "~*" 1656 "bpcharicregexeq" (Bpchar Text) Bool = is_match::<true, true>;
    "!~*" 1239 "texticregexne" (Text Text) Bool = is_match::<true, false>;
    "!~*" 1241 "nameicregexne" (Name Text) Bool = is_match::<true, false>;
    "!~*" 1657 "bpcharicregexne" (Bpchar Text) Bool = is_match::<true, false>;
};

#[rustfmt::skip]
pub(super) const FUNCTIONS: &[Function] = functions! {
    2073 "substring" (Text Text) Text = substring;
    6263 "regexp_like" (Text Text) Bool = like;
    6264 "regexp_like" (Text Text Text) Bool = like;
    2284 "regexp_replace" (Text Text Text) Text = replace;
    2285 "regexp_replace" (Text Text Text Text) Text = replace;
    6253 "regexp_replace" (Text Text Text Int4) Text = replace_from;
    6252 "regexp_replace" (Text Text Text Int4 Int4) Text = replace_from;
    6251 "regexp_replace" (Text Text Text Int4 Int4 Text) Text = replace_from;
    6254 "regexp_count" (Text Text) Int4 = count_matches;
    6255 "regexp_count" (Text Text Int4) Int4 = count_matches;
    6256 "regexp_count" (Text Text Int4 Text) Int4 = count_matches;
    6262 "regexp_instr" (Text Text Int4 Int4 Int4 Text Int4) Int4.optional(5) = instr;
    6269 "regexp_substr" (Text Text Int4 Int4 Text Int4) Text.optional(4) = substr;
    3396 "regexp_match" (Text Text) TextArray = first_match;
    3397 "regexp_match" (Text Text Text) TextArray = first_match;
    2767 "regexp_split_to_array" (Text Text) TextArray = split_to_array;
    2768 "regexp_split_to_array" (Text Text Text) TextArray = split_to_array;
};

pub(super) const TABLES: &[TableFunction] = &[
    TableFunction {
        oid: 2766,
        name: "regexp_split_to_table",
        arguments: &[argument!(Text), argument!(Text), argument!(Text)],
        optional: 1,
        columns: &[("regexp_split_to_table", Returns::Is(Type::Text))],
        estimate: |_| 1000.0,
        open: open_split,
    },
    TableFunction {
        oid: 2764,
        name: "regexp_matches",
        arguments: &[argument!(Text), argument!(Text), argument!(Text)],
        optional: 1,
        columns: &[("regexp_matches", Returns::Is(Type::TextArray))],
        estimate: |_| 1.0,
        open: open_matches,
    },
];
