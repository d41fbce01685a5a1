//! Sizes and durations as users write and read them.

use std::time::Duration;

/// A size or duration that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a {what}: {hint}")]
pub struct UnitError {
    text: String,
    what: &'static str,
    hint: &'static str,
}

const SIZES: [(&str, u64); 10] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

/// Reads a size such as `512MiB`, `1.5GiB` or `4096`; without a unit it is in bytes.
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    let error =
        || UnitError { text: text.to_owned(), what: "size", hint: "write for example 512MiB, 2GiB or 4096" };
    let (number, unit) = split(text).ok_or_else(error)?;
    let factor = match unit {
        "" => 1,
        _ => SIZES.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).ok_or_else(error)?.1,
    };
    scale(number, factor).ok_or_else(error)
}

/// Reads a duration such as `10s`, `1.5ms`, `2min`; a unit is required.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let error = || UnitError {
        text: text.to_owned(),
        what: "duration",
        hint: "write for example 10s, 500ms, 5min, 2h or 1d",
    };
    let (number, unit) = split(text).ok_or_else(error)?;
    let nanos = match unit {
        "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "min" | "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        _ => return Err(error()),
    };
    scale(number, nanos).map(Duration::from_nanos).ok_or_else(error)
}

fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    Some((number, text[end..].trim()))
}

fn scale(number: f64, factor: u64) -> Option<u64> {
    let value = (number * factor as f64).round();
    (value.is_finite() && (0.0..9e18).contains(&value)).then_some(value as u64)
}

/// Writes a size with a binary unit and at most one decimal: `8KiB`, `1.5GiB`.
pub fn format_size(bytes: u64) -> String {
    let (name, factor) = SIZES[..5].iter().rev().find(|(_, factor)| bytes >= *factor).unwrap_or(&SIZES[0]);
    let value = bytes as f64 / *factor as f64;
    if (value - value.round()).abs() < 0.05 {
        format!("{value:.0}{name}")
    } else {
        format!("{value:.1}{name}")
    }
}

/// Writes a duration with the largest unit that leaves no fraction: `10s`, `1500ms`. Parts of a microsecond are told only where there is nothing else.
pub fn format_duration(duration: Duration) -> String {
    let micros = duration.as_micros();
    for (factor, unit) in [(3_600_000_000, "h"), (60_000_000, "min"), (1_000_000, "s"), (1000, "ms")] {
        if micros >= factor && micros.is_multiple_of(factor) {
            return format!("{}{unit}", micros / factor);
        }
    }
    match (micros, duration.subsec_nanos()) {
        (0, 0) => "0s".to_owned(),
        (0, nanos) => format!("{nanos}ns"),
        _ => format!("{micros}us"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        assert_eq!(parse_size("512MiB").unwrap(), 512 << 20);
        assert_eq!(parse_size("1.5 GiB").unwrap(), 3 << 29);
        assert_eq!(parse_size("4096").unwrap(), 4096);
        assert_eq!(parse_size("1mb").unwrap(), 1_000_000);
        for wrong in ["", "MiB", "12 parsecs", "-1", "1e400GiB", "99999999TiB"] {
            assert!(parse_size(wrong).unwrap_err().to_string().contains("size"), "{wrong}");
        }
        assert_eq!(format_size(8192), "8KiB");
        assert_eq!(format_size(3 << 29), "1.5GiB");
        assert_eq!(format_size(0), "0B");
    }

    #[test]
    fn durations_are_read() {
        assert_eq!(parse_duration("1.5ms").unwrap(), Duration::from_micros(1500));
        assert_eq!(parse_duration("2min").unwrap(), Duration::from_secs(120));
        assert!(parse_duration("10").is_err());
        for text in ["10s", "1500ms", "2min", "90min", "7us", "999ns", "0s"] {
            assert_eq!(format_duration(parse_duration(text).unwrap()), text);
        }
    }
}
