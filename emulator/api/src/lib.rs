//! How a program gives the emulated device host implementations of its kernels.
//!
//! What comes in: a kernel's name, the sizes of its parameters and a closure. What goes out: a registration with
//! the emulated device that is mapped into this process, whose stream workers then call the closure once per
//! launch (not once per thread block) in stream order. On a machine with a GPU there is no emulated device:
//! [`Emulator::find`] answers `None` and the program launches its real kernels.
//!
//! ```no_run
//! use syncaudit_emulator_api::Emulator;
//!
//! if let Some(emulator) = Emulator::find() {
//!     // extern "C" __global__ void scale(float *x, float factor, unsigned n)
//!     emulator.register("scale", &[8, 4, 4], |launch| {
//!         let (x, factor, n) = (launch.param::<u64>(0)?, launch.param::<f32>(1)?, launch.param::<u32>(2)?);
//!         for value in launch.slice_mut::<f32>(x, n as usize)? {
//!             *value *= factor;
//!         }
//!         Ok(())
//!     })?;
//! }
//! # Ok::<(), syncaudit_emulator_api::RegisterError>(())
//! ```
//!
//! What it must never do: hand out device memory outside an allocation, hand out two overlapping slices of which
//! one is mutable within one launch, or let a panic of a kernel cross into the emulated device.
//!
//! What it can't do: see races. Two streams that touch the same memory without an event between them, or a host
//! thread that frees memory while a kernel runs, are errors on a device too; whoever calls the (unsafe) launch
//! function promises that there are none.

#![allow(unsafe_code)]

mod abi;
mod client;
mod launch;

pub use abi::{
    ABI_VERSION, KernelFunction, RawLaunch, RegisterFunction, TranslateFunction, VersionFunction, symbols,
};
pub use client::{Emulator, RegisterError};
pub use launch::{KernelError, LaunchArgs, Plain};
