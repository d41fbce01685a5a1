//! `to_date` and `to_timestamp`.

use super::pattern::{Field, Key, Node, parse};
use super::{MONTHS, ROMAN_MONTHS, WEEKDAYS};
use crate::types::datetime::calendar::{
    Civil, EPOCH_JULIAN, USECS_PER_SECOND, date_in_range, date_of_days, days_in_month, days_of_date,
    days_of_iso_week, timestamp_in_range,
};
use crate::types::datetime::{Zone, fit_timestamp};
use crate::types::{Modifier, NO_MODIFIER};
use crate::{Error, Result, SqlState};
use std::num::IntErrorKind;

/// SQL's `to_date`. Errors: 22007, 22008.
pub fn to_date(text: &str, pattern: &str) -> Result<i64> {
    let Moment { civil, .. } = Reader::read(text, pattern)?;
    let days = days_of_date(civil.year, civil.month, civil.day);
    if !date_in_range(days) {
        let message = format!("date out of range: \"{text}\"");
        return Err(Error::new(SqlState::DATETIME_FIELD_OVERFLOW, message));
    }
    Ok(days)
}

/// SQL's `to_timestamp(text, pattern)`: in the session's zone, unless the text has an offset. Errors: 22007, 22008.
pub fn to_timestamp(text: &str, pattern: &str, zone: &Zone) -> Result<i64> {
    let Moment { civil, offset, digits } = Reader::read(text, pattern)?;
    civil
        .to_timestamp()
        .and_then(|local| match offset {
            Some(seconds) => local.checked_sub(seconds * USECS_PER_SECOND),
            None => zone.to_utc(local),
        })
        .map(|timestamp| fit_timestamp(timestamp, digits))
        .filter(|timestamp| timestamp_in_range(*timestamp))
        .ok_or_else(|| Error::new(SqlState::DATETIME_FIELD_OVERFLOW, "timestamp out of range"))
}

/// What a text says.
struct Moment {
    civil: Civil,
    /// Seconds east of UTC, where given.
    offset: Option<i64>,
    /// Digits behind the second that the pattern asks for.
    digits: Modifier,
}

fn invalid(message: String) -> Error {
    Error::new(SqlState::INVALID_DATETIME_FORMAT, message)
}

const FILL_HINT: &str = "If your source string is not fixed-width, try using the \"FM\" modifier.";

/// What has been read, by field.
#[derive(Default)]
struct Fields {
    hour: Option<i64>,
    clock12: bool,
    afternoon: Option<bool>,
    minute: Option<i64>,
    second: Option<i64>,
    second_of_day: Option<i64>,
    micros: Option<i64>,
    /// Digits of the last of FF1 to FF6.
    digits: Option<u32>,
    millis: Option<i64>,
    weekday: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    month: Option<i64>,
    year: Option<i64>,
    /// Digits of the year.
    year_digits: u32,
    before_christ: bool,
    century: Option<i64>,
    week: Option<i64>,
    week_of_month: Option<i64>,
    julian: Option<i64>,
    offset_negative: bool,
    offset_hour: Option<i64>,
    offset_minute: Option<i64>,
    /// Whether the fields of the date are those of ISO 8601's weeks.
    iso: Option<bool>,
}

struct Reader<'a> {
    rest: &'a str,
    exact: bool,
    /// Whether a minus stands before the field, that the pattern has not asked for.
    minus: bool,
    fields: Fields,
}

impl<'a> Reader<'a> {
    fn read(text: &'a str, pattern: &str) -> Result<Moment> {
        let nodes = parse(pattern);
        let mut reader = Reader { rest: text, exact: false, minus: false, fields: Fields::default() };
        // Characters that were skipped and the pattern has not asked for yet.
        let mut extra = 0_i64;
        for (index, node) in nodes.iter().enumerate() {
            if reader.rest.is_empty() {
                break;
            }
            if !reader.exact && (index == 0 || matches!(node, Node::Field(_))) {
                extra += reader.skip_space();
            }
            match node {
                Node::Space(_) | Node::Separator(_) if !reader.exact => {
                    extra -= 1;
                    if reader.rest.starts_with(|c: char| is_space(c) || c.is_ascii_punctuation()) {
                        reader.rest = &reader.rest[1..];
                        extra += 1;
                    }
                }
                Node::Literal(_) if !reader.exact && extra > 0 => extra -= 1,
                Node::Space(_) | Node::Separator(_) | Node::Literal(_) => reader.skip_one(),
                Node::Field(field) => {
                    // A minus that was taken for a separator belongs to an offset.
                    let read = &text[..text.len() - reader.rest.len()];
                    reader.minus = extra > 0 && read.ends_with('-');
                    reader.field(*field, nodes.get(index + 1))?;
                    if field.ordinal.is_some() {
                        // The ending's two characters, whatever they are.
                        reader.skip_one();
                        reader.skip_one();
                    }
                    if !reader.exact {
                        extra = reader.skip_space();
                    }
                }
            }
        }
        reader.fields.finish(text)
    }

    fn skip_one(&mut self) {
        let mut characters = self.rest.chars();
        characters.next();
        self.rest = characters.as_str();
    }

    fn skip_space(&mut self) -> i64 {
        let trimmed = self.rest.trim_start_matches(is_space);
        let skipped = self.rest.len() - trimmed.len();
        self.rest = trimmed;
        skipped as i64
    }

    /// A number of `length` digits, or as many as there are where no digit can follow.
    fn number(&mut self, field: Field, length: usize, next: Option<&Node>) -> Result<(i64, usize)> {
        let name = field.name;
        self.skip_space();
        let open = field.fill
            || field.ordinal.is_some()
            || match next {
                None => true,
                Some(Node::Field(next)) => !next.key.is_digits(),
                Some(Node::Literal(c) | Node::Separator(c) | Node::Space(c)) => !c.is_ascii_digit(),
            };
        let shown: String = self.rest.chars().take(length).collect();
        let not_a_number = || {
            invalid(format!("invalid value \"{shown}\" for \"{name}\"")).detail("Value must be an integer.")
        };
        let digits_of = |text: &str| {
            let sign = usize::from(text.starts_with(['+', '-']));
            let digits = text[sign..].bytes().take_while(u8::is_ascii_digit).count();
            if digits == 0 { 0 } else { sign + digits }
        };
        let used = if open {
            digits_of(self.rest)
        } else {
            let available = shown.chars().count();
            if available < length {
                return Err(invalid(format!("source string too short for \"{name}\" formatting field"))
                    .detail(format!("Field requires {length} characters, but only {available} remain."))
                    .hint(FILL_HINT));
            }
            let used = digits_of(&shown);
            if used > 0 && used < length {
                return Err(invalid(format!("invalid value \"{shown}\" for \"{name}\""))
                    .detail(format!("Field requires {length} characters, but only {used} could be parsed."))
                    .hint(FILL_HINT));
            }
            used
        };
        if used == 0 {
            return Err(not_a_number());
        }
        let value = self.rest[..used].parse::<i32>().map_err(|_| {
            let message = format!("value for \"{name}\" in source string is out of range");
            Error::new(SqlState::DATETIME_FIELD_OVERFLOW, message).detail(format!(
                "Value must be in the range {} to {}.",
                i32::MIN,
                i32::MAX
            ))
        })?;
        self.rest = &self.rest[used..];
        Ok((i64::from(value), used))
    }

    /// One of some words, in any case, as its index.
    fn word(&mut self, field: Field, words: &[&str]) -> Result<usize> {
        let found = words.iter().position(|word| {
            self.rest.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
        });
        let Some(index) = found else {
            let end = self.rest.find(is_space).unwrap_or(self.rest.len());
            let shown = &self.rest[..end];
            return Err(invalid(format!("invalid value \"{shown}\" for \"{}\"", field.name))
                .detail("The given value did not match any of the allowed values for this field."));
        };
        self.rest = &self.rest[words[index].len()..];
        Ok(index)
    }

    fn field(&mut self, field: Field, next: Option<&Node>) -> Result<()> {
        self.check_convention(field.key)?;
        match field.key {
            Key::Exact => self.exact = true,
            Key::Era { points } => {
                let words = if points { ["B.C.", "A.D."] } else { ["BC", "AD"] };
                self.fields.before_christ = self.word(field, &words)? == 0;
            }
            Key::Half { points } => {
                let words = if points { ["A.M.", "P.M."] } else { ["AM", "PM"] };
                self.fields.afternoon = Some(self.word(field, &words)? == 1);
                self.fields.clock12 = true;
            }
            Key::Day { short } => {
                let words = names(&WEEKDAYS, short);
                let index = self.word(field, &words)? as i64;
                set_as(&mut self.fields.weekday, (index, index + 1), field)?;
            }
            Key::Month { short } => {
                let words = names(&MONTHS, short);
                let index = self.word(field, &words)? as i64;
                set(&mut self.fields.month, index + 1, field)?;
            }
            Key::RomanMonth => {
                // Longer ones first: VIII begins with V.
                let mut words = ROMAN_MONTHS;
                words.sort_by_key(|word| std::cmp::Reverse(word.len()));
                let index = self.word(field, &words)?;
                let month = ROMAN_MONTHS.iter().position(|word| *word == words[index]).unwrap_or(0) as i64;
                set(&mut self.fields.month, month + 1, field)?;
            }
            Key::OffsetHour => {
                match self.rest.as_bytes().first() {
                    Some(sign @ (b'+' | b'-' | b' ')) => {
                        self.fields.offset_negative = *sign == b'-';
                        self.rest = &self.rest[1..];
                    }
                    _ => self.fields.offset_negative = self.minus,
                }
                let (value, _) = self.number(field, 2, next)?;
                set(&mut self.fields.offset_hour, value, field)?;
            }
            Key::Offset | Key::Zone => {
                let message = format!("formatting field \"{}\" is only supported in to_char", field.name);
                return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message));
            }
            Key::YearWithComma => self.year_with_comma(field)?,
            _ => self.number_field(field, next)?,
        }
        Ok(())
    }

    fn number_field(&mut self, field: Field, next: Option<&Node>) -> Result<()> {
        let length = match field.key {
            Key::DayOfYear | Key::IsoDayOfYear | Key::Millis => 3,
            Key::SecondOfDay => 5,
            Key::Julian => usize::MAX,
            Key::Weekday | Key::IsoWeekday | Key::WeekOfMonth | Key::Quarter => 1,
            Key::Fraction(digits) | Key::Year(digits) | Key::IsoYear(digits) => digits as usize,
            _ => 2,
        };
        let (value, used) = if length == usize::MAX {
            let open = Field { fill: true, ..field };
            self.number(open, 1, next)?
        } else {
            self.number(field, length, next)?
        };
        let fields = &mut self.fields;
        match field.key {
            Key::Hour24 => set(&mut fields.hour, value, field),
            Key::Hour12 => {
                fields.clock12 = true;
                set(&mut fields.hour, value, field)
            }
            Key::Minute => set(&mut fields.minute, value, field),
            Key::Second => set(&mut fields.second, value, field),
            Key::SecondOfDay => set(&mut fields.second_of_day, value, field),
            Key::Fraction(digits) => {
                // US has six digits, too, but says nothing of the result.
                if field.name.starts_with(['F', 'f']) {
                    fields.digits = Some(digits);
                }
                let micros = match u32::try_from(used) {
                    Ok(used @ 0..=6) => value * 10_i64.pow(6 - used),
                    _ => value,
                };
                set_as(&mut fields.micros, (value, micros), field)
            }
            Key::Millis => {
                // More digits than three are as many thousandths: too many.
                let scale = [1, 100, 10].get(used).copied().unwrap_or(1);
                set_as(&mut fields.millis, (value, value * scale), field)
            }
            Key::DayOfYear | Key::IsoDayOfYear => set(&mut fields.day_of_year, value, field),
            Key::DayOfMonth => set(&mut fields.day, value, field),
            Key::Weekday => set(&mut fields.weekday, value, field),
            // Monday is 1, as everywhere here Sunday is.
            Key::IsoWeekday => {
                let weekday = if value >= 7 { 1 } else { value + 1 };
                set_as(&mut fields.weekday, (value, weekday), field)
            }
            Key::Week | Key::IsoWeek => set(&mut fields.week, value, field),
            Key::WeekOfMonth => set(&mut fields.week_of_month, value, field),
            Key::MonthNumber => set(&mut fields.month, value, field),
            Key::Julian => set(&mut fields.julian, value, field),
            Key::Century => set(&mut fields.century, value, field),
            Key::OffsetMinute => set(&mut fields.offset_minute, value, field),
            Key::Year(digits) | Key::IsoYear(digits) => {
                fields.year_digits = digits;
                let year = if digits < 4 && used < 4 { full_year(value) } else { value };
                set_as(&mut fields.year, (value, year), field)
            }
            // The quarter says nothing about the day.
            _ => Ok(()),
        }
    }

    fn year_with_comma(&mut self, field: Field) -> Result<()> {
        let comma = self.rest.find(',').filter(|comma| *comma > 0);
        let parsed = comma.and_then(|comma| {
            let thousands = match self.rest[..comma].parse::<i64>() {
                Err(error) if *error.kind() == IntErrorKind::PosOverflow => i64::MAX,
                Err(error) if *error.kind() == IntErrorKind::NegOverflow => i64::MIN,
                parsed => parsed.ok()?,
            };
            let after = &self.rest[comma + 1..];
            let digits = after.bytes().take(3).take_while(u8::is_ascii_digit).count();
            let rest: i64 = after[..digits].parse().ok()?;
            Some((thousands.saturating_mul(1000).saturating_add(rest), comma + 1 + digits))
        });
        let Some((year, used)) = parsed else {
            return Err(invalid("invalid input string for \"Y,YYY\"".to_owned()));
        };
        if i32::try_from(year).is_err() {
            let message = "value for \"Y,YYY\" in source string is out of range";
            return Err(Error::new(SqlState::DATETIME_FIELD_OVERFLOW, message));
        }
        self.rest = &self.rest[used..];
        self.fields.year_digits = 4;
        set(&mut self.fields.year, year, field)
    }

    /// Weeks by ISO 8601 and months do not go together.
    fn check_convention(&mut self, key: Key) -> Result<()> {
        let iso = match key {
            Key::IsoDayOfYear | Key::IsoWeekday | Key::IsoWeek | Key::IsoYear(_) => true,
            Key::Day { .. }
            | Key::Century
            | Key::DayOfYear
            | Key::DayOfMonth
            | Key::Weekday
            | Key::MonthNumber
            | Key::Month { .. }
            | Key::RomanMonth
            | Key::Week
            | Key::WeekOfMonth
            | Key::Year(_)
            | Key::YearWithComma => false,
            _ => return Ok(()),
        };
        // The name of a day fits into both.
        if matches!(key, Key::Day { .. }) {
            return Ok(());
        }
        if self.fields.iso.is_some_and(|before| before != iso) {
            return Err(invalid("invalid combination of date conventions".to_owned())
                .hint("Do not mix Gregorian and ISO week date conventions in a formatting template."));
        }
        self.fields.iso = Some(iso);
        Ok(())
    }
}

fn names<'n>(names: &[&'n str], short: bool) -> Vec<&'n str> {
    names.iter().map(|name| if short { &name[..3] } else { *name }).collect()
}

fn is_space(character: char) -> bool {
    matches!(character, ' ' | '\t'..='\r')
}

/// A year of fewer than four digits: the one nearest to 2020.
fn full_year(year: i64) -> i64 {
    match year {
        ..70 => year + 2000,
        70..100 => year + 1900,
        100..520 => year + 2000,
        520..1000 => year + 1000,
        _ => year,
    }
}

/// A field may be given twice, with one value.
fn set(place: &mut Option<i64>, value: i64, field: Field) -> Result<()> {
    set_as(place, (value, value), field)
}

/// The same of a value that is read as one number and kept as another: PostgreSQL compares what is read with what was kept.
fn set_as(place: &mut Option<i64>, (value, kept): (i64, i64), field: Field) -> Result<()> {
    if place.is_some_and(|before| before != value && before != 0) {
        let message = format!("conflicting values for \"{}\" field in formatting string", field.name);
        let error = invalid(message);
        return Err(error.detail("This value contradicts a previous setting for the same field type."));
    }
    *place = Some(kept);
    Ok(())
}

impl Fields {
    fn finish(&self, text: &str) -> Result<Moment> {
        let out_of_range = || {
            let message = format!("date/time field value out of range: \"{text}\"");
            Error::new(SqlState::DATETIME_FIELD_OVERFLOW, message)
        };
        let mut civil = self.time()?;
        (civil.year, civil.month, civil.day) = self.date()?;
        // Of a year that is not given nobody knows how long its months are: a day behind the month's end is one of the next month.
        let days = if self.knows_year() { days_in_month(civil.year, civil.month) } else { 31 };
        let valid = (1..=12).contains(&civil.month)
            && (1..=days).contains(&civil.day)
            && (0..24).contains(&civil.hour)
            && (0..60).contains(&civil.minute)
            && (0..60).contains(&civil.second)
            && (0..USECS_PER_SECOND).contains(&civil.micros);
        if !valid {
            return Err(out_of_range());
        }
        let offset = if self.offset_hour.is_some() || self.offset_minute.is_some() {
            let (hours, minutes) = (self.offset_hour.unwrap_or(0), self.offset_minute.unwrap_or(0));
            if !(0..=15).contains(&hours) || !(0..60).contains(&minutes) {
                let message = format!("time zone displacement out of range: \"{text}\"");
                return Err(Error::new(SqlState("22009"), message));
            }
            let seconds = (hours * 60 + minutes) * 60;
            Some(if self.offset_negative { -seconds } else { seconds })
        } else {
            None
        };
        Ok(Moment { civil, offset, digits: self.digits.map_or(NO_MODIFIER, |digits| digits as Modifier) })
    }

    /// Whether what is given says of what year the day is.
    fn knows_year(&self) -> bool {
        let week = self.week.filter(|_| self.iso == Some(true));
        [self.year, self.century, self.julian, week].iter().any(|field| field.is_some_and(|value| value != 0))
    }

    fn time(&self) -> Result<Civil> {
        let mut civil = Civil::default();
        if let Some(seconds) = self.second_of_day {
            (civil.hour, civil.minute, civil.second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        }
        civil.second = self.second.unwrap_or(civil.second);
        civil.minute = self.minute.unwrap_or(civil.minute);
        civil.micros = self.millis.unwrap_or(0) * 1000 + self.micros.unwrap_or(0);
        if let Some(hour) = self.hour {
            civil.hour = hour;
        }
        if self.clock12 {
            if !(1..=12).contains(&civil.hour) {
                let message = format!("hour \"{}\" is invalid for the 12-hour clock", civil.hour);
                return Err(invalid(message).hint("Use the 24-hour clock, or give an hour between 1 and 12."));
            }
            if self.afternoon == Some(true) && civil.hour < 12 {
                civil.hour += 12;
            } else if self.afternoon != Some(true) && civil.hour == 12 {
                civil.hour = 0;
            }
        }
        Ok(civil)
    }

    /// Year with 1 BC as 0, month and day, as PostgreSQL finds them: what stands below replaces what was found above. What is 0 counts as not given.
    fn date(&self) -> Result<(i64, i64, i64)> {
        let given = |field: Option<i64>| field.filter(|value| *value != 0);
        let (mut year, mut month, mut day) = (self.internal_year(), 1, 1);
        let mut day_of_year = given(self.day_of_year);
        let is_iso = self.iso == Some(true);
        if let Some(julian) = given(self.julian) {
            (year, month, day) = date_of_days(julian - EPOCH_JULIAN);
        }
        match given(self.week) {
            Some(week) if is_iso => {
                // Monday is the first day, and whatever is none the last.
                let weekday = given(self.weekday).map_or(0, |day| if day > 1 { day - 2 } else { 6 });
                (year, month, day) = date_of_days(days_of_iso_week(year, week) + weekday);
            }
            Some(week) => day_of_year = Some((week - 1) * 7 + 1),
            None => {}
        }
        let first_of_week = given(self.week_of_month).map(|week| (week - 1) * 7 + 1);
        day = first_of_week.or(given(self.day)).unwrap_or(day);
        month = given(self.month).unwrap_or(month);
        if let Some(day_of_year) = day_of_year
            && (month <= 1 || day <= 1)
        {
            if year == 0 && !self.before_christ {
                let message = "cannot calculate day of year without year information";
                return Err(invalid(message.to_owned()));
            }
            if is_iso {
                return Ok(date_of_days(days_of_iso_week(year, 1) + day_of_year - 1));
            }
            // The month that it is in, 13 behind the year's end; of these two, only what is not given otherwise.
            let (mut found, mut before) = (1, 0);
            while found <= 12 && day_of_year > before + days_in_month(year, found) {
                before += days_in_month(year, found);
                found += 1;
            }
            month = if month <= 1 { found } else { month };
            day = if day <= 1 { day_of_year - before } else { day };
        }
        Ok((year, month, day))
    }

    /// With years before Christ as 0 (1 BC), -1, and so on. A negative number before Christ is none again.
    fn internal_year(&self) -> i64 {
        let given = |number: Option<i64>| number.filter(|&number| number != 0);
        let signed = |number: i64| if self.before_christ { -number } else { number };
        match (given(self.year), given(self.century)) {
            (Some(year), Some(century)) if self.year_digits <= 2 => {
                // The year within the century, whose last one ends in 00.
                match (signed(century), year % 100) {
                    (century, 0) => century * 100 + i64::from(century < 0),
                    (century @ 0.., year) => (century - 1) * 100 + year,
                    (century, year) => (century + 1) * 100 - year + 1,
                }
            }
            (Some(year), _) => {
                let year = signed(year);
                year + i64::from(year < 0)
            }
            (None, Some(century)) => match signed(century) {
                century @ 0.. => (century - 1) * 100 + 1,
                century => century * 100 + 1,
            },
            (None, None) => 0,
        }
    }
}
