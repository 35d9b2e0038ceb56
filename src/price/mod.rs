//! What a wait costs, and what removing a set of them buys.
//!
//! In: a trace and its audit. Out: [`Pricing`]: per site what is blocked, what is exposed, what removing it alone or with others does to a step, the bound
//! below which no removal gets, and who pays next; or the reason why the trace can't tell. Formulas and rules: `docs/pricing.md`. Blocked time is
//! not lost time: nothing in here may present it as a saving. Does no I/O and knows nothing of where a trace came from.

mod abstain;
mod exposed;
mod graph;
mod habits;
mod handover;
mod lead;
mod plan;
mod prices;
mod rendezvous;
mod search;
mod timeline;
mod verdict;
mod what_if;

pub use abstain::Abstention;
pub use exposed::{Exposed, Idle};
pub use lead::RunAhead;
pub use prices::{Bound, Confidence, Limit, NextPayer, Prices, SitePrice, Unit};
pub use verdict::verdict;
pub use what_if::WhatIf;

use crate::audit::Audit;
use crate::model::Trace;
use timeline::Timeline;

/// What is known of the cost of the waits of a trace.
#[derive(Clone, Debug)]
pub struct Pricing {
    /// Times are those of an emulated device with a time model, not of a device.
    pub modelled: bool,
    /// The trace has a device timeline: a reader may expect prices.
    pub has_kernels: bool,
    pub prices: Result<Box<Prices>, Abstention>,
}

impl Pricing {
    /// The prices, where there are some.
    #[must_use]
    pub fn known(&self) -> Option<&Prices> {
        self.prices.as_deref().ok()
    }

    /// The price of a site, by its fingerprint.
    #[must_use]
    pub fn of_site(&self, fingerprint: &str) -> Option<&SitePrice> {
        self.known()?.of_site(fingerprint)
    }
}

/// How much may be tried: each question costs one pass over the trace. Sites are asked alone, the most expensive ones first, then sets of them are
/// sought, as far as it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Whatever there is to know of a trace of a million events: some seconds.
    Full,
    /// What a reader who waits for a picture can wait for.
    Glance,
}

/// Pieces of device work beyond which even a glance takes longer than a reader waits.
const MOST_AT_A_GLANCE: usize = 500_000;

/// Prices the waits of a trace. `audit` is the trace's own.
#[must_use]
pub fn price(trace: &Trace, audit: &Audit, effort: Effort) -> Pricing {
    let work: usize = trace.processes.iter().map(|process| process.device_ops.len()).sum();
    if effort == Effort::Glance && work > MOST_AT_A_GLANCE {
        return Pricing {
            modelled: trace.source.emulated,
            has_kernels: true,
            prices: Err(Abstention::TooLarge { work: work as u64 }),
        };
    }
    let timeline = Timeline::of(trace, audit);
    let prices = match Abstention::of(&timeline) {
        Some(abstention) => Err(abstention),
        None => prices::of(&timeline, effort).map(Box::new),
    };
    Pricing { modelled: trace.source.emulated, has_kernels: timeline.kernels > 0, prices }
}

/// How long a step was, in the same measure: the mean of the ordinary steps. Also of a trace in which nothing waits.
///
/// # Errors
/// The reason why the trace can't tell.
pub fn recorded_step_ns(trace: &Trace, audit: &Audit) -> Result<u64, Abstention> {
    let timeline = Timeline::of(trace, audit);
    match Abstention::of(&timeline).filter(|abstention| *abstention != Abstention::NothingToPrice) {
        Some(abstention) => Err(abstention),
        None => prices::recorded_ns(&timeline),
    }
}

/// Answers what a step would be without the sites (indices into the audit's), in the order asked.
///
/// # Errors
/// The reason why the trace can't tell.
pub fn what_if(trace: &Trace, audit: &Audit, sets: &[Vec<usize>]) -> Result<Vec<WhatIf>, Abstention> {
    let timeline = Timeline::of(trace, audit);
    match Abstention::of(&timeline) {
        Some(abstention) => Err(abstention),
        None => what_if::answer(&timeline, sets),
    }
}

#[cfg(test)]
mod tests;
