//! `--waits acks`: the sample ids of a step gathered over the ranks as an object collective does it, sizes and payload
//! through the device, then committed before the next step starts. All on the training thread.
//!
//! One rank is a group of one: the gather itself is a copy on the device, every transfer around it is the real one.

use crate::call_site;
use crate::device::{Buffer, Device, Stream};
use crate::error::{Error, Result};
use std::sync::Arc;

/// Device memory of the collective.
pub struct ObjectGather {
    size: Buffer<u64>,
    sizes: Buffer<u64>,
    payload: Buffer<u8>,
    payloads: Buffer<u8>,
}

impl ObjectGather {
    /// Allocates room for `samples` ids. Set-up only.
    pub fn new(device: &Arc<Device>, samples: usize) -> Result<Self> {
        let bytes = samples * size_of::<u64>();
        Ok(ObjectGather {
            size: Buffer::zeros(device, 1)?,
            sizes: Buffer::zeros(device, 1)?,
            payload: Buffer::zeros(device, bytes)?,
            payloads: Buffer::zeros(device, bytes)?,
        })
    }

    /// Sends the ids through the device and returns what came back: the ids of all ranks.
    #[inline(never)]
    pub fn gather(&self, stream: &Stream, samples: &[u64]) -> Result<Vec<u64>> {
        let object: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
        {
            let _site = call_site!("upload ack size");
            stream.upload_blocking(self.size.view(), &[object.len() as u64])?;
        }
        stream.copy(self.sizes.view(), self.size.view())?;
        let mut sizes = [0];
        {
            let _site = call_site!("read ack sizes");
            stream.download_blocking(&mut sizes, self.sizes.view())?;
        }
        {
            let _site = call_site!("upload ack payload");
            stream.upload_blocking(self.payload.view(), &object)?;
        }
        let bytes = usize::try_from(sizes[0]).ok().filter(|&bytes| bytes <= self.payloads.len()).ok_or_else(
            || {
                Error::new(format!(
                    "gathered acknowledgements claim {} bytes, there is room for {}",
                    sizes[0],
                    self.payloads.len()
                ))
            },
        )?;
        stream.copy(self.payloads.slice(0..bytes), self.payload.slice(0..bytes))?;
        let mut gathered = vec![0; bytes];
        {
            let _site = call_site!("read ack payload");
            stream.download_blocking(&mut gathered, self.payloads.slice(0..bytes))?;
        }
        Ok(gathered.as_chunks().0.iter().map(|&id| u64::from_le_bytes(id)).collect())
    }
}
