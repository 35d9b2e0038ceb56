//! Exit statuses, all of them in one place.
//!
//! 0: within the budget. 1: over the budget, or new waits. 2: inconclusive, or misused. When `run`'s program itself
//! fails, its own status is passed on instead (128 + signal for signals), after the report.

use crate::audit::Verdict;

/// Within the budget.
pub const PASS: u8 = 0;
/// Over the budget, or waits that were not there before.
pub const FAIL: u8 = 1;
/// Nothing can be said, or the command was misused.
pub const INCONCLUSIVE: u8 = 2;

/// The status for a verdict. With `report_only` a verdict never fails the command.
#[must_use]
pub fn status(verdict: Verdict, report_only: bool) -> u8 {
    match verdict {
        _ if report_only => PASS,
        Verdict::Pass => PASS,
        Verdict::Fail => FAIL,
        Verdict::Inconclusive => INCONCLUSIVE,
    }
}

/// The status to pass on for a program that exited with `code`, or was killed by `signal`. `None` for a program that
/// succeeded: the verdict decides then.
#[must_use]
pub fn of_program(code: Option<i32>, signal: Option<i32>) -> Option<u8> {
    match (code, signal) {
        (Some(0), _) => None,
        (Some(code), _) => Some(u8::try_from(code & 0xff).unwrap_or(FAIL)),
        (None, Some(signal)) => Some(128u8.saturating_add(u8::try_from(signal & 0x7f).unwrap_or(0))),
        (None, None) => Some(FAIL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_program_speaks_for_itself_and_a_good_one_leaves_it_to_the_verdict() {
        assert_eq!(of_program(Some(0), None), None);
        assert_eq!(of_program(Some(3), None), Some(3));
        assert_eq!(of_program(None, Some(9)), Some(137));
        assert_eq!(status(Verdict::Fail, false), 1);
        assert_eq!(status(Verdict::Inconclusive, false), 2);
        assert_eq!(status(Verdict::Fail, true), 0);
    }
}
