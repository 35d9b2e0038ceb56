//! What is known about one CUDA call, and how its arguments are read during a callback.
//!
//! In: the argument block that CUPTI hands to a callback. Out: stream, bytes, direction, object. Must never follow
//! a pointer that the call itself doesn't follow on the host (descriptors of 2D and 3D copies, size lists of
//! batches), and never read the data being copied.

use std::ffi::c_void;

/// A CUDA call that syncaudit looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// [`crate::domain`].
    pub domain: u32,
    pub cbid: u32,
    /// As a program spells it: without the `_v3020` that tells header versions apart.
    pub name: &'static str,
    pub class: Class,
    pub params: Params,
}

/// What a call is for. Says nothing about whether it blocked: that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    StreamSync,
    EventSync,
    DeviceSync,
    /// Copy without `Async` in its name.
    Copy,
    CopyAsync,
    /// Memset without `Async` in its name.
    Memset,
    /// Pinned memory: allocate or register.
    HostAlloc,
    HostFree,
    DeviceAlloc,
    DeviceFree,
    /// Stream-ordered allocation.
    StreamAlloc,
    StreamFree,
    ModuleLoad,
    /// Look-up of a function, which may load it lazily.
    ModuleLookup,
    ModuleUnload,
    StreamQuery,
    EventQuery,
    EventRecord,
    GraphLaunch,
    /// A kernel; looked at only for a timeline.
    Launch,
    /// Memset with `Async` in its name; looked at only for a timeline.
    MemsetAsync,
    /// The device waits, not the host; looked at only for a timeline.
    StreamWaitEvent,
    HostFunc,
    ContextDestroy,
}

/// Where the bytes go, as far as the call itself says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    HostToDevice,
    DeviceToHost,
    DeviceToDevice,
    HostToHost,
    PeerToPeer,
}

/// The arguments that syncaudit records. `None`: the call has no such argument, or doesn't tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallArguments {
    /// Stream handle; 0 and 1 are the legacy default stream, 2 the per-thread one.
    pub stream: Option<u64>,
    /// Event or executable-graph handle.
    pub object: Option<u64>,
    pub bytes: Option<u64>,
    pub direction: Option<Direction>,
}

/// Layout of an argument block (`<name>_params` in the headers): offsets in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    size: u16,
    stream: Option<u16>,
    object: Option<u16>,
    /// `cudaMemcpyKind`.
    kind: Option<u16>,
    bytes: Bytes,
    direction: Option<Direction>,
}

/// How a call says how much it moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bytes {
    None,
    /// One or two factors in the block (`size_t`) times the element size.
    Elements {
        count: u16,
        rows: Option<u16>,
        size: u8,
    },
    /// A pointer to `CUDA_MEMCPY2D`.
    Copy2d(u16),
    /// A pointer to `CUDA_MEMCPY3D` or `CUDA_MEMCPY3D_PEER`, which lie alike.
    Copy3d(u16),
    /// A pointer to `cudaMemcpy3DParms`.
    RuntimeCopy3d(u16),
    /// A pointer to `count` sizes.
    Batch {
        sizes: u16,
        count: u16,
    },
}

/// Field offsets of the descriptors (cuda.h, driver_types.h); compared with `cudarc` in `tests/layout.rs`.
pub mod descriptor {
    pub mod copy2d {
        pub const SRC_MEMORY_TYPE: usize = 16;
        pub const DST_MEMORY_TYPE: usize = 72;
        pub const WIDTH: usize = 112;
        pub const HEIGHT: usize = 120;
    }
    pub mod copy3d {
        pub const SRC_MEMORY_TYPE: usize = 32;
        pub const DST_MEMORY_TYPE: usize = 120;
        pub const WIDTH: usize = 176;
        pub const HEIGHT: usize = 184;
        pub const DEPTH: usize = 192;
    }
    pub mod runtime_copy3d {
        pub const SRC_ARRAY: usize = 0;
        pub const DST_ARRAY: usize = 64;
        pub const EXTENT: usize = 128;
        pub const KIND: usize = 152;
    }
    /// `CUmemorytype`.
    pub const HOST: u32 = 1;
    pub const DEVICE: u32 = 2;
    pub const ARRAY: u32 = 3;
}

/// A batch larger than this is not added up: the callback must stay short.
const MAX_BATCH: u64 = 4096;

impl Params {
    /// A block of `size` bytes with nothing of interest in it; the other functions add to it.
    pub(crate) const fn of(size: u16) -> Self {
        Self { size, stream: None, object: None, kind: None, bytes: Bytes::None, direction: None }
    }
    pub(crate) const fn stream(mut self, at: u16) -> Self {
        self.stream = Some(at);
        self
    }
    pub(crate) const fn object(mut self, at: u16) -> Self {
        self.object = Some(at);
        self
    }
    pub(crate) const fn kind(mut self, at: u16) -> Self {
        self.kind = Some(at);
        self
    }
    pub(crate) const fn direction(mut self, direction: Direction) -> Self {
        self.direction = Some(direction);
        self
    }
    pub(crate) const fn bytes(self, at: u16) -> Self {
        self.elements(at, 1)
    }
    pub(crate) const fn bytes2d(self, width: u16, height: u16) -> Self {
        self.elements2d(width, height, 1)
    }
    pub(crate) const fn elements(mut self, count: u16, size: u8) -> Self {
        self.bytes = Bytes::Elements { count, rows: None, size };
        self
    }
    pub(crate) const fn elements2d(mut self, count: u16, rows: u16, size: u8) -> Self {
        self.bytes = Bytes::Elements { count, rows: Some(rows), size };
        self
    }
    pub(crate) const fn copy2d(mut self, at: u16) -> Self {
        self.bytes = Bytes::Copy2d(at);
        self
    }
    pub(crate) const fn copy3d(mut self, at: u16) -> Self {
        self.bytes = Bytes::Copy3d(at);
        self
    }
    pub(crate) const fn runtime_copy3d(mut self, at: u16) -> Self {
        self.bytes = Bytes::RuntimeCopy3d(at);
        self
    }
    pub(crate) const fn batch(mut self, sizes: u16, count: u16) -> Self {
        self.bytes = Bytes::Batch { sizes, count };
        self
    }

    /// Size of the argument block in bytes.
    pub const fn size(&self) -> usize {
        self.size as usize
    }

    /// Offset of the stream handle in the argument block.
    pub const fn stream_offset(&self) -> Option<u16> {
        self.stream
    }

    /// Offset of the event or executable-graph handle in the argument block.
    pub const fn object_offset(&self) -> Option<u16> {
        self.object
    }

    /// Offset of the `cudaMemcpyKind` in the argument block.
    pub const fn kind_offset(&self) -> Option<u16> {
        self.kind
    }

    /// Every (offset, size) that [`read`](Self::read) touches in the argument block.
    pub fn reads(&self) -> Vec<(usize, usize)> {
        let mut reads = Vec::new();
        reads.extend([self.stream, self.object].into_iter().flatten().map(|at| (at as usize, 8)));
        reads.extend(self.kind.map(|at| (at as usize, 4)));
        match self.bytes {
            Bytes::None => {}
            Bytes::Elements { count, rows, .. } => {
                reads.push((count as usize, 8));
                reads.extend(rows.map(|at| (at as usize, 8)));
            }
            Bytes::Copy2d(at) | Bytes::Copy3d(at) | Bytes::RuntimeCopy3d(at) => reads.push((at as usize, 8)),
            Bytes::Batch { sizes, count } => reads.extend([(sizes as usize, 8), (count as usize, 8)]),
        }
        reads
    }

    /// Reads the arguments of a call that is under way.
    ///
    /// # Safety
    /// `block` is null or the argument block of a call with this layout, and its descriptors are readable, as they
    /// are between ENTER and EXIT of that call.
    pub unsafe fn read(&self, block: *const c_void) -> CallArguments {
        if block.is_null() {
            return CallArguments { direction: self.direction, ..CallArguments::default() };
        }
        // SAFETY: the caller says that `block` has this layout; `reads()` is tested to lie inside of it.
        unsafe {
            let (bytes, described) = self.read_bytes(block);
            let kind = self.kind.map(|at| u32_at(block, at as usize)).and_then(runtime_direction);
            CallArguments {
                stream: self.stream.map(|at| u64_at(block, at as usize)),
                object: self.object.map(|at| u64_at(block, at as usize)),
                bytes,
                direction: self.direction.or(kind).or(described),
            }
        }
    }

    /// # Safety
    /// As for [`read`](Self::read), and `block` is not null.
    unsafe fn read_bytes(&self, block: *const c_void) -> (Option<u64>, Option<Direction>) {
        // SAFETY: offsets of this layout; descriptors are readable during the call (caller's promise).
        unsafe {
            match self.bytes {
                Bytes::None => (None, None),
                Bytes::Elements { count, rows, size } => {
                    let rows = rows.map_or(1, |at| u64_at(block, at as usize));
                    let elements = u64_at(block, count as usize).saturating_mul(rows);
                    (Some(elements.saturating_mul(u64::from(size))), None)
                }
                Bytes::Copy2d(at) => {
                    use descriptor::copy2d::*;
                    let Some(copy) = pointer_at(block, at) else { return (None, None) };
                    let bytes = u64_at(copy, WIDTH).saturating_mul(u64_at(copy, HEIGHT));
                    let direction =
                        driver_direction(u32_at(copy, SRC_MEMORY_TYPE), u32_at(copy, DST_MEMORY_TYPE));
                    (Some(bytes), direction)
                }
                Bytes::Copy3d(at) => {
                    use descriptor::copy3d::*;
                    let Some(copy) = pointer_at(block, at) else { return (None, None) };
                    let rows = u64_at(copy, HEIGHT).saturating_mul(u64_at(copy, DEPTH));
                    let direction =
                        driver_direction(u32_at(copy, SRC_MEMORY_TYPE), u32_at(copy, DST_MEMORY_TYPE));
                    (Some(u64_at(copy, WIDTH).saturating_mul(rows)), direction)
                }
                Bytes::RuntimeCopy3d(at) => {
                    use descriptor::runtime_copy3d::*;
                    let Some(copy) = pointer_at(block, at) else { return (None, None) };
                    // With an array on either side the width counts elements of a size not told here.
                    let elements = u64_at(copy, SRC_ARRAY) != 0 || u64_at(copy, DST_ARRAY) != 0;
                    let rows = u64_at(copy, EXTENT + 8).saturating_mul(u64_at(copy, EXTENT + 16));
                    let bytes = u64_at(copy, EXTENT).saturating_mul(rows);
                    ((!elements).then_some(bytes), runtime_direction(u32_at(copy, KIND)))
                }
                Bytes::Batch { sizes, count } => {
                    let Some(sizes) = pointer_at(block, sizes) else { return (None, None) };
                    let count = u64_at(block, count as usize);
                    let counted = if count <= MAX_BATCH { count as usize } else { return (None, None) };
                    let sum = (0..counted).fold(0u64, |sum, i| sum.saturating_add(u64_at(sizes, i * 8)));
                    (Some(sum), None)
                }
            }
        }
    }
}

/// `cudaMemcpyKind`; 4 (default) leaves it to the addresses.
fn runtime_direction(kind: u32) -> Option<Direction> {
    match kind {
        0 => Some(Direction::HostToHost),
        1 => Some(Direction::HostToDevice),
        2 => Some(Direction::DeviceToHost),
        3 => Some(Direction::DeviceToDevice),
        _ => None,
    }
}

/// From two `CUmemorytype`s; unified addresses don't tell.
fn driver_direction(src: u32, dst: u32) -> Option<Direction> {
    use descriptor::{ARRAY, DEVICE, HOST};
    match (src, dst) {
        (HOST, HOST) => Some(Direction::HostToHost),
        (HOST, DEVICE | ARRAY) => Some(Direction::HostToDevice),
        (DEVICE | ARRAY, HOST) => Some(Direction::DeviceToHost),
        (DEVICE | ARRAY, DEVICE | ARRAY) => Some(Direction::DeviceToDevice),
        _ => None,
    }
}

/// # Safety
/// 8 bytes at `base + at` are readable.
unsafe fn u64_at(base: *const c_void, at: usize) -> u64 {
    // SAFETY: caller's promise; unaligned reads are allowed.
    unsafe { base.byte_add(at).cast::<u64>().read_unaligned() }
}

/// # Safety
/// 4 bytes at `base + at` are readable.
unsafe fn u32_at(base: *const c_void, at: usize) -> u32 {
    // SAFETY: caller's promise; unaligned reads are allowed.
    unsafe { base.byte_add(at).cast::<u32>().read_unaligned() }
}

/// # Safety
/// 8 bytes at `base + at` are readable.
unsafe fn pointer_at(base: *const c_void, at: u16) -> Option<*const c_void> {
    // SAFETY: caller's promise.
    let pointer = unsafe { u64_at(base, at as usize) } as *const c_void;
    (!pointer.is_null()).then_some(pointer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cbid::{driver, find, runtime};
    use crate::domain;

    fn read<T>(domain: u32, cbid: u32, block: &T) -> CallArguments {
        let call = find(domain, cbid).unwrap();
        assert!(size_of::<T>() >= call.params.size());
        // SAFETY: `T` has the layout of this call's block (each test below writes it out).
        unsafe { call.params.read(std::ptr::from_ref(block).cast()) }
    }

    #[test]
    fn an_async_read_tells_stream_bytes_and_direction() {
        // dstHost, srcDevice, ByteCount, hStream
        let block = [0x1000u64, 0x2000, 4, 0xabc];
        let read = read(domain::DRIVER_API, driver::CU_MEMCPY_DTOH_ASYNC_V2, &block);
        assert_eq!(
            read,
            CallArguments {
                stream: Some(0xabc),
                object: None,
                bytes: Some(4),
                direction: Some(Direction::DeviceToHost)
            }
        );
    }

    #[test]
    fn a_runtime_copy_tells_its_direction_by_kind_unless_it_is_default() {
        // dst, src, count, kind, stream
        for (kind, direction) in [
            (0, Some(Direction::HostToHost)),
            (1, Some(Direction::HostToDevice)),
            (2, Some(Direction::DeviceToHost)),
            (3, Some(Direction::DeviceToDevice)),
            (4, None),
        ] {
            let block = [1u64, 2, 4096, kind, 7];
            let read = read(domain::RUNTIME_API, runtime::CUDA_MEMCPY_ASYNC_V3020, &block);
            assert_eq!((read.bytes, read.stream, read.direction), (Some(4096), Some(7), direction));
        }
    }

    #[test]
    fn a_2d_copy_is_read_through_its_descriptor() {
        let mut copy = [0u64; 16];
        copy[descriptor::copy2d::SRC_MEMORY_TYPE / 8] = 2;
        copy[descriptor::copy2d::DST_MEMORY_TYPE / 8] = 1;
        copy[descriptor::copy2d::WIDTH / 8] = 100;
        copy[descriptor::copy2d::HEIGHT / 8] = 3;
        let block = [copy.as_ptr() as u64, 9];
        let read = read(domain::DRIVER_API, driver::CU_MEMCPY2D_ASYNC_V2, &block);
        assert_eq!((read.bytes, read.stream), (Some(300), Some(9)));
        assert_eq!(read.direction, Some(Direction::DeviceToHost));
    }

    #[test]
    fn a_batch_is_added_up_and_a_huge_or_null_one_left_alone() {
        let sizes = [10u64, 20, 30];
        let mut block = [0u64; 9];
        block[2] = sizes.as_ptr() as u64;
        block[3] = 3;
        assert_eq!(read(domain::DRIVER_API, driver::CU_MEMCPY_BATCH_ASYNC, &block).bytes, Some(60));
        block[2] = 0;
        assert_eq!(read(domain::DRIVER_API, driver::CU_MEMCPY_BATCH_ASYNC, &block).bytes, None);
    }

    #[test]
    fn memsets_count_bytes_not_elements() {
        let block = [0u64, 0, 8];
        assert_eq!(read(domain::DRIVER_API, driver::CU_MEMSETD32_V2, &block).bytes, Some(32));
    }

    #[test]
    fn a_missing_argument_block_is_no_arguments() {
        let call = find(domain::DRIVER_API, driver::CU_MEMCPY_DTOH_V2).unwrap();
        // SAFETY: null is allowed.
        let read = unsafe { call.params.read(std::ptr::null()) };
        assert_eq!(read.direction, Some(Direction::DeviceToHost));
        assert_eq!((read.bytes, read.stream), (None, None));
    }
}
