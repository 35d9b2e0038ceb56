//! Which samples are whose. Everything follows from a sample's number, so nobody has to agree on anything.

use super::Layout;
use serde::{Deserialize, Serialize};

/// The shares of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shares {
    /// How many trainers.
    pub trainers: usize,
    /// How many rollouts.
    pub rollouts: usize,
    /// Samples of one trainer in one step.
    pub per_trainer: usize,
    /// The run's first sample.
    pub first: u64,
    /// Behind its last one.
    pub end: u64,
}

impl Shares {
    /// The shares of `steps` steps from sample `first` on.
    pub fn new(layout: Layout, per_trainer: usize, first: u64, steps: u32) -> Self {
        let Layout { trainers, rollouts } = layout;
        let end = first + u64::from(steps) * (trainers * per_trainer) as u64;
        Shares { trainers, rollouts, per_trainer, first, end }
    }

    /// Samples of one step.
    pub fn per_step(&self) -> u64 {
        (self.trainers * self.per_trainer) as u64
    }

    /// The trainer that sample `sample` is for.
    pub fn trainer(&self, sample: u64) -> usize {
        ((sample - self.first) % self.per_step()) as usize / self.per_trainer
    }

    /// The rollout that makes sample `sample`.
    pub fn rollout(&self, sample: u64) -> usize {
        (sample % self.rollouts as u64) as usize
    }

    /// The first sample that `rollout` makes.
    pub fn first_of(&self, rollout: usize) -> u64 {
        let rollouts = self.rollouts as u64;
        self.first + (rollout as u64 + rollouts - self.first % rollouts) % rollouts
    }

    /// The samples of `trainer`, in order.
    pub fn of_trainer(self, trainer: usize) -> impl Iterator<Item = u64> {
        let share = trainer * self.per_trainer;
        (self.first..self.end)
            .step_by(self.per_step() as usize)
            .flat_map(move |step| (0..self.per_trainer).map(move |i| step + (share + i) as u64))
    }

    /// Where to end when no rollout has begun `next` or a later sample: first sample of the last step, and behind it. That step is one
    /// that nobody has begun.
    pub fn end_behind(&self, next: u64) -> (u64, u64) {
        let steps = next.saturating_sub(self.first).div_ceil(self.per_step());
        let last = self.first + steps * self.per_step();
        if last + self.per_step() >= self.end {
            return (self.end, self.end); // it is over anyway: no step has to be marked
        }
        (last, last + self.per_step())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_sample_has_one_trainer_and_one_rollout_and_everybody_agrees(
            trainers in 1usize..5, rollouts in 1usize..4, per_trainer in 1usize..5, first in 0u64..50, steps in 1u32..6,
        ) {
            let shares = Shares::new(Layout { trainers, rollouts }, per_trainer, first, steps);
            let mut trained: Vec<(u64, usize)> = (0..trainers)
                .flat_map(|trainer| shares.of_trainer(trainer).map(move |sample| (sample, trainer)))
                .collect();
            trained.sort_unstable();
            let expected: Vec<(u64, usize)> =
                (shares.first..shares.end).map(|sample| (sample, shares.trainer(sample))).collect();
            prop_assert_eq!(trained, expected);
            let mut made: Vec<u64> = (0..rollouts)
                .flat_map(|rollout| {
                    let samples = (shares.first_of(rollout)..shares.end).step_by(rollouts);
                    samples.inspect(move |&sample| assert_eq!(shares.rollout(sample), rollout))
                })
                .collect();
            made.sort_unstable();
            prop_assert_eq!(made, (shares.first..shares.end).collect::<Vec<_>>());
        }

        #[test]
        fn a_run_ends_behind_a_whole_step_that_nobody_has_begun(next in 0u64..200) {
            let shares = Shares::new(Layout { trainers: 3, rollouts: 2 }, 2, 12, 30);
            let (last, end) = shares.end_behind(next);
            if last < end {
                prop_assert!(last >= next && end - last == 6 && (end - 12) % 6 == 0 && end < shares.end);
                prop_assert!(last < next.max(12) + 6, "no later than needed");
            } else {
                prop_assert_eq!(end, shares.end);
            }
        }
    }
}
