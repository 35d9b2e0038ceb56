//! The sentence that a reader needs: whether removing waits buys anything, and when.
//!
//! In: prices. Out: one sentence. Percentages only, so that it holds for modelled times as well.

use super::prices::{Limit, Prices};
use crate::audit::plural;

/// Less than this part of a step, in thousandths, is about nothing.
const ABOUT_NOTHING: i64 = 20;

/// What removing waits buys, in a sentence without a full stop.
#[must_use]
pub fn verdict(prices: &Prices) -> String {
    let waits = prices.together.removed.len();
    let (low, gain, high) = prices.together.gain_permille(prices.step_ns);
    if waits == 0 {
        return "no wait can simply be removed".to_owned();
    }
    if gain < ABOUT_NOTHING {
        let why = match prices.bound.limit() {
            Limit::Device => "GPU-bound",
            Limit::Host => "host-bound",
        };
        return format!(
            "{why}: removing waits will buy about nothing ({} of {})",
            percent(low, high),
            prices.unit.words()
        );
    }
    let alone = prices
        .sites()
        .iter()
        .filter(|site| site.removable)
        .filter_map(|site| site.alone_ns)
        .max()
        .unwrap_or(0);
    let gained = format!("{} of {}", percent(low, high), prices.unit.words());
    if waits > 1 && alone * 4 < prices.together.gain_ns {
        // One behind the other: as long as one is left, it pays.
        let enough = prices.best.iter().find(|set| set.gain_ns * 10 >= prices.together.gain_ns * 9);
        return match enough.filter(|set| set.removed.len() < waits) {
            None => format!("the last of these {waits} pays: {gained} once all are gone"),
            Some(set) => {
                let (low, _, high) = set.gain_permille(prices.step_ns);
                format!(
                    "the last of {} pays: {} of {} once they are gone (see `syncaudit whatif`)",
                    set.removed.len(),
                    percent(low, high),
                    prices.unit.words()
                )
            }
        };
    }
    format!("removing {} buys {gained}", plural(waits as u64, "place that waits", "places that wait"))
}

/// `12-18 %`, `at most 0.4 %`.
fn percent(low: i64, high: i64) -> String {
    let one = |permille: i64| {
        if permille.abs() >= 100 {
            format!("{}", (permille + 5) / 10)
        } else {
            format!("{}.{}", permille / 10, permille % 10)
        }
    };
    if low <= 0 {
        return format!("at most {} %", one(high.max(0)));
    }
    if one(low) == one(high) { format!("{} %", one(low)) } else { format!("{}-{} %", one(low), one(high)) }
}
