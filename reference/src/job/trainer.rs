//! A trainer process: what [`crate::train::run`] needs of the other processes.
//!
//! In: a place in the job, a device. Out: a [`Trainer`]: samples of this trainer's share, the communicator of all trainers, and
//! whom to tell about finished steps.

use super::Place;
use super::channel::{Inlet, SampleShape, Transport};
use super::control::{self, Coordinator, Entry, Gathered, Member};
use super::link::Welcome;
use super::shares::Shares;
use crate::device::{Communicator, Device};
use crate::error::{Error, Result};
use crate::rollout::Sample;
use crate::train::acks::{self, AckReceiver, AckSender};
use crate::train::checkpoint::Position;
use crate::train::ledger::StepSamples;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// The other processes, as seen by a trainer.
pub struct Trainer {
    /// This trainer, from 0.
    pub rank: usize,
    /// Which samples are whose.
    pub shares: Shares,
    /// Steps done before this run.
    pub step: u32,
    /// All trainers; [`crate::train::step::Compute::join`] takes it.
    pub group: Option<Communicator>,
    /// Samples of this trainer's share, in order; taken by the run.
    pub samples: Option<Receiver<Result<Sample>>>,
    /// Ends behind the last sample.
    receiver: JoinHandle<()>,
    /// Where finished steps are sent, and where they come out.
    pub acks: Option<(AckSender, AckReceiver)>,
    /// The link to the others.
    pub control: Control,
}

/// A trainer's end of the control links.
#[derive(Clone)]
pub enum Control {
    /// Rank 0.
    Coordinator(Arc<Coordinator>),
    /// Any other.
    Member(Arc<Member>),
}

impl Control {
    /// Asks for the end of the run.
    pub fn stop(&self) {
        match self {
            Control::Coordinator(coordinator) => coordinator.stop(),
            Control::Member(member) => member.stop(),
        }
    }

    /// Tells rank 0 what this trainer's device has passed.
    pub fn trained(&self, part: StepSamples) -> Result<()> {
        match self {
            Control::Coordinator(_) => Err(Error::new("rank 0 told itself about a finished step")),
            Control::Member(member) => member.trained(part),
        }
    }

    /// Rank 0: tells the rollouts what is in the ledger.
    pub fn committed(&self, below: u64) {
        if let Control::Coordinator(coordinator) = self {
            coordinator.committed(below);
        }
    }
}

/// What a trainer hands in beside its [`Entry`].
pub struct Opening<'a> {
    /// Its device.
    pub device: &'a Arc<Device>,
    /// Rank 0: what it listens on for the others.
    pub listener: Option<&'a TcpListener>,
    /// What it listens on for features.
    pub features: TcpListener,
    /// Sizes of samples.
    pub shape: SampleShape,
    /// How features travel.
    pub transport: Transport,
    /// Samples of one trainer in one step.
    pub per_trainer: usize,
    /// Steps in all.
    pub steps: u32,
    /// Rank 0: where the run stands.
    pub start: Position,
}

impl Trainer {
    /// Meets the other processes; comes back when all are connected with all.
    pub fn join(place: &Place, entry: Entry, opening: Opening<'_>) -> Result<Self> {
        let channel = acks::channel();
        let (control, Welcome { step, shares, unique_id, .. }) = match opening.listener {
            Some(listener) => {
                let gathered = Gathered::wait(listener, place, entry)?;
                let start = opening.start;
                let rest = opening.steps.saturating_sub(start.step);
                let shares = Shares::new(place.layout, opening.per_trainer, start.next_sample, rest);
                let id = match place.layout.trainers {
                    1 => Vec::new(),
                    _ => Communicator::unique_id()?,
                };
                let (coordinator, welcome) = gathered.welcome(start.step, shares, id, channel.0.clone())?;
                (Control::Coordinator(coordinator), welcome)
            }
            None => {
                let (member, welcome) = Member::join(place, entry)?;
                member.listen(None)?;
                (Control::Member(member), welcome)
            }
        };
        // Room for the next step beside the one that is being loaded: enough to hide the target's jitter.
        let slots = (2 * opening.per_trainer).div_ceil(shares.rollouts).max(2);
        let inlet =
            Inlet::accept(&opening.features, shares.rollouts, slots, opening.shape, opening.transport)?;
        let group = match place.layout.trainers {
            1 => None,
            trainers => Some(Communicator::join(opening.device, &unique_id, place.rank, trainers)?),
        };
        let (sender, samples) = sync_channel(1);
        let rank = place.rank;
        let receiver = std::thread::Builder::new()
            .name("features".to_owned())
            .spawn(move || receive(inlet, shares, rank, &sender))
            .map_err(|error| Error::new(format!("cannot start the features thread: {error}")))?;
        Ok(Trainer {
            rank,
            shares,
            step,
            group,
            samples: Some(samples),
            receiver,
            acks: Some(channel),
            control,
        })
    }

    /// Rank 0, when all is saved: tells everybody. The others wait for that. Whether the run was stopped.
    pub fn finish(self, stopped: bool) -> Result<bool> {
        self.receiver.join().map_err(|_| Error::new("the features thread panicked"))?;
        match self.control {
            Control::Coordinator(coordinator) => {
                coordinator.finish(stopped);
                Ok(stopped)
            }
            Control::Member(member) => Ok(member.wait()),
        }
    }
}

/// Takes this trainer's samples from the rollouts in their order.
fn receive(mut inlet: Inlet, shares: Shares, rank: usize, sender: &SyncSender<Result<Sample>>) {
    let mut ending = None;
    for sample in shares.of_trainer(rank) {
        // Behind the last step there is nothing to wait for.
        if ending.is_some_and(|end| sample >= end) {
            return;
        }
        let received = inlet.receive(shares.rollout(sample), sample);
        let failed = received.is_err();
        if received.as_ref().is_ok_and(|sample| sample.last) {
            ending.get_or_insert(sample - (sample - shares.first) % shares.per_step() + shares.per_step());
        }
        // A send fails when the training has ended.
        if sender.send(received).is_err() || failed {
            return;
        }
    }
}

/// Where a trainer takes features: reachable like rank 0.
pub fn features_listener(place: &Place) -> Result<TcpListener> {
    control::listener(&place.master.0, 0)
}
