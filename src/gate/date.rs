//! A day of the calendar, for entries that expire.

use std::fmt;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

/// A day in the Gregorian calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Date {
    year: u16,
    month: u8,
    day: u8,
}

impl Date {
    /// The day with these numbers, if there is one.
    #[must_use]
    pub fn new(year: u16, month: u8, day: u8) -> Option<Self> {
        let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        let days = match month {
            2 => 28 + u8::from(leap),
            4 | 6 | 9 | 11 => 30,
            1..=12 => 31,
            _ => return None,
        };
        (1..=days).contains(&day).then_some(Self { year, month, day })
    }

    /// Today in UTC.
    #[must_use]
    pub fn today() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::of_day(since.as_secs() / 86_400)
    }

    /// The day so many days after 1970-01-01. Eras of 400 years that begin in March, as in Howard Hinnant's
    /// `civil_from_days`.
    fn of_day(days: u64) -> Self {
        let shifted = days + 719_468;
        let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * from_march + 2) / 5 + 1;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        let year = era * 400 + year_of_era + u64::from(month <= 2);
        let small = |number: u64| u8::try_from(number).unwrap_or(u8::MAX);
        Self { year: u16::try_from(year).unwrap_or(u16::MAX), month: small(month), day: small(day) }
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

impl FromStr for Date {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split('-').collect();
        let date = match parts[..] {
            [year, month, day] if (year.len(), month.len(), day.len()) == (4, 2, 2) => {
                match (year.parse(), month.parse(), day.parse()) {
                    (Ok(year), Ok(month), Ok(day)) => Self::new(year, month, day),
                    _ => None,
                }
            }
            _ => None,
        };
        date.ok_or_else(|| {
            format!("'{text}' is no day of the calendar; write it as YYYY-MM-DD (for example 2027-01-31)")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_counted_as_the_calendar_has_them() {
        for (days, text) in [
            (0, "1970-01-01"),
            (59, "1970-03-01"),
            (10_956, "1999-12-31"),
            (11_016, "2000-02-29"),
            (20_423, "2025-12-01"),
            (47_541, "2100-03-01"),
        ] {
            assert_eq!(Date::of_day(days).to_string(), text);
            assert_eq!(text.parse(), Ok(Date::of_day(days)));
        }
    }

    #[test]
    fn days_that_are_in_no_calendar_are_refused() {
        for text in [
            "2026-02-29",
            "2100-02-29",
            "2026-13-01",
            "2026-00-10",
            "2026-04-31",
            "26-1-1",
            "soon",
            "2026-1-01",
        ] {
            assert!(text.parse::<Date>().is_err(), "{text}");
        }
        assert!("2028-02-29".parse::<Date>().is_ok());
    }
}
