//! Acknowledgements without a wait: the device tells when a step is done, another thread commits it.
//!
//! In: a step's sample ids, handed to the stream behind the step's last kernel. Out: the ids in the ledger and freed at the
//! producer, in order. The training thread must never wait or poll: the driver calls a host function when the stream gets
//! there, and that only sends the ids on.

use super::ledger::{Ledger, StepSamples};
use crate::error::{Error, Result};
use crate::rollout::worker::InFlight;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// The thread that commits finished steps.
pub struct AckThread {
    sender: Sender<StepSamples>,
    failed: Arc<AtomicBool>,
    thread: JoinHandle<Result<()>>,
}

impl AckThread {
    /// Starts it.
    pub fn start(ledger: Ledger, in_flight: Arc<InFlight>) -> Result<Self> {
        let (sender, finished) = channel();
        let failed = Arc::new(AtomicBool::new(false));
        let flag = failed.clone();
        let thread = std::thread::Builder::new()
            .name("acks".to_owned())
            .spawn(move || {
                let outcome = run(ledger, &finished, &in_flight);
                flag.store(outcome.is_err(), Ordering::Release);
                outcome
            })
            .map_err(|error| Error::new(format!("cannot start the acknowledgement thread: {error}")))?;
        Ok(AckThread { sender, failed, thread })
    }

    /// Where the host function of a finished step sends its ids.
    pub fn sender(&self) -> Sender<StepSamples> {
        self.sender.clone()
    }

    /// Whether a commit has failed; [`AckThread::finish`] says why.
    pub fn failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Commits what is left and ends the thread. The stream must have finished all steps, or this waits for them.
    pub fn finish(self) -> Result<()> {
        drop(self.sender);
        self.thread.join().map_err(|_| Error::new("the acknowledgement thread panicked"))?
    }
}

fn run(mut ledger: Ledger, finished: &Receiver<StepSamples>, in_flight: &InFlight) -> Result<()> {
    while let Ok(first) = finished.recv() {
        // A slow disk makes the batches longer, not the queue.
        let steps: Vec<StepSamples> = std::iter::once(first).chain(finished.try_iter()).collect();
        ledger.commit(&steps)?;
        steps.iter().for_each(|step| in_flight.acknowledge(&step.samples));
    }
    Ok(())
}
