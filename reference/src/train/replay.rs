//! `--graph`: the device work of a step captured once as a CUDA graph and replayed by one call.
//!
//! In: the micro-batches of a step, in device memory already. Out: the same work on the compute stream. A graph reads the batch
//! memory that it was captured with, so there is one for every set of slots that comes round: as many as steps can be in flight.
//! Everything that changes from step to step (step and draw counters, learning rate, lambda) lives on the device.

use super::feed::{Feed, Loaded};
use super::step::Compute;
use crate::device::Graph;
use crate::error::{Error, Result};
use std::collections::HashMap;

/// The graphs captured so far.
#[derive(Default)]
pub struct Replay {
    /// By the slots of a step's micro-batches.
    graphs: HashMap<Vec<usize>, Graph>,
    /// What is loaded on first use would not be allowed in a capture, so the first step is issued call by call.
    warm: bool,
}

impl Replay {
    /// Runs step `index` (from 0) over the batches `used`: captures it if these slots are new, then replays it.
    pub fn step(&mut self, compute: &mut Compute, feed: &Feed, used: &[Loaded], index: u32) -> Result<()> {
        if !self.warm {
            self.warm = true;
            return Ok(compute.step(index, used.iter().map(|loaded| feed.batch(loaded)))?);
        }
        let (stream, slots) = (compute.stream.clone(), Feed::slots(used));
        if !self.graphs.contains_key(&slots) {
            let batches = used.iter().map(|loaded| feed.batch(loaded));
            let graph = Graph::capture(&stream, || compute.step(index, batches))
                .map_err(|error| Error::new(format!("--graph: the step can't be captured: {error}")))?;
            self.graphs.insert(slots.clone(), graph);
        }
        Ok(self.graphs[&slots].launch(&stream)?)
    }

    /// How many graphs there are.
    pub fn graphs(&self) -> usize {
        self.graphs.len()
    }
}
