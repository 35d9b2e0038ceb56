//! The window: which samples a rollout may hand out.
//!
//! In: numbers from the ledger (what is committed) and from the job (where to stop). Out: sample numbers, in order. A rollout
//! is held here when too much of what it handed out is not committed: that is how a slow ledger holds the producer and
//! never a training step.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A rollout that is held for so long says so.
const PATIENCE: Duration = Duration::from_secs(2);

/// A sample to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its number.
    pub sample: u64,
    /// It belongs to the last step of the run.
    pub last: bool,
}

/// Where one rollout stands.
pub struct Window {
    /// The next sample of this rollout is so many further on: the number of rollouts.
    stride: u64,
    /// At most so many samples of the whole job are handed out and not committed.
    bound: u64,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    next: u64,
    /// All samples below it are committed.
    committed: u64,
    /// Nothing is handed out until the end is known.
    held: bool,
    /// Samples from the first on are of the last step, and there is none from the second on.
    end: Option<(u64, u64)>,
    closed: bool,
}

impl Window {
    /// A window for the rollout whose samples are `first`, `first + stride`, ...; all below `committed` are in the ledger.
    pub fn new(first: u64, stride: u64, committed: u64, bound: u64) -> Self {
        let state = State { next: first, committed, held: false, end: None, closed: false };
        Window { stride, bound, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change leaves the state whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next sample to be made, as soon as it may be; `None` behind the last one.
    pub fn claim(&self) -> Option<Claim> {
        let mut state = self.lock();
        let mut said = false;
        loop {
            if state.closed || state.end.is_some_and(|(_, end)| state.next >= end) {
                return None;
            }
            let full = state.next >= state.committed + self.bound;
            if !full && !state.held {
                break;
            }
            let (guard, timeout) =
                self.changed.wait_timeout(state, PATIENCE).unwrap_or_else(PoisonError::into_inner);
            let waited_in_vain = timeout.timed_out() && guard.next >= guard.committed + self.bound;
            if waited_in_vain && !guard.held && !guard.closed && !said {
                said = true;
                eprintln!(
                    "rollout held back: {} samples are not in the ledger yet, which is as far as --ack-lag goes, and \
                     nothing was committed for {} s; is the ledger's disk slow, or another program holding it?",
                    guard.next - guard.committed,
                    PATIENCE.as_secs()
                );
            }
            state = guard;
        }
        if said {
            eprintln!("rollout goes on: the ledger commits again");
        }
        let sample = state.next;
        state.next += self.stride;
        Some(Claim { sample, last: state.end.is_some_and(|(last, _)| sample >= last) })
    }

    /// All samples below `below` are in the ledger.
    pub fn committed(&self, below: u64) {
        let mut state = self.lock();
        state.committed = state.committed.max(below);
        drop(state);
        self.changed.notify_all();
    }

    /// Hands out nothing more until [`Window::end`]; answers the number of the next sample.
    pub fn hold(&self) -> u64 {
        let mut state = self.lock();
        state.held = true;
        state.next
    }

    /// Ends the series at `end`; samples from `last` on are of the last step.
    pub fn end(&self, last: u64, end: u64) {
        let mut state = self.lock();
        state.held = false;
        state.end = Some((last, end));
        drop(state);
        self.changed.notify_all();
    }

    /// Hands out nothing any more.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn numbers(window: &Window, count: usize) -> Vec<u64> {
        (0..count).filter_map(|_| window.claim()).map(|claim| claim.sample).collect()
    }

    #[test]
    fn every_rollout_gets_its_own_samples_in_order() {
        assert_eq!(numbers(&Window::new(11, 3, 10, 100), 4), [11, 14, 17, 20]);
    }

    #[test]
    fn what_is_not_committed_holds_the_next_sample_until_it_is() {
        let window = Arc::new(Window::new(0, 1, 0, 4));
        assert_eq!(numbers(&window, 4), [0, 1, 2, 3]);
        let other = window.clone();
        let held = std::thread::spawn(move || other.claim());
        window.committed(1);
        assert_eq!(held.join().unwrap(), Some(Claim { sample: 4, last: false }));
    }

    #[test]
    fn a_stop_ends_behind_a_step_that_nobody_has_begun_and_marks_it() {
        let window = Window::new(0, 1, 0, 100);
        assert_eq!(numbers(&window, 3), [0, 1, 2]);
        assert_eq!(window.hold(), 3);
        window.end(4, 6);
        let rest: Vec<_> = std::iter::from_fn(|| window.claim()).collect();
        assert_eq!(
            rest.iter().map(|claim| (claim.sample, claim.last)).collect::<Vec<_>>(),
            [(3, false), (4, true), (5, true)]
        );
    }

    #[test]
    fn a_closed_window_lets_go_of_whoever_waits() {
        let window = Arc::new(Window::new(0, 1, 0, 0));
        let other = window.clone();
        let held = std::thread::spawn(move || other.claim());
        window.close();
        assert_eq!(held.join().unwrap(), None);
    }
}
