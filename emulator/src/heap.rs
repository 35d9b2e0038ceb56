//! The emulated device's address space: every allocation the driver knows of, with bounds.
//!
//! What comes in: allocation requests and addresses from a program. What goes out: regions, and host pointers only
//! for byte ranges that lie inside one live region. Device memory lives in a range of its own (no host mapping is
//! there, so a host dereference faults as it would with a GPU) and is backed by host memory elsewhere; managed and
//! pinned memory has the same address on both sides, as unified addressing gives it.
//!
//! What it must never do: hand out a pointer past the end of a region, or unmap memory that someone still holds a
//! region of: a region's memory lives as long as its last `Arc`.

use std::alloc::Layout;
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::error::{Error, Result};

/// Where device memory starts.
pub const DEVICE_BASE: u64 = 0x0600_0000_0000;
/// Where the range of device memory ends.
const DEVICE_END: u64 = 0x0e00_0000_0000;
/// Alignment of every device allocation, as cudaMalloc guarantees at least 256.
const ALIGN: u64 = 512;
/// Unused addresses after each allocation, so that an overrun hits nothing.
const GUARD: u64 = 64 << 10;
/// Memory of the device: 80 GB, as on an H100.
pub const TOTAL_BYTES: usize = 80 << 30;

/// What kind of memory a region is. The numbers are CUPTI's memory kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Host memory that the driver does not know; never a region.
    Pageable = 1,
    /// Host memory from the driver, or registered with it.
    Pinned = 2,
    /// Device memory.
    Device = 3,
    /// Managed memory.
    Managed = 5,
}

/// How a region came to be; decides which call may free it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// `cuMemAlloc` and its relatives.
    Alloc,
    /// `cuMemAllocAsync`; the pool's handle.
    Pool(usize),
    /// `cuMemAllocManaged`.
    Managed,
    /// `cuMemHostAlloc` with its flags.
    Host(u32),
    /// `cuMemHostRegister` with its flags: the memory is the program's.
    Registered(u32),
}

/// Memory behind a region.
struct Backing {
    at: *mut u8,
    layout: Layout,
    /// From `mmap` (zero pages on demand) and not from the allocator.
    mapped: bool,
    owned: bool,
}
// SAFETY: the pointer is only an address; who may access the bytes is the program's business, as on a device.
unsafe impl Send for Backing {}
// SAFETY: as above.
unsafe impl Sync for Backing {}

impl Backing {
    /// Zeroed memory. Small blocks come from the allocator, large ones as zero pages that cost nothing until used.
    fn new(bytes: usize, align: usize) -> Result<Self> {
        let layout = Layout::from_size_align(bytes.max(1), align).map_err(|_| Error::OUT_OF_MEMORY)?;
        let mapped = bytes >= 64 << 10 && align <= 4096;
        let at = if mapped {
            let (rw, flags) = (
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            );
            // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing that exists.
            let at = unsafe { libc::mmap(std::ptr::null_mut(), layout.size(), rw, flags, -1, 0) };
            if at == libc::MAP_FAILED { std::ptr::null_mut() } else { at.cast() }
        } else {
            // SAFETY: the layout's size is not zero.
            unsafe { std::alloc::alloc_zeroed(layout) }
        };
        if at.is_null() { Err(Error::OUT_OF_MEMORY) } else { Ok(Self { at, layout, mapped, owned: true }) }
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        if self.mapped {
            // SAFETY: mapped by `new` with this size; no one holds the region any more.
            unsafe { libc::munmap(self.at.cast(), self.layout.size()) };
        } else {
            // SAFETY: allocated by `new` with this layout; no one holds the region any more.
            unsafe { std::alloc::dealloc(self.at, self.layout) };
        }
    }
}

/// One allocation.
pub struct Region {
    /// First address, as the program sees it.
    pub base: u64,
    /// Size in bytes.
    pub bytes: usize,
    pub kind: Kind,
    pub origin: Origin,
    /// Context that made it.
    pub context: u32,
    /// Unique number (CU_POINTER_ATTRIBUTE_BUFFER_ID).
    pub id: u64,
    /// CU_POINTER_ATTRIBUTE_SYNC_MEMOPS.
    pub sync_memops: AtomicBool,
    /// Set by `cuMemFreeAsync`: the region goes when its stream gets there.
    pub freeing: AtomicBool,
    backing: Backing,
}

impl Region {
    /// Host address of `addr`; the caller has checked that it lies inside.
    fn host(&self, addr: u64) -> *mut u8 {
        self.backing.at.wrapping_add((addr - self.base) as usize)
    }

    fn contains(&self, addr: u64, bytes: usize) -> bool {
        addr >= self.base
            && (addr - self.base) as usize <= self.bytes
            && bytes <= self.bytes - (addr - self.base) as usize
    }

    fn counts(&self) -> bool {
        matches!(self.kind, Kind::Device)
    }
}

/// Bytes of one region, kept mapped while held.
pub struct Bytes {
    /// First byte in host memory.
    pub at: *mut u8,
    /// Keeps the memory mapped.
    pub region: Option<Arc<Region>>,
}

struct Heap {
    regions: BTreeMap<u64, Arc<Region>>,
    cursor: u64,
}

static HEAP: RwLock<Heap> = RwLock::new(Heap { regions: BTreeMap::new(), cursor: DEVICE_BASE });
static USED: AtomicUsize = AtomicUsize::new(0);
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl Heap {
    fn find(&self, addr: u64) -> Option<&Arc<Region>> {
        let (_, region) = self.regions.range((Unbounded, Included(addr))).next_back()?;
        // A zero-byte lookup at the very end still belongs to no region.
        ((addr - region.base) < region.bytes as u64).then_some(region)
    }

    fn overlaps(&self, base: u64, bytes: u64) -> bool {
        self.find(base).is_some()
            || self.regions.range((Excluded(base), Excluded(base.saturating_add(bytes)))).next().is_some()
    }

    /// A free range of device addresses; wraps around once the range is used up.
    fn place(&mut self, bytes: u64) -> Option<u64> {
        let span = bytes.div_ceil(ALIGN) * ALIGN + GUARD;
        for _ in 0..2 {
            while self.cursor + span <= DEVICE_END {
                let base = self.cursor;
                let blocker = self.find(base).or_else(|| {
                    self.regions.range((Included(base), Excluded(base + span))).next().map(|(_, r)| r)
                });
                match blocker {
                    None => {
                        self.cursor = base + span;
                        return Some(base);
                    }
                    Some(region) => {
                        self.cursor = (region.base + region.bytes as u64).div_ceil(ALIGN) * ALIGN + GUARD;
                    }
                }
            }
            self.cursor = DEVICE_BASE;
        }
        None
    }
}

fn read<R>(f: impl FnOnce(&Heap) -> R) -> R {
    f(&HEAP.read().unwrap_or_else(PoisonError::into_inner))
}

fn write<R>(f: impl FnOnce(&mut Heap) -> R) -> R {
    f(&mut HEAP.write().unwrap_or_else(PoisonError::into_inner))
}

/// Allocates; the region's address is what the program gets.
///
/// # Errors
/// `INVALID_VALUE` for no bytes, `OUT_OF_MEMORY` beyond the device's or the machine's memory.
pub fn allocate(bytes: usize, origin: Origin, context: u32) -> Result<Arc<Region>> {
    if bytes == 0 {
        return Err(Error::INVALID_VALUE);
    }
    let (kind, align) = match origin {
        Origin::Alloc | Origin::Pool(_) => (Kind::Device, ALIGN as usize),
        Origin::Managed => (Kind::Managed, 4096),
        Origin::Host(_) => (Kind::Pinned, 4096),
        Origin::Registered(_) => return Err(Error::INVALID_VALUE),
    };
    if kind == Kind::Device {
        let claimed = USED.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |used| {
            used.checked_add(bytes).filter(|sum| *sum <= TOTAL_BYTES)
        });
        claimed.map_err(|_| Error::OUT_OF_MEMORY)?;
    }
    let release = |e| {
        if kind == Kind::Device {
            USED.fetch_sub(bytes, Ordering::SeqCst);
        }
        e
    };
    let backing = Backing::new(bytes, align).map_err(release)?;
    write(|heap| {
        let base = if kind == Kind::Device {
            heap.place(bytes as u64).ok_or(Error::OUT_OF_MEMORY)?
        } else {
            backing.at as u64
        };
        Ok(heap.insert(base, bytes, kind, origin, context, backing))
    })
    .map_err(release)
}

/// Registers host memory of the program.
///
/// # Errors
/// `HOST_MEMORY_ALREADY_REGISTERED` when any byte of it is known already.
pub fn register(base: u64, bytes: usize, flags: u32, context: u32) -> Result {
    write(|heap| {
        if heap.overlaps(base, bytes as u64) {
            return Err(Error::HOST_MEMORY_ALREADY_REGISTERED);
        }
        let layout = Layout::from_size_align(bytes, 1).map_err(|_| Error::INVALID_VALUE)?;
        let backing = Backing { at: base as *mut u8, layout, mapped: false, owned: false };
        heap.insert(base, bytes, Kind::Pinned, Origin::Registered(flags), context, backing);
        Ok(())
    })
}

impl Heap {
    fn insert(
        &mut self,
        base: u64,
        bytes: usize,
        kind: Kind,
        origin: Origin,
        context: u32,
        backing: Backing,
    ) -> Arc<Region> {
        let region = Arc::new(Region {
            base,
            bytes,
            kind,
            origin,
            context,
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            sync_memops: AtomicBool::new(false),
            freeing: AtomicBool::new(false),
            backing,
        });
        self.regions.insert(base, region.clone());
        region
    }
}

/// The region that holds `addr`.
pub fn find(addr: u64) -> Option<Arc<Region>> {
    read(|heap| heap.find(addr).cloned())
}

/// Takes a region out of the address space. Its memory goes when the last holder lets go of it.
pub fn free(base: u64) -> Option<Arc<Region>> {
    let region = write(|heap| heap.regions.remove(&base))?;
    if region.counts() {
        USED.fetch_sub(region.bytes, Ordering::SeqCst);
    }
    Some(region)
}

/// Frees what a context owned.
pub fn free_all_of(context: u32) {
    let bases: Vec<u64> =
        read(|heap| heap.regions.values().filter(|r| r.context == context).map(|r| r.base).collect());
    for base in bases {
        free(base);
    }
}

/// How many regions a context owns.
#[cfg(test)]
pub fn regions_of(context: u32) -> usize {
    read(|heap| heap.regions.values().filter(|r| r.context == context).count())
}

/// Device bytes in use.
pub fn used_bytes() -> usize {
    USED.load(Ordering::SeqCst)
}

/// Bytes in use that came from pool `pool`.
pub fn used_by_pool(pool: usize) -> usize {
    read(|heap| heap.regions.values().filter(|r| r.origin == Origin::Pool(pool)).map(|r| r.bytes).sum())
}

/// `bytes` bytes at `addr` in host memory, if they lie inside one region.
pub fn translate(addr: u64, bytes: usize) -> Option<Bytes> {
    read(|heap| {
        let region = heap.find(addr).filter(|r| r.contains(addr, bytes))?;
        Some(Bytes { at: region.host(addr), region: Some(region.clone()) })
    })
}

/// True for an address in the range of device memory.
pub fn is_device_address(addr: u64) -> bool {
    (DEVICE_BASE..DEVICE_END).contains(&addr)
}

/// True when every page of a range of host memory is mapped. A bad host pointer is then an error of the call and
/// not a crash of the program.
pub fn host_range_is_mapped(addr: u64, bytes: usize) -> bool {
    let Some(end) = addr.checked_add(bytes as u64) else { return false };
    if addr == 0 {
        return false;
    }
    // SAFETY: sysconf has no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    let (mut at, end) = (addr / page * page, end.div_ceil(page) * page);
    // In pieces, so that a wild length costs nothing: the first unmapped page ends it.
    let mut present = [0u8; 4096];
    while at < end {
        let pages = ((end - at) / page).min(present.len() as u64);
        // SAFETY: mincore only writes one byte per page into `present`, which has room for them.
        let answer =
            unsafe { libc::mincore(at as *mut _, (pages * page) as usize, present.as_mut_ptr().cast()) };
        if answer != 0 {
            return false;
        }
        at += pages * page;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ranges_inside_one_live_region_translate() {
        let a = allocate(1000, Origin::Alloc, 900).unwrap();
        assert_eq!(a.base % ALIGN, 0);
        assert!(is_device_address(a.base));
        assert_ne!(translate(a.base, 1).unwrap().at as u64, a.base);
        assert!(translate(a.base, 1000).is_some());
        assert!(translate(a.base + 999, 1).is_some());
        for (addr, bytes) in [(a.base, 1001), (a.base + 1000, 1), (a.base - 1, 2), (0, 1), (u64::MAX, 1)] {
            assert!(translate(addr, bytes).is_none(), "{addr:#x}+{bytes}");
        }
        assert!(translate(a.base + 1, usize::MAX).is_none());
        let base = a.base;
        drop(free(base));
        assert!(translate(base, 1).is_none());
        assert!(free(base).is_none(), "freed twice");
    }

    #[test]
    fn memory_stays_mapped_while_a_holder_reads_it() {
        let base = allocate(1 << 20, Origin::Alloc, 901).unwrap().base;
        let held = translate(base, 1 << 20).unwrap();
        free(base);
        // SAFETY: `held` keeps the region's memory mapped.
        assert_eq!(unsafe { held.at.add((1 << 20) - 1).read() }, 0);
    }

    #[test]
    fn allocations_have_gaps_between_them_and_never_share_addresses() {
        let regions: Vec<_> = (1..50).map(|i| allocate(i * 37, Origin::Alloc, 902).unwrap()).collect();
        for pair in regions.windows(2) {
            let gap = pair[0].base.abs_diff(pair[1].base);
            assert!(gap >= GUARD);
        }
        free_all_of(902);
        assert!(regions.iter().all(|r| find(r.base).is_none()));
    }

    #[test]
    fn more_than_the_device_has_is_out_of_memory() {
        assert_eq!(allocate(TOTAL_BYTES + 1, Origin::Alloc, 903).err(), Some(Error::OUT_OF_MEMORY));
        assert_eq!(allocate(usize::MAX, Origin::Alloc, 903).err(), Some(Error::OUT_OF_MEMORY));
        assert_eq!(allocate(0, Origin::Alloc, 903).err(), Some(Error::INVALID_VALUE));
    }

    #[test]
    fn registered_memory_is_known_once() {
        let buffer = [0u8; 100];
        let base = buffer.as_ptr() as u64;
        register(base, 100, 0, 904).unwrap();
        assert_eq!(register(base + 50, 10, 0, 904), Err(Error::HOST_MEMORY_ALREADY_REGISTERED));
        assert_eq!(register(base - 10, 20, 0, 904), Err(Error::HOST_MEMORY_ALREADY_REGISTERED));
        assert_eq!(find(base + 99).unwrap().kind, Kind::Pinned);
        free(base).unwrap();
        assert!(find(base).is_none());
    }

    #[test]
    fn unmapped_host_memory_is_seen_before_it_is_touched() {
        let here = [0u8; 10];
        assert!(host_range_is_mapped(here.as_ptr() as u64, 10));
        for bad in [0, 8, DEVICE_BASE, 0xdead_0000_0000_0000] {
            assert!(!host_range_is_mapped(bad, 8), "{bad:#x}");
        }
        assert!(!host_range_is_mapped(here.as_ptr() as u64, usize::MAX / 2));
    }
}
