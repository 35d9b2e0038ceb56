//! How long kernels take on the emulated device: `SYNCAUDIT_EMU_KERNEL_TIME`.
//!
//! `200us` makes every kernel occupy its stream for that long; `gemm=2ms,adam=300us,*=10us` says it per kernel name, `*` for all
//! others. Unset: a kernel takes what its host implementation takes. Times are for making programs wait realistically; they say
//! nothing about a GPU.
//!
//! With a model each stream has a clock of its own, which events are stamped with: an operation begins when the one before it
//! is done, or when it was issued if that is later; a kernel takes its time, everything else none. The host sees it done when
//! that time has come, or when it is really done if this machine is slower. A worker that wakes up late, or computes longer
//! than the model says, catches up with the next kernels: what else the machine does is not added up.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

#[derive(Debug, Default, PartialEq, Eq)]
struct Model {
    others: Duration,
    named: HashMap<String, Duration>,
}

static MODEL: OnceLock<Option<Model>> = OnceLock::new();

/// Gives the device a time model instead of the environment's, before its first kernel; `false` if it has one already or the text is none.
pub fn set(text: &str) -> bool {
    parse(text).is_ok_and(|model| MODEL.set(Some(model)).is_ok())
}

/// How long kernel `name` takes by the model; nothing without one.
pub(crate) fn kernel_time(name: &str) -> Duration {
    model().map_or(Duration::ZERO, |model| model.named.get(name).copied().unwrap_or(model.others))
}

fn model() -> Option<&'static Model> {
    let read = || {
        let text = std::env::var("SYNCAUDIT_EMU_KERNEL_TIME").ok()?;
        let model = parse(&text).unwrap_or_else(|problem| {
            eprintln!("syncaudit emulator: SYNCAUDIT_EMU_KERNEL_TIME is ignored: {problem}");
            Model::default()
        });
        (model != Model::default()).then_some(model)
    };
    MODEL.get_or_init(read).as_ref()
}

thread_local! {
    /// The clock of the stream that this worker runs: when the operation that it is at begins, then when it ends.
    static STREAM_CLOCK: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// An operation begins that was issued then and, if it had to wait for other streams, could not begin before `free`.
pub fn begin(issued: Instant, free: Option<Instant>) {
    if model().is_some() && !crate::clock::is_virtual() {
        let from = STREAM_CLOCK.get().max(Some(issued)).max(free);
        STREAM_CLOCK.set(from);
    }
}

/// The kernel that really started then has computed: keeps the worker until its modelled time is over.
pub fn occupy(name: &str, started: Instant) {
    let Some(model) = model().filter(|_| !crate::clock::is_virtual()) else { return };
    let time = match model.named.get(name) {
        Some(time) => *time,
        None if model.others.is_zero() => started.elapsed(),
        None => model.others,
    };
    let (now, end) = (Instant::now(), STREAM_CLOCK.get().unwrap_or(started) + time);
    if end > now {
        std::thread::sleep(end - now); // modelled time on the device, not synchronisation
    }
    STREAM_CLOCK.set(Some(end));
}

/// The time on the clock of the stream that this worker runs.
pub fn now() -> Instant {
    STREAM_CLOCK.get().unwrap_or_else(Instant::now)
}

fn parse(text: &str) -> Result<Model, String> {
    let mut model = Model::default();
    for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        match part.split_once('=') {
            None => model.others = duration(part)?,
            Some(("*", time)) => model.others = duration(time)?,
            Some((name, time)) => {
                model.named.insert(name.trim().to_owned(), duration(time)?);
            }
        }
    }
    Ok(model)
}

fn duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale_ns = match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return Err(format!("{text:?} is no time; write a number and ns, us, ms or s, such as 200us")),
    };
    let number: f64 = number.parse().map_err(|_| format!("{text:?} does not start with a number"))?;
    let ns = number * scale_ns;
    if ns > 60e9 {
        return Err(format!("{text:?} is more than a minute"));
    }
    Ok(Duration::from_nanos(ns as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_time_is_for_every_kernel_and_names_override_it() {
        assert_eq!(parse("200us").unwrap().others, Duration::from_micros(200));
        let model = parse("gemm=1.5ms, *=10ns,adam=2s").unwrap();
        assert_eq!(model.others, Duration::from_nanos(10));
        assert_eq!(model.named["gemm"], Duration::from_micros(1500));
        assert_eq!(model.named["adam"], Duration::from_secs(2));
        assert_eq!(parse("").unwrap(), Model::default());
    }

    #[test]
    fn nonsense_is_refused_with_the_part_that_is_wrong() {
        for text in ["fast", "10", "10 parsecs", "gemm=", "x=1us,y", "2h", "100s"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
