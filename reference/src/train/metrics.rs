//! Metrics without a wait: rows collect in a ring on the device, log steps ask for a copy, the next step picks it up.
//!
//! In: the optimiser's ring. Out: one [`Metrics`] per step, in order. On ordinary steps there is at most one event query and
//! no copy; on a log step one asynchronous copy of the whole ring into page-locked memory. Only [`MetricsReader::finish`],
//! behind the last step, waits.

use crate::device::{Device, Event, Pinned, Result, Stream};
use crate::error::Error;
use crate::optim::{Metrics, Optimizer};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// A place for one copy of the ring, and the event that says the copy is there.
struct Readback {
    ring: Pinned<f32>,
    arrived: Event,
}

/// Copies of the ring under way and to come.
pub struct MetricsReader {
    free: Vec<Readback>,
    pending: VecDeque<(Readback, Range<u32>)>,
    /// First step (from 0) that no copy covers yet.
    next: u32,
    /// Whether the rows hold the metrics of the Domino objective.
    domino: bool,
}

impl MetricsReader {
    /// A reader for the ring of an optimiser whose first step is `first_step` (from 0). As many copies can be under way as
    /// steps, `run_ahead`, and one more. Set-up only.
    pub fn new(
        device: &Arc<Device>,
        optimizer: &Optimizer,
        run_ahead: usize,
        first_step: u32,
    ) -> Result<Self> {
        let free = (0..run_ahead + 2)
            .map(|_| {
                Ok(Readback {
                    ring: Pinned::zeros(device, optimizer.ring().len())?,
                    arrived: Event::new(device)?,
                })
            })
            .collect::<Result<_>>()?;
        Ok(MetricsReader { free, pending: VecDeque::new(), next: first_step, domino: optimizer.has_domino() })
    }

    /// Asks for the rows of all steps before `end` (from 0). Returns rows only if all places for copies are taken, which
    /// takes a host further ahead than the batch slots allow; it then waits for the oldest.
    pub fn request(
        &mut self,
        stream: &Stream,
        optimizer: &Optimizer,
        end: u32,
    ) -> Result<Vec<Metrics>, Error> {
        let mut rows = Vec::new();
        if self.free.is_empty() {
            rows = self.take_oldest(true)?;
        }
        if let Some(mut readback) = self.free.pop() {
            stream.download(&mut readback.ring, optimizer.ring().view())?;
            stream.record(&readback.arrived)?;
            self.pending.push_back((readback, self.next..end));
            self.next = end;
        }
        Ok(rows)
    }

    /// The rows of the oldest copy if it has arrived. Never waits; asks the device at most once.
    pub fn poll(&mut self) -> Result<Vec<Metrics>, Error> {
        self.take_oldest(false)
    }

    /// **Waits** for every copy under way: behind the last step only. One wait, however many copies there are, so that a run
    /// waits as often as the next one.
    pub fn finish(&mut self, stream: &Stream) -> Result<Vec<Metrics>, Error> {
        stream.synchronize()?;
        let mut rows = Vec::new();
        while !self.pending.is_empty() {
            rows.extend(self.take_arrived()?);
        }
        Ok(rows)
    }

    fn take_oldest(&mut self, wait: bool) -> Result<Vec<Metrics>, Error> {
        let Some((readback, _)) = self.pending.front() else { return Ok(Vec::new()) };
        if wait {
            readback.arrived.synchronize()?;
        } else if !readback.arrived.is_complete()? {
            return Ok(Vec::new());
        }
        self.take_arrived()
    }

    /// The rows of the oldest copy, which has arrived.
    fn take_arrived(&mut self) -> Result<Vec<Metrics>, Error> {
        let Some((readback, steps)) = self.pending.pop_front() else { return Ok(Vec::new()) };
        let rows = steps
            .map(|step| {
                Metrics::from_ring(readback.ring.as_slice(), step, self.domino)
                    .ok_or_else(|| Error::new(format!("the metrics ring holds no row of step {}", step + 1)))
            })
            .collect();
        self.free.push(readback);
        rows
    }
}
