//! Acknowledgements without a wait: the device tells when a step is done, another thread commits it.
//!
//! In: a step's sample numbers, handed to the stream behind the step's last kernel; on rank 0 of a job also those of the other
//! trainers. Out: whole steps in the ledger, in order, and word of it to the producers. The training thread must never wait
//! or poll: the driver calls a host function when the stream gets there, and that only sends the numbers on.

use super::ledger::{Ledger, StepSamples};
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Something for the thread.
enum Event {
    Done(StepSamples),
    End,
}

/// Where a finished step's numbers are sent.
#[derive(Clone)]
pub struct AckSender(Sender<Event>);

impl AckSender {
    /// Hands on what one trainer did in a step that its device has passed. Never waits.
    pub fn send(&self, done: StepSamples) {
        // The receiver is gone only after a failed commit, which ends the run.
        self.0.send(Event::Done(done)).unwrap_or_default();
    }
}

/// Where they come out.
pub struct AckReceiver(Receiver<Event>);

/// A way for finished steps to the thread that commits them.
pub fn channel() -> (AckSender, AckReceiver) {
    let (sender, receiver) = std::sync::mpsc::channel();
    (AckSender(sender), AckReceiver(receiver))
}

/// What becomes of finished steps.
pub enum Keeper {
    /// They are committed once all `trainers` have done them; then `announce` hears below which sample everything is.
    Ledger {
        /// Where to.
        ledger: Ledger,
        /// How many parts a step has.
        trainers: usize,
        /// The last step that is in the ledger, and the first sample that is not.
        from: (u32, u64),
        /// Called on the thread, behind each commit.
        announce: Box<dyn FnMut(u64) + Send>,
    },
    /// They are sent to rank 0.
    Remote(Box<dyn FnMut(StepSamples) -> Result<()> + Send>),
}

/// How far the thread is.
#[derive(Default)]
struct Progress {
    state: Mutex<(u32, bool)>,
    changed: Condvar,
}

/// The thread that commits finished steps.
pub struct AckThread {
    sender: AckSender,
    /// The last step committed, and whether a commit has failed.
    progress: Arc<Progress>,
    thread: JoinHandle<Result<()>>,
}

impl AckThread {
    /// Starts it on the steps that come out of `channel`.
    pub fn start(keeper: Keeper, (sender, AckReceiver(finished)): (AckSender, AckReceiver)) -> Result<Self> {
        let progress = Arc::new(Progress::default());
        let of_thread = progress.clone();
        let thread = std::thread::Builder::new()
            .name("acks".to_owned())
            .spawn(move || {
                let outcome = match keeper {
                    Keeper::Ledger { ledger, trainers, from, announce } => {
                        keep(ledger, trainers, from, announce, &finished, &of_thread)
                    }
                    Keeper::Remote(send) => forward(send, &finished),
                };
                if outcome.is_err() {
                    of_thread.change(|state| state.1 = true);
                }
                outcome
            })
            .map_err(|error| Error::new(format!("cannot start the acknowledgement thread: {error}")))?;
        Ok(AckThread { sender, progress, thread })
    }

    /// Where finished steps are sent.
    pub fn sender(&self) -> AckSender {
        self.sender.clone()
    }

    /// Whether a commit has failed; [`AckThread::finish`] says why.
    pub fn failed(&self) -> bool {
        self.progress.lock().1
    }

    /// **Waits** until every step up to `step` is in the ledger, or a commit has failed. Not for use inside of a step.
    pub fn flush(&self, step: u32) {
        let mut state = self.progress.lock();
        while state.0 < step && !state.1 {
            state = self.progress.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends the thread behind what was sent so far. The stream must have finished all steps.
    pub fn finish(self) -> Result<()> {
        self.sender.0.send(Event::End).unwrap_or_default();
        self.thread.join().map_err(|_| Error::new("the acknowledgement thread panicked"))?
    }
}

impl Progress {
    fn lock(&self) -> std::sync::MutexGuard<'_, (u32, bool)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut (u32, bool))) {
        change(&mut self.lock());
        self.changed.notify_all();
    }
}

fn keep(
    mut ledger: Ledger,
    trainers: usize,
    (mut step, mut below): (u32, u64),
    mut announce: Box<dyn FnMut(u64) + Send>,
    finished: &Receiver<Event>,
    progress: &Progress,
) -> Result<()> {
    progress.change(|state| state.0 = step);
    // Parts of steps that are not committed yet. Another trainer's may come early, and its later steps too.
    let mut open: BTreeMap<u32, Vec<StepSamples>> = BTreeMap::new();
    while let Ok(first) = finished.recv() {
        let mut ended = false;
        for event in std::iter::once(first).chain(finished.try_iter()) {
            match event {
                Event::Done(part) => open.entry(part.step).or_default().push(part),
                Event::End => ended = true,
            }
        }
        // A slow disk makes the batches longer, not the queue.
        let mut batch = Vec::new();
        while open.get(&(step + 1)).is_some_and(|parts| parts.len() == trainers) {
            step += 1;
            let mut parts = open.remove(&step).unwrap_or_default();
            parts.sort_by_key(|part| part.rank);
            batch.append(&mut parts);
        }
        if !batch.is_empty() {
            ledger.commit(&batch)?;
            below += batch.iter().map(|part| part.samples.len() as u64).sum::<u64>();
            announce(below);
            progress.change(|state| state.0 = step);
        }
        if ended {
            return Ok(());
        }
    }
    Ok(())
}

fn forward(
    mut send: Box<dyn FnMut(StepSamples) -> Result<()> + Send>,
    finished: &Receiver<Event>,
) -> Result<()> {
    while let Ok(Event::Done(part)) = finished.recv() {
        send(part)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::ledger;

    fn part(step: u32, rank: usize) -> StepSamples {
        StepSamples { step, rank, samples: vec![u64::from(step - 1) * 2 + rank as u64] }
    }

    #[test]
    fn steps_are_committed_whole_and_in_order_however_their_parts_come() {
        let directory = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(directory.path(), 0, 0).unwrap();
        let (announced, heard) = std::sync::mpsc::channel();
        let announce = Box::new(move |below| announced.send(below).unwrap());
        let thread =
            AckThread::start(Keeper::Ledger { ledger, trainers: 2, from: (0, 0), announce }, channel())
                .unwrap();
        let sender = thread.sender();
        // Rank 1 is a step ahead; nothing is whole before rank 0's first part comes.
        [part(1, 1), part(2, 1), part(2, 0)].into_iter().for_each(|part| sender.send(part));
        sender.send(part(1, 0));
        thread.flush(2);
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), [4]);
        let rows = ledger::read(directory.path()).unwrap();
        assert_eq!(
            rows.iter().map(|row| (row.sample, row.step, row.rank)).collect::<Vec<_>>(),
            [(0, 1, 0), (1, 1, 1), (2, 2, 0), (3, 2, 1)]
        );
        sender.send(part(3, 0));
        thread.finish().unwrap();
        assert_eq!(ledger::read(directory.path()).unwrap(), rows, "half a step is not committed");
    }

    #[test]
    fn a_failed_commit_is_told_and_lets_nobody_wait() {
        let directory = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(directory.path(), 0, 0).unwrap();
        let keeper = Keeper::Ledger { ledger, trainers: 1, from: (0, 0), announce: Box::new(|_| {}) };
        let thread = AckThread::start(keeper, channel()).unwrap();
        let twice = StepSamples { step: 1, rank: 0, samples: vec![0, 0] };
        thread.sender().send(twice);
        thread.flush(1);
        assert!(thread.failed());
        assert!(thread.finish().unwrap_err().to_string().contains("trained on twice"));
    }
}
