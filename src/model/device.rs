//! What ran on the devices, and the words for copies and memory.
//!
//! In: activity records of any source. Out: plain data; numbers follow CUPTI's enumerations where one exists
//! (`CUpti_ActivityMemcpyKind`, `CUpti_ActivityMemoryKind`), importers with other numbering translate.

use super::StrId;

/// From where to where a copy goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CopyDirection {
    #[default]
    Unknown,
    HostToDevice,
    DeviceToHost,
    DeviceToDevice,
    HostToHost,
}

impl CopyDirection {
    /// From CUPTI's `CUpti_ActivityMemcpyKind` (arrays count as device memory).
    #[must_use]
    pub fn from_cupti(kind: u32) -> Self {
        match kind {
            1 | 3 => Self::HostToDevice,
            2 | 4 => Self::DeviceToHost,
            5..=8 | 10 => Self::DeviceToDevice,
            9 => Self::HostToHost,
            _ => Self::Unknown,
        }
    }
}

/// What kind of memory one side of a copy is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MemoryKind {
    #[default]
    Unknown,
    Pageable,
    Pinned,
    Device,
    Array,
    Managed,
}

impl MemoryKind {
    /// From CUPTI's `CUpti_ActivityMemoryKind`.
    #[must_use]
    pub fn from_cupti(kind: u32) -> Self {
        match kind {
            1 => Self::Pageable,
            2 => Self::Pinned,
            3 | 6 => Self::Device,
            4 => Self::Array,
            5 | 7 => Self::Managed,
            _ => Self::Unknown,
        }
    }
}

/// A stream as the program knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stream {
    /// The program's handle, 0 where only the number is known.
    pub handle: u64,
    /// The driver's number of it in activity records, where known.
    pub number: Option<u32>,
    pub device: u32,
    pub name: StrId,
}

/// Kind of a piece of device work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceOpKind {
    Kernel,
    Copy,
    Memset,
    /// The stream stood waiting for an event of another stream: no host wait.
    StreamWait,
    /// A host synchronise as the driver recorded it (enriches the call with the same correlation, never counted).
    Sync,
    Graph,
    Other,
}

/// One piece of work on a device.
#[derive(Clone, Debug)]
pub struct DeviceOp {
    pub start_ns: u64,
    pub end_ns: u64,
    /// Bytes copied or set.
    pub bytes: u64,
    /// Node of a CUDA graph, 0 for none: such work has no call of its own.
    pub graph_node: u64,
    /// Kernel name, where there is one.
    pub name: StrId,
    /// Links to [`super::Call::correlation`]; 0 for none.
    pub correlation: u32,
    pub stream: super::StreamId,
    pub device: u32,
    pub kind: DeviceOpKind,
    pub direction: CopyDirection,
    pub from: MemoryKind,
    pub to: MemoryKind,
}

impl Default for DeviceOp {
    fn default() -> Self {
        Self {
            start_ns: 0,
            end_ns: 0,
            bytes: 0,
            graph_node: 0,
            name: StrId::NONE,
            correlation: 0,
            stream: super::StreamId::NONE,
            device: 0,
            kind: DeviceOpKind::Other,
            direction: CopyDirection::Unknown,
            from: MemoryKind::Unknown,
            to: MemoryKind::Unknown,
        }
    }
}

/// What the driver spent host time on by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OverheadKind {
    /// `6 << 16`: a launch waited for space in the command buffer.
    CommandBufferFull,
    /// `4 << 16`, `5 << 16`: a module or function was loaded on first use.
    LazyLoading,
    Other,
}

impl OverheadKind {
    /// From CUPTI's `CUpti_ActivityOverheadKind`.
    #[must_use]
    pub fn from_cupti(kind: u32) -> Self {
        match kind >> 16 {
            6 => Self::CommandBufferFull,
            4 | 5 => Self::LazyLoading,
            _ => Self::Other,
        }
    }
}

/// Host time that the driver reported as its own.
#[derive(Clone, Debug)]
pub struct Overhead {
    pub start_ns: u64,
    pub end_ns: u64,
    /// Operating-system thread, 0 where the source doesn't say.
    pub tid: u64,
    /// Links to [`super::Call::correlation`]; 0 where the source doesn't say.
    pub correlation: u32,
    pub kind: OverheadKind,
}
