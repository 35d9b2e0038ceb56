//! An emulated CUDA device for machines without a GPU: stands in for `libcuda.so.1`, for `libcupti` as far as the
//! tracer uses it, and for `libnccl.so.2` as far as data-parallel training uses it.
//!
//! What comes in: calls of the public driver API and of the CUPTI functions a tracer uses, from any program. What
//! goes out: the documented results, real data movement in host-backed "device" memory, kernels run by the host
//! implementations a program registered, and the *waits* of a real driver: streams execute asynchronously, so a call
//! that blocks on a GPU really blocks here (`blocking.rs` says which).
//!
//! What it must never do: crash on a bad pointer or handle, report success without having written the outputs, keep
//! the process alive or hang it at exit or after fork, or implement anything but the public API.
//!
//! Where to look: one file per API family (`device`, `context`, `memory`, `copy`, `stream`, `event`, `module`,
//! `launch`, `graph`, `procaddr`); beneath them `heap` (the address space), `worker` (streams that execute), `op`
//! (what a stream executes), `capture` (stream capture), `blocking` (what makes the host wait), `cupti` and `nccl`.

#![allow(unsafe_code)] // a C library from end to end; the pointers are confined to `args`, `heap` and `op`

#[macro_use]
mod entry;

mod abi;
mod args;
pub mod blocking;
mod capture;
pub mod clock;
pub mod context;
pub mod copy;
pub mod cupti;
pub mod device;
mod error;
pub mod event;
pub mod graph;
mod handles;
mod heap;
pub mod kernels;
pub mod launch;
pub mod memory;
pub mod module;
pub mod nccl;
mod op;
pub mod procaddr;
mod process;
pub mod stream;
pub mod time_model;
pub mod unsupported;
mod worker;

#[cfg(test)]
mod tests;
