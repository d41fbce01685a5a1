//! Single fields of a date or time.

use super::{Bad, Read};
use crate::types::datetime::Civil;
use crate::types::datetime::calendar::{USECS_PER_DAY, days_in_month};

/// A number of 32 bits.
pub(super) fn integer(text: &str) -> Read<i64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Bad::Format);
    }
    text.parse::<i32>().map(i64::from).map_err(|_| Bad::Field)
}

/// `.5` as microseconds, rounded; 1000000 where it rounds up to a second.
pub(super) fn fraction(text: &str) -> Read<i64> {
    let digits = text.strip_prefix('.').ok_or(Bad::Format)?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Bad::Format);
    }
    if digits.len() <= 6 {
        let value = digits.bytes().fold(0, |value, digit| value * 10 + i64::from(digit - b'0'));
        return Ok(value * 10_i64.pow(6 - digits.len() as u32));
    }
    let value: f64 = text.parse().map_err(|_| Bad::Format)?;
    Ok((value * 1e6).round_ties_even() as i64)
}

/// `h:mm`, `h:mm:ss`, `h:mm:ss.s` or `mm:ss.s`
pub(super) fn time(text: &str) -> Read<Civil> {
    let mut parts = text.split(':');
    let mut next = || parts.next();
    let hour = integer(next().ok_or(Bad::Format)?)?;
    let minute = next().ok_or(Bad::Format)?;
    let second = next();
    if next().is_some() {
        return Err(Bad::Format);
    }
    let split = |text: &str| -> Read<(i64, i64)> {
        match text.find('.') {
            Some(point) => Ok((integer(&text[..point])?, fraction(&text[point..])?)),
            None => Ok((integer(text)?, 0)),
        }
    };
    let time = match second {
        Some(second) => {
            let (second, micros) = split(second)?;
            Civil { hour, minute: integer(minute)?, second, micros, ..Civil::default() }
        }
        None if minute.contains('.') => {
            let (second, micros) = split(minute)?;
            Civil { hour: 0, minute: hour, second, micros, ..Civil::default() }
        }
        None => Civil { hour, minute: integer(minute)?, ..Civil::default() },
    };
    if time.minute > 59 || time.second > 60 || time.hour > 24 || time.time() > USECS_PER_DAY {
        return Err(Bad::Field);
    }
    Ok(time)
}

/// An offset from UTC, `+hh`, `-hhmm`, `+hh:mm:ss`, as seconds east.
pub(super) fn offset(text: &str) -> Read<i64> {
    let sign = match text.as_bytes().first() {
        Some(b'+') => 1,
        Some(b'-') => -1,
        _ => return Err(Bad::Format),
    };
    let mut rest = &text[1..];
    let mut number = || -> Read<i64> {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let value = match &rest[..end] {
            // An offset may end in a colon.
            "" => 0,
            digits => digits.parse::<i32>().map(i64::from).map_err(|_| Bad::Displacement)?,
        };
        let colon = rest[end..].starts_with(':');
        rest = &rest[end + usize::from(colon)..];
        if colon { Ok(value) } else { Ok(value | LAST) }
    };
    let (mut hours, mut minutes, mut seconds) = (number()?, 0, 0);
    if hours & LAST == 0 {
        minutes = number()?;
        if minutes & LAST == 0 {
            seconds = number()?;
        }
    } else if rest.is_empty() && text.len() > 3 {
        hours &= !LAST;
        (hours, minutes) = (hours / 100, hours % 100);
    }
    let [hours, minutes, seconds] = [hours, minutes, seconds].map(|value| value & !LAST);
    if hours > 15 || minutes > 59 || seconds > 59 {
        return Err(Bad::Displacement);
    }
    if !rest.is_empty() {
        return Err(Bad::Format);
    }
    Ok(sign * (hours * 3600 + minutes * 60 + seconds))
}

/// Marks a number without a colon behind it.
const LAST: i64 = 1 << 40;

/// The usual form, quickly: `yyyy-mm-dd`, `yyyy-mm-dd hh:mm:ss` with up to six digits of fraction, and perhaps an offset `+hh` or
/// `+hh:mm` behind it. `None` for whatever is not certain.
pub(super) fn plain(text: &str) -> Option<(Civil, Option<i64>)> {
    let bytes = text.as_bytes();
    let number = |range: std::ops::Range<usize>| -> Option<i64> {
        bytes
            .get(range)?
            .iter()
            .try_fold(0, |value, byte| byte.is_ascii_digit().then(|| value * 10 + i64::from(byte - b'0')))
    };
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    if bytes[4] != b'-' || bytes[7] != b'-' || year == 0 || !(1..=12).contains(&month) || day == 0 {
        return None;
    }
    if day > days_in_month(year, month) {
        return None;
    }
    let civil = Civil { year, month, day, ..Civil::default() };
    if bytes.len() == 10 {
        return Some((civil, None));
    }
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    if !matches!(bytes[10], b' ' | b'T') || bytes[13] != b':' || bytes[16] != b':' {
        return None;
    }
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let (mut micros, mut end) = (0, 19);
    if bytes.get(19) == Some(&b'.') {
        let digits = bytes[20..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if !(1..=6).contains(&digits) {
            return None;
        }
        end = 20 + digits;
        micros = number(20..end)? * 10_i64.pow(6 - digits as u32);
    }
    let civil = Civil { hour, minute, second, micros, ..civil };
    let sign = match bytes.get(end) {
        None => return Some((civil, None)),
        Some(b'+') => 1,
        Some(b'-') => -1,
        Some(_) => return None,
    };
    let hours = number(end + 1..end + 3)?;
    let minutes = match bytes.len() - end {
        3 => 0,
        6 if bytes[end + 3] == b':' => number(end + 4..end + 6)?,
        _ => return None,
    };
    (hours <= 15 && minutes <= 59).then_some((civil, Some(sign * (hours * 60 + minutes) * 60)))
}
