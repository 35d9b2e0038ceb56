//! The shared library that is loaded into the traced program.
//!
//! In: what the driver (CUPTI callbacks and records) and NVTX tell about the program. Out: the event log of the process,
//! written as things happen. Must never abort, block, slow down or change the program: no panic leaves it, no lock is held
//! across a call of the program's, nothing is called back into CUDA or Python, and every failure means less
//! recording plus one line on stderr.
//!
//! Start reading at [`entry`] (how it is loaded), then `session` (what is recorded to), `calls` (what is recorded of a
//! CUDA call) and [`nvtx`].

mod boundary;
mod calls;
mod clock;
mod cupti;
mod driver;
pub mod entry;
pub mod nvtx;
mod session;
mod stacks;
mod thread;
mod trace_dir;
