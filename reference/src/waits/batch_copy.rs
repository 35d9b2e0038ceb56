//! `--waits batch-copy`: the tensors of a batch moved to the device by a plain copy each, from pageable memory.

use crate::call_site;
use crate::device::{Result, Stream};
use crate::model::Batch;

/// Copies the three tensors, one blocking copy each.
#[inline(never)]
pub fn copy(
    stream: &Stream,
    batch: &Batch,
    input_ids: &[i32],
    hidden_states: &[f32],
    loss_mask: &[f32],
) -> Result<()> {
    {
        let _site = call_site!("copy input_ids");
        stream.upload_blocking(batch.input_ids.view(), input_ids)?;
    }
    {
        let _site = call_site!("copy hidden_states");
        stream.upload_blocking(batch.hidden_states.view(), hidden_states)?;
    }
    let _site = call_site!("copy loss_mask");
    stream.upload_blocking(batch.loss_mask.view(), loss_mask)
}
