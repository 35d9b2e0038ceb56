//! The beginning of each activity record that syncaudit reads.
//!
//! In: a buffer that CUPTI filled. Out: one [`Record`] per record. A struct here ends where the oldest supported
//! version (12.1) ended: every later version appends, so reading this much is right for all of them. Must never
//! step by `size_of`: the stride is the library's own (88, 96 or 112 bytes for a copy, by version).

use std::ffi::c_char;

use crate::{CuptiResult, Library, kind};

/// What every record begins with.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Header {
    pub kind: u32,
}

/// A copy; prefix of `CUpti_ActivityMemcpy5`. Times in CUPTI's clock.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memcpy {
    pub kind: u32,
    pub copy_kind: u8,
    pub src_kind: u8,
    pub dst_kind: u8,
    pub flags: u8,
    pub bytes: u64,
    pub start_ns: u64,
    pub end_ns: u64,
    pub device_id: u32,
    pub context_id: u32,
    pub stream_id: u32,
    pub correlation_id: u32,
    pub runtime_correlation_id: u32,
    pub pad: u32,
    pub reserved0: u64,
    pub graph_node_id: u64,
    pub graph_id: u32,
    pub channel_id: u32,
    pub channel_type: u32,
    pub pad2: u32,
}

/// A copy between devices; `CUpti_ActivityMemcpyPtoP4`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemcpyPeer {
    pub kind: u32,
    pub copy_kind: u8,
    pub src_kind: u8,
    pub dst_kind: u8,
    pub flags: u8,
    pub bytes: u64,
    pub start_ns: u64,
    pub end_ns: u64,
    pub device_id: u32,
    pub context_id: u32,
    pub stream_id: u32,
    pub src_device_id: u32,
    pub src_context_id: u32,
    pub dst_device_id: u32,
    pub dst_context_id: u32,
    pub correlation_id: u32,
    pub reserved0: u64,
    pub graph_node_id: u64,
    pub graph_id: u32,
    pub channel_id: u32,
    pub channel_type: u32,
    pub pad: u32,
}

/// A memset; prefix of `CUpti_ActivityMemset4`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memset {
    pub kind: u32,
    pub value: u32,
    pub bytes: u64,
    pub start_ns: u64,
    pub end_ns: u64,
    pub device_id: u32,
    pub context_id: u32,
    pub stream_id: u32,
    pub correlation_id: u32,
    pub flags: u16,
    pub memory_kind: u16,
    pub pad: u32,
    pub reserved0: u64,
    pub graph_node_id: u64,
    pub graph_id: u32,
    pub channel_id: u32,
    pub channel_type: u32,
    pub pad2: u32,
}

/// An explicit synchronise; `CUpti_ActivitySynchronization` (12.8 appends 16 bytes).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Synchronization {
    pub kind: u32,
    pub type_: u32,
    pub start_ns: u64,
    pub end_ns: u64,
    pub correlation_id: u32,
    pub context_id: u32,
    /// `u32::MAX` (`CUPTI_SYNCHRONIZATION_INVALID_VALUE`) where the type has no stream.
    pub stream_id: u32,
    pub cuda_event_id: u32,
}

/// Time that CUPTI or the driver spent on itself; `CUpti_ActivityOverhead`. 12.4 appends the correlation id.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overhead {
    pub kind: u32,
    pub overhead_kind: u32,
    pub object_kind: u32,
    /// Process and thread, or device, context and stream, by `object_kind`.
    pub object_id: [u32; 3],
    pub start_ns: u64,
    pub end_ns: u64,
}

/// An API call; `CUpti_ActivityAPI`. Enabled for its correlation ids, not read further.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Api {
    pub kind: u32,
    pub cbid: u32,
    pub start_ns: u64,
    pub end_ns: u64,
    pub process_id: u32,
    pub thread_id: u32,
    pub correlation_id: u32,
    pub return_value: u32,
}

/// A kernel; prefix of `CUpti_ActivityKernel9` to `Kernel13`, up to its graph.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    pub kind: u32,
    pub cache_config: u8,
    pub shared_memory_config: u8,
    pub registers_per_thread: u16,
    pub partitioned_global_cache_requested: u32,
    pub partitioned_global_cache_executed: u32,
    pub start_ns: u64,
    pub end_ns: u64,
    pub completed_ns: u64,
    pub device_id: u32,
    pub context_id: u32,
    pub stream_id: u32,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub static_shared_memory: u32,
    pub dynamic_shared_memory: u32,
    pub local_memory_per_thread: u32,
    pub local_memory_total: u32,
    pub correlation_id: u32,
    pub grid_id: u64,
    /// NUL-terminated, lives as long as the library.
    pub name: *const c_char,
    pub reserved0: u64,
    pub queued_ns: u64,
    pub submitted_ns: u64,
    pub launch: [u8; 4],
    pub shared_memory_executed: u32,
    pub graph_node_id: u64,
    pub shmem_limit_config: u32,
    pub graph_id: u32,
}

/// One record of a buffer, borrowed from it.
#[derive(Clone, Copy, Debug)]
pub enum Record<'buffer> {
    Memcpy(&'buffer Memcpy),
    MemcpyPeer(&'buffer MemcpyPeer),
    Memset(&'buffer Memset),
    Synchronization(&'buffer Synchronization),
    /// With the correlation id of the call it happened in: 0 before 12.4, and where there is none.
    Overhead(&'buffer Overhead, u32),
    Api(&'buffer Api),
    Kernel(&'buffer Kernel),
    /// A kind that syncaudit doesn't read; its number.
    Other(u32),
}

/// Steps through a filled buffer with the library's own strides.
pub struct Records<'buffer> {
    library: &'buffer Library,
    buffer: &'buffer [u8],
    current: *mut u8,
    ended_with: Option<CuptiResult>,
    /// `CUpti_ActivityOverhead2`, since 12.4.
    overhead_has_correlation: bool,
}

/// `cuptiGetVersion` of 12.4.
const VERSION_12_4: u32 = 22;
/// Where `CUpti_ActivityOverhead2` has its correlation id.
const OVERHEAD_CORRELATION: usize = 40;

impl<'buffer> Records<'buffer> {
    /// `buffer` is the valid part of a buffer that CUPTI returned (8-byte aligned, as it was handed out).
    pub fn new(library: &'buffer Library, buffer: &'buffer [u8]) -> Self {
        let overhead_has_correlation = library.version().is_ok_and(|version| version >= VERSION_12_4);
        Self { library, buffer, current: std::ptr::null_mut(), ended_with: None, overhead_has_correlation }
    }

    /// Why stepping stopped: `MAX_LIMIT_REACHED` is the regular end, all else means that records were lost.
    pub fn ended_with(&self) -> Option<CuptiResult> {
        self.ended_with
    }

    fn overhead_correlation(&self) -> u32 {
        #[repr(C)]
        struct Overhead2 {
            _prefix: [u8; OVERHEAD_CORRELATION],
            correlation_id: u32,
        }
        let whole = if self.overhead_has_correlation { self.prefix::<Overhead2>() } else { None };
        whole.map_or(0, |record| record.correlation_id)
    }

    /// Reads the record at `current` if a whole `T` fits into the rest of the buffer.
    fn prefix<T>(&self) -> Option<&'buffer T> {
        let offset = (self.current as usize).checked_sub(self.buffer.as_ptr() as usize)?;
        let fits = offset.checked_add(size_of::<T>())? <= self.buffer.len();
        if !fits || !(self.current as usize).is_multiple_of(align_of::<T>()) {
            return None;
        }
        // SAFETY: in bounds and aligned (just checked); every `T` used here is plain integers and raw pointers, for
        // which any bytes are a value; the buffer is borrowed for as long as the result.
        Some(unsafe { &*self.current.cast::<T>() })
    }
}

impl<'buffer> Iterator for Records<'buffer> {
    type Item = Record<'buffer>;

    fn next(&mut self) -> Option<Record<'buffer>> {
        if self.ended_with.is_some() {
            return None;
        }
        // SAFETY: the library only reads the `buffer.len()` bytes that it filled itself, and `current` is null or
        // was set by its previous answer for the same buffer.
        let result = unsafe {
            (self.library.activity_get_next_record)(
                self.buffer.as_ptr().cast_mut(),
                self.buffer.len(),
                &mut self.current,
            )
        };
        if !result.is_ok() {
            self.ended_with = Some(result);
            return None;
        }
        let record = self.prefix::<Header>().and_then(|header| {
            Some(match header.kind {
                kind::MEMCPY => Record::Memcpy(self.prefix()?),
                kind::MEMCPY2 => Record::MemcpyPeer(self.prefix()?),
                kind::MEMSET => Record::Memset(self.prefix()?),
                kind::SYNCHRONIZATION => Record::Synchronization(self.prefix()?),
                kind::OVERHEAD => Record::Overhead(self.prefix()?, self.overhead_correlation()),
                kind::DRIVER | kind::RUNTIME => Record::Api(self.prefix()?),
                kind::KERNEL | kind::CONCURRENT_KERNEL => Record::Kernel(self.prefix()?),
                other => Record::Other(other),
            })
        });
        if record.is_none() {
            self.ended_with = Some(CuptiResult::UNKNOWN);
        }
        record
    }
}
