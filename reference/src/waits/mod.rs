//! The historical waits: each source of blocking that the public trainer had, behind a switch of its own.
//!
//! In: `--waits`. Out: for every source that is on, the very calls the public trainer made, from one function in one file, in
//! a call-site range that names its line. Must never change a result: the same seed gives the same losses bit for bit
//! whatever is switched on.
//!
//! | switch | file | waits per step (M micro-batches) |
//! |---|---|---|
//! | `metrics` | `metrics.rs` | 4: loss, accuracy, its denominator, gradient norm; 10 with Domino's |
//! | `anchors` | `anchors.rs` | M: the width |
//! | `scalars` | `scalars.rs` | 4 M: S+1, 2.0, 0, the mask token; 5 M with Domino's lambda |
//! | `acks` | `acks.rs` | 4: sizes and payload, up and down; in a job of several trainers also the result: 6 on rank 0, 5 elsewhere |
//! | `batch-copy` | `batch_copy.rs` | 3 M: ids, hidden states, loss mask |

pub mod acks;
pub mod anchors;
pub mod batch_copy;
pub mod metrics;
pub mod scalars;

use std::fmt;
use std::str::FromStr;

/// One historical source of waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Every metric read back on every step.
    Metrics,
    /// The anchor width read back in the middle of the forward pass.
    Anchors,
    /// Constants uploaded as device scalars.
    Scalars,
    /// Sample ids gathered through the device and committed on the training thread.
    Acks,
    /// Batch tensors copied from pageable memory.
    BatchCopy,
}

impl Source {
    /// All of them, in the order in which `--help` names them.
    pub const ALL: [Source; 5] =
        [Source::Metrics, Source::Anchors, Source::Scalars, Source::Acks, Source::BatchCopy];

    /// How often it waits in a step of so many micro-batches, with or without the Domino head (a run of one process).
    pub fn per_step(self, micro_batches: usize, domino: bool) -> usize {
        match self {
            Source::Metrics if domino => 10,
            Source::Metrics | Source::Acks => 4,
            Source::Anchors => micro_batches,
            Source::Scalars if domino => 5 * micro_batches,
            Source::Scalars => 4 * micro_batches,
            Source::BatchCopy => 3 * micro_batches,
        }
    }

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Source::Metrics => "metrics",
            Source::Anchors => "anchors",
            Source::Scalars => "scalars",
            Source::Acks => "acks",
            Source::BatchCopy => "batch-copy",
        }
    }
}

/// A set of sources that are switched on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    bits: u8,
}

impl Waits {
    /// No source: a step that never waits.
    pub const NONE: Waits = Waits { bits: 0 };
    /// Every source, as the public trainer had them.
    pub const LEGACY: Waits = Waits { bits: 0b1_1111 };

    /// Whether `source` is on.
    pub fn has(self, source: Source) -> bool {
        self.bits & (1 << source as u8) != 0
    }

    /// How often this set waits in a step: [`Source::per_step`].
    pub fn per_step(self, micro_batches: usize, domino: bool) -> usize {
        let on = Source::ALL.into_iter().filter(|source| self.has(*source));
        on.map(|source| source.per_step(micro_batches, domino)).sum()
    }

    /// This set but not `source`.
    #[must_use]
    pub fn without(self, source: Source) -> Self {
        Waits { bits: self.bits & !(1 << source as u8) }
    }

    /// This set and `source`.
    #[must_use]
    pub fn with(self, source: Source) -> Self {
        Waits { bits: self.bits | 1 << source as u8 }
    }
}

impl FromStr for Waits {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => return Ok(Waits::NONE),
            "legacy" => return Ok(Waits::LEGACY),
            _ => {}
        }
        text.split(',').try_fold(Waits::NONE, |waits, name| {
            match Source::ALL.iter().find(|source| source.name() == name.trim()) {
                Some(&source) => Ok(waits.with(source)),
                None => Err(format!(
                    "`{name}` is no source of waits; use none, legacy, or a list of: {}",
                    Source::ALL.map(Source::name).join(", ")
                )),
            }
        })
    }
}

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Waits::NONE => f.write_str("none"),
            Waits::LEGACY => f.write_str("legacy"),
            waits => {
                let on: Vec<_> = Source::ALL.iter().filter(|&&s| waits.has(s)).map(|s| s.name()).collect();
                f.write_str(&on.join(","))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_reads_back_as_it_is_shown() {
        for bits in 0..32 {
            let waits = Waits { bits };
            assert_eq!(waits.to_string().parse(), Ok(waits));
        }
        assert!("metrics,ack".parse::<Waits>().unwrap_err().contains("`ack` is no source of waits"));
    }
}
