//! A captured sequence of device work that can be replayed by one call.

use std::sync::Arc;

use super::{Device, Error, Result, Stream, driver};

/// A captured, instantiated graph.
///
/// Capturing is also a proof: a call that would wait for the device fails under capture instead of waiting.
#[derive(Debug)]
pub struct Graph {
    handle: driver::GraphHandle,
    _device: Arc<Device>,
}

impl Graph {
    /// Records what `work` issues on `stream` (nothing executes) and instantiates it.
    ///
    /// # Errors
    /// What `work` returns; the driver's, among them the refusal of any waiting call inside `work`.
    pub fn capture(stream: &Stream, work: impl FnOnce() -> Result<()>) -> Result<Self> {
        let handle = stream
            .handle
            .as_ref()
            .ok_or_else(|| Error::misuse("an in-process device executes at once and cannot capture"))?;
        handle.begin_capture()?;
        let outcome = work();
        // End the capture in any case: a stream left capturing refuses everything that follows.
        let graph = handle.end_capture();
        outcome?;
        Ok(Self { handle: graph?, _device: stream.device().clone() })
    }

    /// How many operations it holds.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.handle.nodes
    }

    /// Replays the graph on `stream`; does not wait.
    ///
    /// # Errors
    /// The driver's.
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        match &stream.handle {
            Some(handle) => handle.launch_graph(&self.handle),
            None => Err(Error::misuse("an in-process device cannot replay a graph")),
        }
    }
}
