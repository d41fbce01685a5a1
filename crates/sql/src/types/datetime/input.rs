//! Text to date and timestamp, in all the ways PostgreSQL understands.
//!
//! Text is split into tokens by its characters alone ([`tokens`]); then each token is understood by what is known already
//! ([`Reader`]): `1999-01-08`, `January 8, 1999`, `19990108T040506.5+02`, `08.01.1999 BC`, `99-Jan-08 4:05 PM Europe/Berlin`, `J2451187`.

mod fields;
mod tokens;

use super::Zone;
use super::calendar::{
    Civil, DATE_INFINITY, DATE_NEG_INFINITY, EPOCH_JULIAN, TIMESTAMP_INFINITY, TIMESTAMP_NEG_INFINITY,
    UNIX_EPOCH_DAYS, USECS_PER_DAY, USECS_PER_HOUR, USECS_PER_SECOND, date_in_range, date_of_days,
    days_in_month, days_of_date, timestamp_in_range,
};
use super::zone::{abbreviation_offset, not_recognized};
use crate::types::Type;
use crate::types::text::{DateOrder, TextStyle};
use crate::{Error, Result, SqlState};
use tokens::{Kind, Meaning, Token, Unit};

/// Reads a date, as days since 2000-01-01. Errors: 22007, 22008.
pub fn read_date(text: &str, style: &TextStyle) -> Result<i64> {
    match read(text, Type::Date, style)? {
        Moment::Time { civil, .. } => {
            let days = days_of_date(civil.year, civil.month, civil.day);
            if date_in_range(days) { Ok(days) } else { Err(out_of_range("date", text)) }
        }
        Moment::Epoch => Ok(UNIX_EPOCH_DAYS),
        Moment::Infinity => Ok(DATE_INFINITY),
        Moment::NegInfinity => Ok(DATE_NEG_INFINITY),
    }
}

/// Reads a timestamp without time zone; a zone in the text is ignored. Errors: 22007, 22008.
pub fn read_timestamp(text: &str, style: &TextStyle) -> Result<i64> {
    match read(text, Type::Timestamp, style)? {
        Moment::Time { civil, .. } => in_range(civil.to_timestamp(), text),
        Moment::Epoch => Ok(UNIX_EPOCH_DAYS * USECS_PER_DAY),
        Moment::Infinity => Ok(TIMESTAMP_INFINITY),
        Moment::NegInfinity => Ok(TIMESTAMP_NEG_INFINITY),
    }
}

/// Reads a timestamp with time zone; without a zone in the text, it is of the session's zone. Errors: 22007, 22008.
pub fn read_timestamptz(text: &str, style: &TextStyle) -> Result<i64> {
    match read(text, Type::TimestampTz, style)? {
        Moment::Time { civil, zone } => {
            let local = civil.to_timestamp();
            let utc = local.and_then(|local| match zone {
                InputZone::Session => style.zone.to_utc(local),
                InputZone::Named(zone) => zone.to_utc(local),
                InputZone::Offset(seconds) => local.checked_sub(seconds * USECS_PER_SECOND),
            });
            in_range(utc, text)
        }
        Moment::Epoch => Ok(UNIX_EPOCH_DAYS * USECS_PER_DAY),
        Moment::Infinity => Ok(TIMESTAMP_INFINITY),
        Moment::NegInfinity => Ok(TIMESTAMP_NEG_INFINITY),
    }
}

fn in_range(timestamp: Option<i64>, text: &str) -> Result<i64> {
    timestamp
        .filter(|timestamp| timestamp_in_range(*timestamp))
        .ok_or_else(|| out_of_range("timestamp", text))
}

fn out_of_range(what: &str, text: &str) -> Error {
    Error::new(SqlState::DATETIME_FIELD_OVERFLOW, format!("{what} out of range: \"{text}\""))
}

fn read(text: &str, ty: Type, style: &TextStyle) -> Result<Moment> {
    if let Some((civil, offset)) = fields::plain(text) {
        return Ok(Moment::Time { civil, zone: offset.map_or(InputZone::Session, InputZone::Offset) });
    }
    let read = tokens::split(text).and_then(|tokens| Reader::new(style).read(&tokens));
    read.map_err(|bad| match bad {
        Bad::Format => {
            let name = match ty {
                Type::Date => "date",
                Type::Timestamp => "timestamp",
                _ => "timestamp with time zone",
            };
            let message = format!("invalid input syntax for type {name}: \"{text}\"");
            Error::new(SqlState::INVALID_DATETIME_FORMAT, message)
        }
        Bad::Field | Bad::MonthOrDay => {
            let message = format!("date/time field value out of range: \"{text}\"");
            let error = Error::new(SqlState::DATETIME_FIELD_OVERFLOW, message);
            if matches!(bad, Bad::MonthOrDay) {
                error.hint("Perhaps you need a different \"datestyle\" setting.")
            } else {
                error
            }
        }
        Bad::Displacement => {
            let message = format!("time zone displacement out of range: \"{text}\"");
            Error::new(INVALID_DISPLACEMENT, message)
        }
        Bad::Zone(name) => not_recognized(&name),
    })
}

/// The offset of a zone that is a number, `+2`, as seconds east; `None` where it is a name. Errors: 22023.
pub(super) fn numeric_zone(name: &str) -> Result<Option<i64>> {
    let invalid = |message: String| Error::new(SqlState::INVALID_PARAMETER_VALUE, message);
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(invalid(format!("invalid input syntax for type numeric time zone: \"{name}\""))
            .hint("Numeric time zones must have \"-\" or \"+\" as first character."));
    }
    match fields::offset(name) {
        Ok(seconds) => Ok(Some(seconds)),
        Err(Bad::Displacement) => Err(invalid(format!("numeric time zone \"{name}\" out of range"))),
        Err(_) => Ok(None),
    }
}

const INVALID_DISPLACEMENT: SqlState = SqlState("22009");

/// Why text is no date or time.
#[derive(Debug)]
enum Bad {
    /// It does not look like one.
    Format,
    /// A field is out of range.
    Field,
    /// Month or day is, perhaps because they are in another order.
    MonthOrDay,
    /// An offset from UTC is.
    Displacement,
    /// No such time zone.
    Zone(String),
}

type Read<T> = std::result::Result<T, Bad>;

enum Moment {
    Time { civil: Civil, zone: InputZone },
    Epoch,
    Infinity,
    NegInfinity,
}

enum InputZone {
    /// None given.
    Session,
    /// Seconds east of UTC.
    Offset(i64),
    Named(Zone),
}

/// Fields that have been seen, as bits.
mod seen {
    pub(super) const YEAR: u32 = 1;
    pub(super) const MONTH: u32 = 1 << 1;
    pub(super) const DAY: u32 = 1 << 2;
    pub(super) const DAY_OF_YEAR: u32 = 1 << 3;
    pub(super) const HOUR: u32 = 1 << 4;
    pub(super) const MINUTE: u32 = 1 << 5;
    pub(super) const SECOND: u32 = 1 << 6;
    pub(super) const FRACTION: u32 = 1 << 7;
    pub(super) const ZONE: u32 = 1 << 8;
    /// DST after a zone.
    pub(super) const SUMMER: u32 = 1 << 9;
    pub(super) const HALF: u32 = 1 << 10;
    pub(super) const ERA: u32 = 1 << 11;
    pub(super) const WEEKDAY: u32 = 1 << 12;
    /// Epoch and the infinities, which make everything else meaningless.
    pub(super) const SPECIAL: u32 = 1 << 13;
    pub(super) const DATE: u32 = YEAR | MONTH | DAY;
    pub(super) const TIME: u32 = HOUR | MINUTE | SECOND | FRACTION;
}

/// What has been understood so far.
struct Reader<'a> {
    style: &'a TextStyle,
    civil: Civil,
    seen: u32,
    day_of_year: i64,
    /// The year has one or two digits only.
    short_year: bool,
    before_christ: bool,
    julian: bool,
    text_month: bool,
    /// `Some(true)` for PM.
    afternoon: Option<bool>,
    /// A label whose number comes next.
    label: Option<Unit>,
    /// Seconds east of UTC.
    offset: i64,
    zone: Option<Zone>,
    special: Option<Meaning>,
}

/// Whether the text of a date or timestamp, or of an array of them, may mean another one at another time: 'now', 'today' and their kin.
pub fn names_the_moment(text: &str) -> bool {
    // Within arrays a character may have a backslash before it.
    let plain: String =
        text.chars().filter(|c| *c != '\\').map(|character| character.to_ascii_lowercase()).collect();
    ["now", "today", "tomorrow", "yesterday"].iter().any(|word| plain.contains(word))
}

impl<'a> Reader<'a> {
    fn new(style: &'a TextStyle) -> Self {
        Reader {
            style,
            civil: Civil::default(),
            seen: 0,
            day_of_year: 0,
            short_year: false,
            before_christ: false,
            julian: false,
            text_month: false,
            afternoon: None,
            label: None,
            offset: 0,
            zone: None,
            special: None,
        }
    }

    fn read(mut self, tokens: &[Token]) -> Read<Moment> {
        for token in tokens {
            let found = match token.kind {
                Kind::Date => self.date_token(&token.text)?,
                Kind::Time => self.time_token(&token.text)?,
                Kind::Offset => {
                    self.offset = fields::offset(&token.text)?;
                    seen::ZONE
                }
                Kind::Number => match self.label.take() {
                    Some(label) => self.labelled(label, &token.text)?,
                    None => self.number_token(&token.text)?,
                },
                Kind::Word => self.word(&token.text)?,
            };
            if found & self.seen != 0 {
                return Err(Bad::Format);
            }
            self.seen |= found;
        }
        if self.label.is_some() {
            return Err(Bad::Format);
        }
        match self.special {
            Some(Meaning::Epoch) => return Ok(Moment::Epoch),
            Some(Meaning::Infinity) => return Ok(Moment::Infinity),
            Some(_) => return Ok(Moment::NegInfinity),
            None => {}
        }
        self.finish()
    }

    fn has(&self, mask: u32) -> bool {
        self.seen & mask == mask
    }

    fn date_token(&mut self, text: &str) -> Read<u32> {
        let starts_with_digit = text.starts_with(|c: char| c.is_ascii_digit());
        if matches!(self.label, Some(Unit::Julian)) {
            // A Julian day with a zone behind it.
            self.label = None;
            let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
            self.set_julian(fields::integer(&text[..end])?)?;
            self.offset = fields::offset(&text[end..])?;
            return Ok(seen::DATE | seen::TIME | seen::ZONE);
        }
        if self.label.is_none() && !self.has(seen::MONTH | seen::DAY) {
            return self.date(text);
        }
        if starts_with_digit || self.label.is_some() {
            // A time without colons, with an offset behind it.
            if !matches!(self.label.take(), None | Some(Unit::Time)) || self.has(seen::TIME) {
                return Err(Bad::Format);
            }
            let (time, _) = text.split_once('-').ok_or(Bad::Format)?;
            self.offset = fields::offset(&text[time.len()..])?;
            return Ok(self.run_together(time, self.seen)? | seen::ZONE);
        }
        self.zone = Some(Zone::look_up(text).ok_or_else(|| Bad::Zone(text.to_owned()))?);
        Ok(seen::ZONE)
    }

    fn time_token(&mut self, text: &str) -> Read<u32> {
        if !matches!(self.label.take(), None | Some(Unit::Time)) {
            return Err(Bad::Format);
        }
        let time = fields::time(text)?;
        (self.civil.hour, self.civil.minute) = (time.hour, time.minute);
        (self.civil.second, self.civil.micros) = (time.second, time.micros);
        Ok(seen::TIME)
    }

    /// A number with a label before it, such as `y2001m02d04`.
    fn labelled(&mut self, label: Unit, text: &str) -> Read<u32> {
        let (whole, fraction) = match text.find('.') {
            Some(point) => (&text[..point], Some(&text[point..])),
            None => (text, None),
        };
        if fraction.is_some() && !matches!(label, Unit::Julian | Unit::Time | Unit::Second) {
            return Err(Bad::Format);
        }
        if matches!(label, Unit::Time) {
            let found = self.run_together(text, self.seen | seen::DATE)?;
            return if found == seen::TIME { Ok(found) } else { Err(Bad::Format) };
        }
        let value = fields::integer(whole)?;
        Ok(match label {
            Unit::Year => {
                self.civil.year = value;
                seen::YEAR
            }
            Unit::Month if self.seen & seen::MONTH != 0 && self.seen & seen::HOUR != 0 => {
                self.civil.minute = value;
                seen::MINUTE
            }
            Unit::Month => {
                self.civil.month = value;
                seen::MONTH
            }
            Unit::Day => {
                self.civil.day = value;
                seen::DAY
            }
            Unit::Hour => {
                self.civil.hour = value;
                seen::HOUR
            }
            Unit::Minute => {
                self.civil.minute = value;
                seen::MINUTE
            }
            Unit::Second => {
                self.civil.second = value;
                match fraction {
                    Some(fraction) => {
                        self.civil.micros = fields::fraction(fraction)?;
                        seen::SECOND | seen::FRACTION
                    }
                    None => seen::SECOND,
                }
            }
            Unit::Julian => {
                self.set_julian(value)?;
                match fraction {
                    Some(fraction) => {
                        let day: f64 = fraction.parse().map_err(|_| Bad::Format)?;
                        let time = (day * USECS_PER_DAY as f64).round_ties_even() as i64;
                        self.set_time(time);
                        seen::DATE | seen::TIME
                    }
                    None => seen::DATE,
                }
            }
            Unit::Time | Unit::Other => return Err(Bad::Format),
        })
    }

    fn set_julian(&mut self, day: i64) -> Read<()> {
        if !(0..=i64::from(i32::MAX)).contains(&day) {
            return Err(Bad::Field);
        }
        self.set_date(day - EPOCH_JULIAN);
        self.julian = true;
        Ok(())
    }

    fn set_date(&mut self, days: i64) {
        (self.civil.year, self.civil.month, self.civil.day) = date_of_days(days);
    }

    fn set_time(&mut self, time: i64) {
        let parts = Civil::of_timestamp(time);
        (self.civil.hour, self.civil.minute) = (time / USECS_PER_HOUR, parts.minute);
        (self.civil.second, self.civil.micros) = (parts.second, parts.micros);
    }

    fn number_token(&mut self, text: &str) -> Read<u32> {
        let point = text.find('.');
        if point.is_some() && self.seen & seen::DATE == 0 {
            return self.date(text);
        }
        if point.is_some_and(|point| point > 2)
            || (text.len() >= 6 && (self.seen & seen::DATE == 0 || self.seen & seen::TIME == 0))
        {
            return self.run_together(text, self.seen);
        }
        self.number(text, self.seen)
    }

    fn word(&mut self, text: &str) -> Read<u32> {
        if let Some(seconds) = abbreviation_offset(text) {
            self.offset = seconds;
            return Ok(seen::ZONE);
        }
        let Some(meaning) = tokens::meaning(text) else {
            self.zone = Some(Zone::look_up(text).ok_or(Bad::Format)?);
            return Ok(seen::ZONE);
        };
        Ok(match meaning {
            Meaning::Ignored => 0,
            Meaning::Now => {
                let local = self.local_now();
                self.civil = Civil::of_timestamp(local);
                self.offset = (local - self.style.now) / USECS_PER_SECOND;
                self.julian = true;
                seen::DATE | seen::TIME | seen::ZONE
            }
            Meaning::Today(days) => {
                self.set_date(self.local_now().div_euclid(USECS_PER_DAY) + days);
                // The year is as it shall be, whatever its digits.
                self.julian = true;
                seen::DATE
            }
            Meaning::AllBalls => {
                self.set_time(0);
                self.offset = 0;
                seen::TIME | seen::ZONE
            }
            Meaning::Epoch | Meaning::Infinity | Meaning::NegInfinity => {
                self.special = Some(meaning);
                seen::SPECIAL
            }
            Meaning::Month(month) => return self.named_month(month),
            Meaning::Summer => {
                self.offset += 3600;
                seen::SUMMER
            }
            Meaning::Afternoon(afternoon) => {
                self.afternoon = Some(afternoon);
                seen::HALF
            }
            Meaning::BeforeChrist(before_christ) => {
                self.before_christ = before_christ;
                seen::ERA
            }
            Meaning::Weekday => seen::WEEKDAY,
            Meaning::Unit(unit) => {
                if self.label.is_some() || (matches!(unit, Unit::Time) && !self.has(seen::DATE)) {
                    return Err(Bad::Format);
                }
                self.label = Some(unit);
                0
            }
        })
    }

    fn local_now(&self) -> i64 {
        self.style.zone.to_local(self.style.now).unwrap_or(self.style.now)
    }

    /// The name of a month. A number that was taken for the month before was the day then.
    fn named_month(&mut self, month: i64) -> Read<u32> {
        let mut found = seen::MONTH;
        if self.seen & seen::MONTH != 0
            && !self.text_month
            && self.seen & seen::DAY == 0
            && (1..=31).contains(&self.civil.month)
        {
            self.civil.day = self.civil.month;
            found = seen::DAY;
        }
        self.text_month = true;
        self.civil.month = month;
        Ok(found)
    }

    /// A date with separators.
    fn date(&mut self, text: &str) -> Read<u32> {
        let mut parts = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            rest = rest.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
            let digits = rest.starts_with(|c: char| c.is_ascii_digit());
            let same = |c: char| if digits { c.is_ascii_digit() } else { c.is_ascii_alphabetic() };
            let end = rest.find(|c| !same(c)).unwrap_or(rest.len());
            if end == 0 {
                return Err(Bad::Format);
            }
            parts.push((digits, &rest[..end]));
            // The character behind is a separator, whatever it is.
            rest = rest.get(end + 1..).unwrap_or_default();
        }
        let before = self.seen;
        let mut now = before;
        for (_, part) in parts.iter().filter(|(digits, _)| !digits) {
            match tokens::meaning(part) {
                Some(Meaning::Ignored) => continue,
                Some(Meaning::Month(month)) => self.civil.month = month,
                _ => return Err(Bad::Format),
            }
            if now & seen::MONTH != 0 {
                return Err(Bad::Format);
            }
            self.text_month = true;
            now |= seen::MONTH;
        }
        for (_, part) in parts.iter().filter(|(digits, _)| *digits) {
            let found = self.number(part, now)?;
            if now & found != 0 {
                return Err(Bad::Format);
            }
            now |= found;
        }
        if now & !(seen::DAY_OF_YEAR | seen::ZONE) != seen::DATE {
            return Err(Bad::Format);
        }
        Ok(now & !before)
    }

    /// A number whose place is told by what is known already.
    fn number(&mut self, text: &str, known: u32) -> Read<u32> {
        let end = text.find('.').unwrap_or(text.len());
        let value = fields::integer(&text[..end])?;
        if end < text.len() {
            if end > 2 {
                return self.run_together(text, known | seen::DATE);
            }
            self.civil.micros = fields::fraction(&text[end..])?;
        }
        let date = known & seen::DATE;
        if text.len() == 3 && date == seen::YEAR && (1..=366).contains(&value) {
            self.day_of_year = value;
            return Ok(seen::DAY_OF_YEAR | seen::MONTH | seen::DAY);
        }
        let order = self.style.date_order;
        let year_like = text.len() >= 3 || order == DateOrder::Ymd;
        let field = match date {
            0 if year_like => seen::YEAR,
            0 if order == DateOrder::Dmy => seen::DAY,
            0 => seen::MONTH,
            seen::YEAR | seen::DAY => seen::MONTH,
            seen::MONTH if self.text_month && year_like => seen::YEAR,
            seen::MONTH => seen::DAY,
            YEAR_AND_MONTH => {
                if self.text_month && text.len() >= 3 && self.short_year {
                    // What was taken for the year was the day.
                    self.civil.day = self.civil.year;
                    self.civil.year = value;
                    self.short_year = false;
                    return Ok(seen::DAY);
                }
                seen::DAY
            }
            MONTH_AND_DAY => seen::YEAR,
            seen::DATE => return self.run_together(text, known),
            _ => return Err(Bad::Format),
        };
        match field {
            seen::YEAR => {
                self.civil.year = value;
                self.short_year = text.len() <= 2;
            }
            seen::MONTH => self.civil.month = value,
            _ => self.civil.day = value,
        }
        Ok(field)
    }

    /// A date or time without separators: `20240131`, `101530.5`.
    fn run_together(&mut self, text: &str, known: u32) -> Read<u32> {
        let digits = match text.find('.') {
            Some(point) => {
                self.civil.micros = fields::fraction(&text[point..])?;
                &text[..point]
            }
            None if known & seen::DATE != seen::DATE && text.len() >= 6 => {
                let (rest, day) = text.split_at(text.len() - 2);
                let (year, month) = rest.split_at(rest.len() - 2);
                self.civil.day = fields::integer(day)?;
                self.civil.month = fields::integer(month)?;
                self.civil.year = fields::integer(year)?;
                self.short_year |= year.len() == 2;
                return Ok(seen::DATE);
            }
            None => text,
        };
        if known & seen::TIME == seen::TIME || !matches!(digits.len(), 4 | 6) {
            return Err(Bad::Format);
        }
        self.civil.hour = fields::integer(&digits[..2])?;
        self.civil.minute = fields::integer(&digits[2..4])?;
        self.civil.second = if digits.len() == 6 { fields::integer(&digits[4..])? } else { 0 };
        Ok(seen::TIME)
    }

    /// Checks the fields and puts them together.
    fn finish(mut self) -> Read<Moment> {
        self.finish_date()?;
        if let Some(afternoon) = self.afternoon {
            if self.civil.hour > 12 {
                return Err(Bad::Field);
            }
            if !afternoon && self.civil.hour == 12 {
                self.civil.hour = 0;
            } else if afternoon && self.civil.hour != 12 {
                self.civil.hour += 12;
            }
        }
        if !self.has(seen::DATE) {
            return Err(Bad::Format);
        }
        // Summer time is a modifier of an abbreviation only.
        if self.seen & seen::SUMMER != 0 && (self.zone.is_some() || self.seen & seen::ZONE == 0) {
            return Err(Bad::Format);
        }
        let zone = match self.zone {
            Some(zone) => InputZone::Named(zone),
            None if self.seen & seen::ZONE != 0 => InputZone::Offset(self.offset),
            None => InputZone::Session,
        };
        Ok(Moment::Time { civil: self.civil, zone })
    }

    fn finish_date(&mut self) -> Read<()> {
        let civil = &mut self.civil;
        if self.seen & seen::YEAR != 0 && !self.julian {
            if self.before_christ {
                if civil.year <= 0 {
                    return Err(Bad::Field);
                }
                civil.year = 1 - civil.year;
            } else if self.short_year {
                civil.year += match civil.year {
                    0..70 => 2000,
                    70..100 => 1900,
                    _ => 0,
                };
            } else if civil.year <= 0 {
                return Err(Bad::Field);
            }
        }
        if self.seen & seen::DAY_OF_YEAR != 0 {
            let days = days_of_date(self.civil.year, 1, 1) + self.day_of_year - 1;
            self.set_date(days);
        }
        let civil = &self.civil;
        if (self.seen & seen::MONTH != 0 && !(1..=12).contains(&civil.month))
            || (self.seen & seen::DAY != 0 && !(1..=31).contains(&civil.day))
        {
            return Err(Bad::MonthOrDay);
        }
        if self.has(seen::DATE) && civil.day > days_in_month(civil.year, civil.month) {
            return Err(Bad::Field);
        }
        Ok(())
    }
}

const YEAR_AND_MONTH: u32 = seen::YEAR | seen::MONTH;
const MONTH_AND_DAY: u32 = seen::MONTH | seen::DAY;
