//! `--waits metrics`: every metric turned into a host number after every step, one device-to-host read each.

use crate::call_site;
use crate::device::{Result, Stream};
use crate::optim::{Metrics, Optimizer};

/// Reads the metrics of optimiser step `step` (from 0), one blocking read each: four, or ten of the Domino objective.
///
/// They are read from the step's row of the ring, so that a step of several micro-batches reports the same means as the
/// default mode does; the learning rate is known to the host.
#[inline(never)]
pub fn read(stream: &Stream, optimizer: &Optimizer, step: u32) -> Result<Metrics> {
    let mut row = [0.0; Metrics::FIELDS];
    let start = Metrics::row(optimizer.ring().len(), step).unwrap_or(0);
    let field = |index: usize| optimizer.ring().slice(start + index..start + index + 1);
    {
        let _site = call_site!("read loss");
        stream.download_blocking(&mut row[3..=3], field(3))?;
    }
    {
        let _site = call_site!("read accuracy");
        stream.download_blocking(&mut row[4..=4], field(4))?;
    }
    {
        let _site = call_site!("read accuracy_denom");
        stream.download_blocking(&mut row[5..=5], field(5))?;
    }
    if optimizer.has_domino() {
        {
            let _site = call_site!("read final_loss");
            stream.download_blocking(&mut row[6..=6], field(6))?;
        }
        {
            let _site = call_site!("read base_loss");
            stream.download_blocking(&mut row[7..=7], field(7))?;
        }
        {
            let _site = call_site!("read base_accuracy");
            stream.download_blocking(&mut row[8..=8], field(8))?;
        }
        {
            let _site = call_site!("read accept_len");
            stream.download_blocking(&mut row[9..=9], field(9))?;
        }
        {
            let _site = call_site!("read base_accept_len");
            stream.download_blocking(&mut row[10..=10], field(10))?;
        }
        {
            let _site = call_site!("read lambda_base");
            stream.download_blocking(&mut row[11..=11], field(11))?;
        }
    }
    {
        let _site = call_site!("read grad_norm");
        stream.download_blocking(&mut row[1..=1], field(1))?;
    }
    row[2] = optimizer.config().schedule.learning_rate(step);
    Ok(Metrics::from_row(&row, step, optimizer.has_domino()))
}
