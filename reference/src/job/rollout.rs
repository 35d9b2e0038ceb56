//! A rollout process: makes its samples and sends each to its trainer.
//!
//! In: a source of features, the welcome. Out: samples, in order, as fast as the trainers take them and the ledger follows.
//! Must never touch CUDA: the target runs on host threads.

use super::channel::{Outlet, SampleShape};
use super::control::{Entry, Member};
use super::{Place, link::Welcome};
use crate::error::Result;
use crate::nvtx;
use crate::rollout::Sample;
use crate::rollout::window::Window;
use crate::rollout::worker::Source;
use std::sync::Arc;
use std::time::Instant;

/// Takes part as a rollout until the run is over; whether it was stopped. `on_stop` gets what asks rank 0 to end the run. At most
/// `lag` steps of samples are handed out and not committed.
pub fn run(
    place: &Place,
    entry: Entry,
    source: &Source,
    shape: SampleShape,
    lag: u32,
    on_stop: impl FnOnce(Box<dyn Fn() + Send>) -> Result<()>,
) -> Result<bool> {
    let deadline = Instant::now() + entry.patience;
    let (member, Welcome { shares, trainers, .. }) = Member::join(place, entry)?;
    let own = place.rank - place.layout.trainers;
    let bound = u64::from(lag) * shares.per_step();
    let window = Arc::new(Window::new(shares.first_of(own), shares.rollouts as u64, shares.first, bound));
    window.end(shares.end, shares.end);
    member.listen(Some(window.clone()))?;
    let asking = member.clone();
    on_stop(Box::new(move || asking.stop()))?;

    let mut outlets = trainers
        .iter()
        .map(|(host, port)| {
            Outlet::open(host.as_deref().unwrap_or(&place.master.0), *port, own, shape, deadline)
        })
        .collect::<Result<Vec<_>>>()?;
    while let Some(claim) = window.claim() {
        let features = {
            let _sample = nvtx::range_with_payload(c"sample", claim.sample as i64);
            source.sample(claim.sample)?
        };
        let trainer = shares.trainer(claim.sample);
        let _send = nvtx::range(c"send");
        if outlets[trainer].send(&Sample { features, last: claim.last }).is_err() {
            member.lost(trainer);
        }
    }
    for (trainer, outlet) in outlets.iter_mut().enumerate() {
        if outlet.drain().is_err() {
            member.lost(trainer);
        }
    }
    Ok(member.wait())
}
