//! Why a trace has no price: what is missing in it, and what to do about it.
//!
//! In: a timeline, and what replaying it gave. Out: a reason, or none. It must never let a number through that the trace can't carry.

use super::timeline::Timeline;
use crate::audit::plural;

/// Why nothing is priced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Abstention {
    /// Times of an emulated device mean nothing unless somebody gave it a time model.
    NoTimeModel,
    /// No record of a kernel.
    NoKernels,
    /// Nothing was ever waited for.
    NothingToPrice,
    /// Parts of the recording are missing.
    Clipped { work_without_call: u64, launches_without_work: u64, work: u64, launches: u64 },
    /// Graphs were launched whose work was not recorded.
    GraphsWithoutNodes { launches: u64 },
    /// The recorded times contradict each other.
    Contradiction,
    /// Too much for a glance.
    TooLarge { work: u64 },
    /// The replay does not give the recorded times.
    NotReproduced { error_permille: u64, recorded_ns: u64, replayed_ns: u64 },
}

/// Work or launches that can't be linked, of all: the edges of a recording lose a few.
const MOST_LOOSE: u64 = 100;

impl Abstention {
    /// The reason that a timeline gives before anything is replayed.
    pub(super) fn of(timeline: &Timeline<'_>) -> Option<Self> {
        let source = &timeline.trace.source;
        let loose = timeline.loose;
        let work = timeline.ops.len() as u64;
        let many = |some: u64, of: u64| some * MOST_LOOSE > of;
        if source.emulated && source.time_model.is_none() {
            Some(Self::NoTimeModel)
        } else if timeline.kernels == 0 {
            Some(Self::NoKernels)
        } else if loose.graphs_without_work > 0 {
            Some(Self::GraphsWithoutNodes { launches: loose.graphs_without_work })
        } else if many(loose.work_without_call, work) || many(loose.launches_without_work, timeline.launches)
        {
            Some(Self::Clipped {
                work_without_call: loose.work_without_call,
                launches_without_work: loose.launches_without_work,
                work,
                launches: timeline.launches,
            })
        } else if timeline.audit.waits.iter().all(|wait| wait.by_recorder) {
            Some(Self::NothingToPrice)
        } else {
            None
        }
    }

    /// A stable name.
    #[must_use]
    pub fn id(&self) -> &'static str {
        match self {
            Self::NoTimeModel => "no-time-model",
            Self::NoKernels => "no-kernels",
            Self::NothingToPrice => "nothing-to-price",
            Self::Clipped { .. } => "clipped",
            Self::GraphsWithoutNodes { .. } => "graphs-without-nodes",
            Self::Contradiction => "contradiction",
            Self::TooLarge { .. } => "too-large",
            Self::NotReproduced { .. } => "not-reproduced",
        }
    }

    /// A full sentence: what was found, and what to do.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::NoTimeModel => "there is no price: the device was emulated and had no time model (--kernel-time)".to_owned(),
            Self::NoKernels => {
                "there is no price: the trace has no record of a kernel; record the device too (syncaudit run \
                 --gpu-timeline, torch.profiler with CUDA activities, nsys profile -t cuda)"
                    .to_owned()
            }
            Self::NothingToPrice => "there is no price: nothing waits".to_owned(),
            Self::Clipped { work_without_call, launches_without_work, work, launches } => format!(
                "there is no price: {work_without_call} of {} have no call, and {launches_without_work} of {} have no \
                 work; parts of the recording are missing",
                plural(*work, "piece of device work", "pieces of device work"),
                plural(*launches, "launch", "launches"),
            ),
            Self::GraphsWithoutNodes { launches } => format!(
                "there is no price: the work of {} was not recorded; record CUDA graphs by their nodes",
                plural(*launches, "graph launch", "graph launches"),
            ),
            Self::Contradiction => {
                "there is no price: recorded times contradict each other (clocks of several ranks that differ?)".to_owned()
            }
            Self::TooLarge { work } => format!(
                "there is no price here: the trace has {work} pieces of device work; `syncaudit report` and `syncaudit whatif` \
                 take the time"
            ),
            Self::NotReproduced { error_permille, recorded_ns, replayed_ns } => format!(
                "there is no price: a replay of the trace misses the recorded times by {}.{} % ({} ms instead of {} ms in \
                 a step), so it could not tell what a change would do either",
                error_permille / 10,
                error_permille % 10,
                milliseconds(*replayed_ns),
                milliseconds(*recorded_ns),
            ),
        }
    }
}

/// With three digits behind the point.
fn milliseconds(ns: u64) -> String {
    format!("{}.{:03}", ns / 1_000_000, ns / 1_000 % 1_000)
}
