//! When host and device did what, for `dflash-train bench`: the questions that counts of waits can't answer.
//!
//! In: marks that the training loop sets. Out: per step, when its batch was asked for and had come, when the host had issued all of
//! it, and from when to when it was on the device. Device times are from timing events on the compute stream, put on the host's
//! clock once at the start; nothing is waited for until the end.

use crate::device::{Device, Event, Result, Stream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Times of one step, in seconds since the start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepTimes {
    /// The host began to wait for data.
    pub data_from: f64,
    /// It had them.
    pub data_to: f64,
    /// It had issued the whole step.
    pub issued: f64,
    /// The device began.
    pub begun: f64,
    /// The device was done.
    pub done: f64,
}

/// Collects the marks of a run.
#[derive(Debug)]
pub struct Clock {
    device: Arc<Device>,
    marks: Mutex<Marks>,
}

#[derive(Debug)]
struct Marks {
    /// One moment on both clocks.
    origin: Option<(Instant, Event)>,
    steps: Vec<Mark>,
}

#[derive(Debug)]
struct Mark {
    data_from: Instant,
    data_to: Instant,
    issued: Instant,
    begun: Event,
    done: Event,
}

impl Clock {
    /// A clock for runs on `device`.
    pub fn new(device: &Arc<Device>) -> Self {
        Clock { device: device.clone(), marks: Mutex::new(Marks { origin: None, steps: Vec::new() }) }
    }

    fn lock(&self) -> MutexGuard<'_, Marks> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before the first step: puts both clocks together. **Waits.**
    pub fn start(&self, stream: &Stream) -> Result<()> {
        let event = Event::timed(&self.device)?;
        stream.synchronize()?;
        // Nothing is under way, so the device gets there as soon as it is told.
        let now = Instant::now();
        stream.record(&event)?;
        event.synchronize()?;
        self.lock().origin = Some((now, event));
        Ok(())
    }

    /// The host waited for data so long; the step begins on `stream`.
    pub fn begin(&self, stream: &Stream, data_from: Instant, data_to: Instant) -> Result<()> {
        let (begun, done) = (Event::timed(&self.device)?, Event::timed(&self.device)?);
        stream.record(&begun)?;
        self.lock().steps.push(Mark { data_from, data_to, issued: data_to, begun, done });
        Ok(())
    }

    /// The last kernel of the step is issued.
    pub fn end(&self, stream: &Stream) -> Result<()> {
        if let Some(mark) = self.lock().steps.last_mut() {
            stream.record(&mark.done)?;
        }
        Ok(())
    }

    /// The host turns to the next step.
    pub fn issued(&self) {
        if let Some(mark) = self.lock().steps.last_mut() {
            mark.issued = Instant::now();
        }
    }

    /// The times of all steps. The stream must have run them.
    pub fn steps(&self) -> Result<Vec<StepTimes>> {
        let marks = self.lock();
        let Some((origin, event)) = &marks.origin else { return Ok(Vec::new()) };
        let host = |at: Instant| at.saturating_duration_since(*origin).as_secs_f64();
        let device =
            |at: &Event| Ok::<f64, crate::device::Error>(f64::from(at.milliseconds_since(event)?) / 1e3);
        marks
            .steps
            .iter()
            .map(|mark| {
                Ok(StepTimes {
                    data_from: host(mark.data_from),
                    data_to: host(mark.data_to),
                    issued: host(mark.issued),
                    begun: device(&mark.begun)?,
                    done: device(&mark.done)?,
                })
            })
            .collect()
    }
}
