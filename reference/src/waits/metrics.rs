//! `--waits metrics`: every metric turned into a host number after every step, one device-to-host read each.

use crate::call_site;
use crate::device::{Result, Stream};
use crate::optim::{Metrics, Optimizer};

/// Reads the four metrics of optimiser step `step` (from 0), one blocking read each.
///
/// They are read from the step's row of the ring, so that a step of several micro-batches reports the same means as the
/// default mode does; the learning rate is known to the host.
#[inline(never)]
pub fn read(stream: &Stream, optimizer: &Optimizer, step: u32) -> Result<Metrics> {
    let rows = optimizer.ring().len() / Metrics::FIELDS;
    let row = (step as usize % rows) * Metrics::FIELDS;
    let field = |index: usize| optimizer.ring().slice(row + index..row + index + 1);
    let (mut loss, mut accuracy, mut accuracy_denom, mut grad_norm) = ([0.0], [0.0], [0.0], [0.0]);
    {
        let _site = call_site!("read loss");
        stream.download_blocking(&mut loss, field(1))?;
    }
    {
        let _site = call_site!("read accuracy");
        stream.download_blocking(&mut accuracy, field(2))?;
    }
    {
        let _site = call_site!("read accuracy_denom");
        stream.download_blocking(&mut accuracy_denom, field(3))?;
    }
    {
        let _site = call_site!("read grad_norm");
        stream.download_blocking(&mut grad_norm, field(4))?;
    }
    Ok(Metrics {
        step,
        loss: loss[0],
        accuracy: accuracy[0],
        accuracy_denom: accuracy_denom[0],
        grad_norm: grad_norm[0],
        lr: optimizer.config().schedule.learning_rate(step),
    })
}
