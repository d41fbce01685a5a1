//! Times of the day at which something may run.

use std::fmt;

const DAY: u16 = 24 * 60;

/// Times of the day, in minutes from midnight: each from its begin to before its end, which may lie behind midnight. At least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Windows(Vec<(u16, u16)>);

impl Windows {
    /// Reads `22:00-06:00`, or several such, separated by commas.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let windows = text.split(',').map(|part| window(part.trim())).collect::<Result<_, _>>()?;
        Ok(Windows(windows))
    }

    /// Whether a minute of the day lies in one of them.
    pub fn contains(&self, minute: u16) -> bool {
        self.0.iter().any(|&(from, to)| match from < to {
            true => (from..to).contains(&minute),
            false => minute >= from || minute < to,
        })
    }
}

impl fmt::Display for Windows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (from, to)) in self.0.iter().enumerate() {
            let comma = if number > 0 { ", " } else { "" };
            write!(f, "{comma}{:02}:{:02}-{:02}:{:02}", from / 60, from % 60, to / 60, to % 60)?;
        }
        Ok(())
    }
}

fn window(text: &str) -> Result<(u16, u16), String> {
    let parts = text.split_once('-').and_then(|(from, to)| Some((minute(from)?, minute(to)?)));
    match parts {
        Some((from, _)) if from == DAY => Err(format!("{text:?} begins at the end of the day; write 00:00")),
        Some((from, to)) if from == to => {
            Err(format!("{text:?} is no time at all; leave it empty for any time"))
        }
        Some(parts) => Ok(parts),
        None => Err(format!("{text:?} is no time of the day, such as 22:00-06:00")),
    }
}

/// `hh:mm`, up to 24:00.
fn minute(text: &str) -> Option<u16> {
    let (hours, minutes) = text.trim().split_once(':')?;
    let number = |text: &str| {
        let is_number = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u16>().ok().filter(|_| is_number)
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    let at = hours * 60 + minutes;
    (minutes < 60 && at <= DAY).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_may_go_over_midnight() {
        let night = Windows::parse("22:00-6:00").unwrap();
        assert_eq!(night.to_string(), "22:00-06:00");
        let is_in = |minute: u16| night.contains(minute);
        assert!(is_in(22 * 60) && is_in(23 * 60 + 59) && is_in(0) && is_in(359));
        assert!(!is_in(360) && !is_in(12 * 60) && !is_in(22 * 60 - 1));
        let two = Windows::parse("12:00-13:30, 20:15-24:00").unwrap();
        assert_eq!(two.to_string(), "12:00-13:30, 20:15-24:00");
        assert!(two.contains(720) && !two.contains(810) && two.contains(DAY - 1) && !two.contains(0));
    }

    #[test]
    fn what_is_no_window_is_said_so() {
        for text in [
            "",
            "22-6",
            "22:00",
            "25:00-26:00",
            "10:61-11:00",
            "a:b-c:d",
            "+1:00-2:00",
            "1:00-1:00",
            "24:00-2:00",
        ] {
            assert!(Windows::parse(text).is_err(), "{text:?}");
        }
    }
}
