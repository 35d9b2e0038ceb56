//! `--waits acks`: the sample ids of a step gathered over the ranks as an object collective does it, sizes and payload
//! through the device, then committed by rank 0, and its word broadcast, before the next step starts. All on the training thread.
//!
//! One rank is a group of one: the gather itself is a copy on the device, every transfer around it is the real one, and there
//! is nobody to tell the result.

use crate::call_site;
use crate::device::{Buffer, Communicator, Device, Stream};
use crate::error::{Error, Result};
use std::sync::Arc;

/// Device memory of the collectives.
pub struct ObjectGather {
    size: Buffer<u64>,
    sizes: Buffer<u64>,
    payload: Buffer<u8>,
    payloads: Buffer<u8>,
    result: Buffer<u64>,
}

impl ObjectGather {
    /// Allocates room for `samples` ids of each of `ranks` ranks. Set-up only.
    pub fn new(device: &Arc<Device>, samples: usize, ranks: usize) -> Result<Self> {
        let bytes = samples * size_of::<u64>();
        Ok(ObjectGather {
            size: Buffer::zeros(device, 1)?,
            sizes: Buffer::zeros(device, ranks)?,
            payload: Buffer::zeros(device, bytes)?,
            payloads: Buffer::zeros(device, bytes * ranks)?,
            result: Buffer::zeros(device, 1)?,
        })
    }

    /// Sends the ids through the device and returns what came back: the ids of every rank.
    #[inline(never)]
    pub fn gather(
        &self,
        stream: &Stream,
        group: Option<&Communicator>,
        samples: &[u64],
    ) -> Result<Vec<Vec<u64>>> {
        let object: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
        {
            let _site = call_site!("upload ack size");
            stream.upload_blocking(self.size.view(), &[object.len() as u64])?;
        }
        match group {
            Some(group) => group.gather(stream, self.size.view(), self.sizes.view())?,
            None => stream.copy(self.sizes.view(), self.size.view())?,
        }
        let mut sizes = vec![0; self.sizes.len()];
        {
            let _site = call_site!("read ack sizes");
            stream.download_blocking(&mut sizes, self.sizes.view())?;
        }
        {
            let _site = call_site!("upload ack payload");
            stream.upload_blocking(self.payload.view(), &object)?;
        }
        // Objects of different sizes travel in parts of the largest.
        let largest = sizes.iter().copied().max().unwrap_or(0);
        let bytes =
            usize::try_from(largest).ok().filter(|&bytes| bytes <= self.payload.len()).ok_or_else(|| {
                Error::new(format!(
                    "gathered acknowledgements claim {largest} bytes, there is room for {}",
                    self.payload.len()
                ))
            })?;
        let (part, parts) = (self.payload.slice(0..bytes), self.payloads.slice(0..bytes * sizes.len()));
        match group {
            Some(group) => group.gather(stream, part, parts)?,
            None => stream.copy(parts, part)?,
        }
        let mut gathered = vec![0; parts.len()];
        {
            let _site = call_site!("read ack payload");
            stream.download_blocking(&mut gathered, parts)?;
        }
        let ids = |rank: usize, size: u64| {
            let object = &gathered[rank * bytes..rank * bytes + size as usize];
            object.as_chunks().0.iter().map(|&id| u64::from_le_bytes(id)).collect()
        };
        Ok(sizes.iter().enumerate().map(|(rank, &size)| ids(rank, size)).collect())
    }

    /// Rank 0 tells `committed`, the last step in the ledger; returns what it told.
    #[inline(never)]
    pub fn tell(&self, stream: &Stream, group: &Communicator, committed: u32) -> Result<u32> {
        if group.rank() == 0 {
            let _site = call_site!("upload ack result");
            stream.upload_blocking(self.result.view(), &[u64::from(committed)])?;
        }
        group.broadcast(stream, self.result.view())?;
        let mut told = [0];
        let _site = call_site!("read ack result");
        stream.download_blocking(&mut told, self.result.view())?;
        u32::try_from(told[0]).map_err(|_| Error::new(format!("rank 0 told of a step {}", told[0])))
    }
}
