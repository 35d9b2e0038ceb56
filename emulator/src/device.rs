//! The one device: identity, attributes of an H100, and the state of its primary context.

use std::ffi::c_char;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};

use crate::args::{Out, Text};
use crate::context::Context;
use crate::error::{self, Error, Result};
use crate::handles::{self, lock};
use crate::heap;

const NAME: &str = "NVIDIA H100 80GB HBM3 (emulated by syncaudit)";
const PCI_BUS_ID: &str = "0000:E0:00.0";
/// "syncaudit" and a version, so that no one takes it for a real device's.
const UUID: [u8; 16] = *b"syncaudit-emu-01";

/// The primary context and who holds it.
pub struct PrimaryState {
    /// The same handle through every re-creation, as with the real driver.
    pub handle: usize,
    pub references: u32,
    pub flags: u32,
    pub context: Option<Arc<Context>>,
}

static PRIMARY: LazyLock<Mutex<PrimaryState>> = LazyLock::new(|| {
    Mutex::new(PrimaryState { handle: handles::fresh(), references: 0, flags: 0, context: None })
});

/// The primary context's state.
pub fn primary() -> MutexGuard<'static, PrimaryState> {
    lock(&PRIMARY)
}

/// True for the primary context's handle.
pub fn is_primary(handle: usize) -> bool {
    primary().handle == handle
}

/// Refuses every device but 0.
pub fn check(dev: i32) -> Result {
    if dev == 0 { Ok(()) } else { Err(Error::INVALID_DEVICE) }
}

entry_points! {
    cuDeviceGetCount(count: Out<i32>) => count.set(1);
    cuDeviceGet(device: Out<i32>, ordinal: i32) => check(ordinal).and_then(|()| device.set(0));
    cuDeviceGetName(name: Out<c_char>, len: i32, dev: i32) => check(dev).and_then(|()| text(name, len, NAME));
    cuDeviceGetUuid(uuid: Out<[u8; 16]>, dev: i32) => check(dev).and_then(|()| uuid.set(UUID));
    cuDeviceGetUuid_v2(uuid: Out<[u8; 16]>, dev: i32) => check(dev).and_then(|()| uuid.set(UUID));
    cuDeviceTotalMem_v2(bytes: Out<usize>, dev: i32) => check(dev).and_then(|()| bytes.set(heap::TOTAL_BYTES));
    cuDeviceComputeCapability(major: Out<i32>, minor: Out<i32>, dev: i32) => capability(major, minor, dev);
    cuDeviceGetAttribute(pi: Out<i32>, attrib: u32, dev: i32)
        => check(dev).and_then(|()| pi.set(attribute(attrib).ok_or(Error::INVALID_VALUE)?));
    cuDeviceGetPCIBusId(id: Out<c_char>, len: i32, dev: i32) => check(dev).and_then(|()| text(id, len, PCI_BUS_ID));
    cuDeviceGetByPCIBusId(dev: Out<i32>, id: Text) => by_bus_id(dev, id);
    cuDeviceCanAccessPeer(can: Out<i32>, dev: i32, peer: i32) => check(dev).and(check(peer)).and_then(|()| can.set(0));
    cuDeviceGetP2PAttribute(value: Out<i32>, attrib: u32, src: i32, dst: i32) => p2p(value, attrib, src, dst);
    cuDeviceGetExecAffinitySupport(pi: Out<i32>, kind: u32, dev: i32)
        => if kind == 0 { check(dev).and_then(|()| pi.set(0)) } else { Err(Error::INVALID_VALUE) };
    cuGetErrorName(error: u32, text: Out<*const c_char>) [anywhere] => say(text, error::name(error));
    cuGetErrorString(error: u32, text: Out<*const c_char>) [anywhere] => say(text, error::description(error));
}

fn say(out: Out<*const c_char>, text: Option<&'static std::ffi::CStr>) -> Result {
    out.set(text.map_or(std::ptr::null(), std::ffi::CStr::as_ptr))?;
    text.map(drop).ok_or(Error::INVALID_VALUE)
}

/// Writes `value` as a C string of at most `len` bytes, cut if it must be.
fn text(out: Out<c_char>, len: i32, value: &str) -> Result {
    out.check()?;
    let room = usize::try_from(len).ok().filter(|l| *l > 0).ok_or(Error::INVALID_VALUE)? - 1;
    let bytes = &value.as_bytes()[..value.len().min(room)];
    for (i, byte) in bytes.iter().chain([&0]).enumerate() {
        out.set_at(i, *byte as c_char);
    }
    Ok(())
}

fn capability(major: Out<i32>, minor: Out<i32>, dev: i32) -> Result {
    check(dev)?;
    major.set(9)?;
    minor.set(0)
}

fn by_bus_id(dev: Out<i32>, id: Text) -> Result {
    // Accepted with and without the domain, in either case.
    let id = id.get()?.to_uppercase();
    if PCI_BUS_ID.trim_end_matches(".0").ends_with(id.trim_end_matches(".0")) && id.len() >= 5 {
        dev.set(0)
    } else {
        Err(Error::INVALID_VALUE)
    }
}

fn p2p(value: Out<i32>, attrib: u32, src: i32, dst: i32) -> Result {
    check(src)?;
    check(dst)?;
    // One device has no peers; a device paired with itself is refused.
    if !(1..=4).contains(&attrib) || src == dst {
        return Err(Error::INVALID_VALUE);
    }
    value.set(0)
}

/// Attributes by number. H100 SXM values where they are public; what the emulated device can't do says 0.
#[rustfmt::skip]
fn attribute(attrib: u32) -> Option<i32> {
    Some(match attrib {
        1 => 1024,              // threads per block
        2 | 3 => 1024,          // block dimension x, y
        4 => 64,                // block dimension z
        5 => i32::MAX,          // grid dimension x
        6 | 7 => 65535,         // grid dimension y, z
        8 => 49152,             // shared memory per block
        9 => 65536,             // constant memory
        10 => 32,               // warp
        11 => i32::MAX,         // pitch
        12 | 82 => 65536,       // registers per block, per multiprocessor
        13 => 1_980_000,        // clock, kHz
        14 => 512,              // texture alignment
        15 | 31 => 1,           // overlap, concurrent kernels
        16 => 132,              // multiprocessors
        17 | 18 => 0,           // execution timeout, integrated
        19 => 1,                // maps host memory
        20 => 0,                // compute mode
        21 | 55 | 56 => 131_072, // 1D textures and surfaces
        22 => 131_072, 23 | 57 => 65536, 24..=26 | 58..=60 => 16384,
        27 | 28 | 42 | 61 | 63 | 64 => 32768, 29 | 43 | 62 | 65 => 2048,
        30 => 512,              // surface alignment
        32 => 1,                // ECC
        33 => 0xe0,             // PCI bus
        34 | 50 => 0,           // PCI device, domain
        35 => 0,                // TCC
        36 => 2_619_000,        // memory clock, kHz
        37 => 5120,             // bus width, bits
        38 => 52_428_800,       // L2, bytes
        39 => 2048,             // threads per multiprocessor
        40 => 3,                // copy engines
        41 => 1,                // unified addressing
        44 => 1, 45 | 46 => 32768, 47..=49 => 16384, 51 => 32,
        52 | 53 | 66 | 67 => 32768, 54 | 68 => 2046,
        69 => 268_435_456, 70 => 131_072, 71 => 65000, 72 => 2_097_120, 73 | 74 | 77 => 32768,
        75 => 9, 76 => 0,       // compute capability
        78 => 1,                // stream priorities
        79 | 80 => 1,           // L1
        81 => 233_472,          // shared memory per multiprocessor
        83 => 1,                // managed memory
        84..=86 => 0,           // multi-GPU board, host atomics
        87 => 2,                // single to double ratio
        88 => 0,                // pageable memory access
        89 => 1,                // concurrent managed access
        90 => 1,                // preemption
        91 => 1,                // host pointer for registered memory
        92..=94 => 0,           // stream memory operations, version 1
        95 => 1,                // cooperative launch
        96 => 0,                // multi-device cooperative launch
        97 => 232_448,          // shared memory per block, opt-in
        98 => 0,
        99 => 1,                // host register
        100..=105 => 0,         // page tables, virtual memory management, shareable handles
        106 => 32,              // blocks per multiprocessor
        107 => 0,
        108 => 32_768_000, 109 => 134_213_632,
        110 => 0,
        111 => 1024,            // reserved shared memory per block
        112 => 0,
        113 => 1,               // read-only host registration
        114 => 0,
        115 => 1,               // memory pools
        116..=119 => 0,         // RDMA, shareable pool handles
        120 => 1,               // clusters
        121..=125 => 0,
        126 => 4,               // memory sync domains
        127..=129 => 0,
        130 => 0, 131 => -1, 132 | 133 => 0, 134 => 0, 135..=137 => 0,
        139 => 0x2330_10de, 140 => 0x16c1_10de, 143 => 0,
        _ => return None,
    })
}
