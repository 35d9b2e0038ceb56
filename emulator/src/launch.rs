//! Kernel launches.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::abi::LaunchConfig;
use crate::args::In;
use crate::blocking::{self, Call};
use crate::capture;
use crate::context::{current, stream};
use crate::error::{Error, Result};
use crate::kernels::{Launch, Parameters};
use crate::module::function;
use crate::op::Op;
use crate::worker::{Role, Stream};

use Role::{Legacy, PerThread};

type Pointers = In<*const c_void>;

entry_points! {
    cuLaunchKernel(f: usize, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, hStream: usize, pointers: Pointers, extra: Pointers)
        => launch(f, [gx, gy, gz], [bx, by, bz], shared, stream(hStream, Legacy)?, Parameters { pointers, extra });
    cuLaunchKernel_ptsz(f: usize, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, hStream: usize, pointers: Pointers, extra: Pointers)
        => launch(f, [gx, gy, gz], [bx, by, bz], shared, stream(hStream, PerThread)?, Parameters { pointers, extra });
    cuLaunchCooperativeKernel(f: usize, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, hStream: usize, pointers: Pointers)
        => launch(f, [gx, gy, gz], [bx, by, bz], shared, stream(hStream, Legacy)?, Parameters { pointers, extra: In(std::ptr::null()) });
    cuLaunchCooperativeKernel_ptsz(f: usize, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, hStream: usize, pointers: Pointers)
        => launch(f, [gx, gy, gz], [bx, by, bz], shared, stream(hStream, PerThread)?, Parameters { pointers, extra: In(std::ptr::null()) });
    cuLaunchKernelEx(config: In<LaunchConfig>, f: usize, pointers: Pointers, extra: Pointers) => launch_ex(config, f, pointers, extra, Legacy);
    cuLaunchKernelEx_ptsz(config: In<LaunchConfig>, f: usize, pointers: Pointers, extra: Pointers) => launch_ex(config, f, pointers, extra, PerThread);
}

fn launch_ex(
    config: In<LaunchConfig>,
    f: usize,
    pointers: Pointers,
    extra: Pointers,
    default: Role,
) -> Result {
    let config = config.get()?;
    // Attributes tune scheduling; they change no result of a kernel that runs as one host function.
    if config.n_attributes > 0 && config.attributes.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    let stream = stream(config.stream, default)?;
    launch(f, config.grid, config.block, config.shared_bytes, stream, Parameters { pointers, extra })
}

/// A launch with its sizes checked and its parameters copied.
pub fn prepared(f: usize, grid: [u32; 3], block: [u32; 3], shared: u32, from: Parameters) -> Result<Launch> {
    let function = function(f)?;
    let threads = block.iter().try_fold(1u32, |n, b| n.checked_mul(*b)).filter(|n| (1..=1024).contains(n));
    if threads.is_none() || block[2] > 64 {
        return Err(Error::INVALID_VALUE);
    }
    if grid.contains(&0) || grid[0] > i32::MAX as u32 || grid[1] > 65_535 || grid[2] > 65_535 {
        return Err(Error::INVALID_VALUE);
    }
    if i64::from(shared) > i64::from(function.max_dynamic_shared.load(Ordering::Relaxed)) {
        return Err(Error::INVALID_VALUE);
    }
    Launch::new(function.name.clone(), grid, block, shared, from)
}

fn launch(
    f: usize,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: Arc<Stream>,
    from: Parameters,
) -> Result {
    current()?;
    let launch = prepared(f, grid, block, shared, from)?;
    let ticket = capture::submit(&stream, Op::Kernel(Arc::new(launch)))?;
    blocking::rule(Call::Launch).wait(&stream.context, Some(&stream), ticket.as_ref());
    Ok(())
}
