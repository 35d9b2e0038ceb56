//! `--waits anchors`: the anchor width read back in the middle of the forward pass, to size what follows by it.

use crate::call_site;
use crate::device::{Result, Stream};
use crate::model::{AnchorWidth, Model};

/// Reads the width that `count_anchors` has left on the device.
#[inline(never)]
pub fn read_width(stream: &Stream, model: &Model) -> Result<AnchorWidth> {
    let mut width = [0];
    let _site = call_site!("read anchor width");
    stream.download_blocking(&mut width, model.anchor_width())?;
    Ok(AnchorWidth::Host(width[0] as usize))
}
