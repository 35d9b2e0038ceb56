//! NCCL: collectives between the trainers of a job, issued on a stream like any other device work.
//!
//! In: a unique id that rank 0 made, this process' rank. Out: averages, gathers and broadcasts that run when the stream gets
//! there. Only [`Communicator::join`] holds the host: until every rank is there.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};
use std::sync::Arc;

use cudarc::nccl::sys;

use super::memory::Pod;
use super::{Backend, Device, Error, Result, Stream, View};

/// This process' place in a group of trainers.
#[derive(Debug)]
pub struct Communicator {
    handle: sys::ncclComm_t,
    rank: usize,
    ranks: usize,
}

// SAFETY: NCCL allows a communicator to be used from any thread, one at a time; `&self` calls only enqueue, and all come
// from the training thread.
unsafe impl Send for Communicator {}
// SAFETY: as above.
unsafe impl Sync for Communicator {}

fn check(call: &'static str, result: sys::ncclResult_t) -> Result<()> {
    if result == sys::ncclResult_t::ncclSuccess {
        return Ok(());
    }
    let text = |pointer: *const std::ffi::c_char| {
        if pointer.is_null() {
            return String::new();
        }
        // SAFETY: NCCL answers with NUL-terminated texts that stay until its next error.
        unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
    };
    // SAFETY: takes a code.
    let status = text(unsafe { sys::ncclGetErrorString(result) });
    // SAFETY: the communicator is not used by this call, and may be null.
    let detail = text(unsafe { sys::ncclGetLastError(std::ptr::null_mut()) });
    Err(Error::Nccl { call, status, detail })
}

impl Communicator {
    /// Bytes of a unique id.
    pub const ID_BYTES: usize = 128;

    /// An id under which the ranks of one group find each other. Rank 0 makes it and tells the others.
    ///
    /// # Errors
    /// [`Error::NoNccl`] when no `libnccl` can be loaded; NCCL's own.
    pub fn unique_id() -> Result<Vec<u8>> {
        require_library()?;
        let mut id = sys::ncclUniqueId { internal: [0; Self::ID_BYTES] };
        // SAFETY: writes one id to a live local.
        check("ncclGetUniqueId", unsafe { sys::ncclGetUniqueId(&raw mut id) })?;
        Ok(id.internal.iter().map(|&byte| byte as u8).collect())
    }

    /// Joins the group. Set-up only: comes back when every rank has joined. The device's context must be current.
    ///
    /// # Errors
    /// [`Error::NoNccl`] when no `libnccl` can be loaded; NCCL's own, a rank that does not come among them.
    pub fn join(device: &Arc<Device>, id: &[u8], rank: usize, ranks: usize) -> Result<Self> {
        if matches!(device.backend, Backend::InProcess) {
            return Err(Error::misuse("an in-process device is alone: it has no collectives"));
        }
        require_library()?;
        let mut unique = sys::ncclUniqueId { internal: [0; Self::ID_BYTES] };
        Error::check_length(|| "NCCL's unique id".to_owned(), Self::ID_BYTES, id.len())?;
        for (to, from) in unique.internal.iter_mut().zip(id) {
            *to = *from as std::ffi::c_char;
        }
        let narrow =
            |n: usize| i32::try_from(n).map_err(|_| Error::misuse(format!("a group of {ranks} ranks")));
        let mut handle = std::ptr::null_mut();
        // SAFETY: writes one handle to a live local.
        let joined = unsafe { sys::ncclCommInitRank(&raw mut handle, narrow(ranks)?, unique, narrow(rank)?) };
        check("ncclCommInitRank", joined)?;
        Ok(Self { handle, rank, ranks })
    }

    /// This process' rank.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many ranks there are.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Replaces `values` by their average over the ranks.
    ///
    /// # Errors
    /// NCCL's.
    pub fn average(&self, stream: &Stream, values: View<f32>) -> Result<()> {
        let (at, stream) = (pointer(values), Self::stream(stream)?);
        let (float, average) = (sys::ncclDataType_t::ncclFloat32, sys::ncclRedOp_t::ncclAvg);
        // SAFETY: device memory of that length; handle and stream are alive.
        check("ncclAllReduce", unsafe {
            sys::ncclAllReduce(at, at, values.len(), float, average, self.handle, stream)
        })
    }

    /// Puts every rank's `own` into `all`, by rank.
    ///
    /// # Errors
    /// [`Error::Length`] when `all` is too short; NCCL's.
    pub fn gather<T: Pod>(&self, stream: &Stream, own: View<T>, all: View<T>) -> Result<()> {
        Error::check_length(|| "gathered values".to_owned(), own.len() * self.ranks, all.len())?;
        let (bytes, stream) = (own.len() * size_of::<T>(), Self::stream(stream)?);
        let byte = sys::ncclDataType_t::ncclUint8;
        // SAFETY: device memory of those lengths; handle and stream are alive.
        check("ncclAllGather", unsafe {
            sys::ncclAllGather(pointer(own), pointer(all), bytes, byte, self.handle, stream)
        })
    }

    /// Replaces `values` by those of rank 0.
    ///
    /// # Errors
    /// NCCL's.
    pub fn broadcast<T: Pod>(&self, stream: &Stream, values: View<T>) -> Result<()> {
        let (bytes, stream) = (values.len() * size_of::<T>(), Self::stream(stream)?);
        let (at, byte) = (pointer(values), sys::ncclDataType_t::ncclUint8);
        // SAFETY: device memory of that length; handle and stream are alive.
        check("ncclBroadcast", unsafe { sys::ncclBroadcast(at, at, bytes, byte, 0, self.handle, stream) })
    }

    fn stream(stream: &Stream) -> Result<sys::cudaStream_t> {
        let handle = stream.handle.as_ref();
        Ok(handle.ok_or_else(|| Error::misuse("a collective without a driver stream"))?.0.cast())
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        // SAFETY: joined once, destroyed once. A failure at the end has no one to report to.
        let _ = unsafe { sys::ncclCommDestroy(self.handle) };
    }
}

fn pointer<T: Pod>(view: View<T>) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(view.address() as usize)
}

fn require_library() -> Result<()> {
    // SAFETY: only asks the dynamic loader; cudarc panics later if the library is missing, hence this check first.
    if unsafe { sys::is_culib_present() } { Ok(()) } else { Err(Error::NoNccl) }
}
