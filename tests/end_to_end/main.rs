//! End to end: the built command, tracer, emulated device and reference trainer, as a user meets them.
//!
//! One test binary, one module per question. See [`support`] for how the programs come to be.

mod ci;
mod doctor;
mod formats;
mod gate;
mod job;
mod live;
mod names;
mod output;
mod python;
mod reading;
mod recording;
mod repository;
#[path = "../snapshots/mod.rs"]
mod snapshots;
mod starting;
mod support;
#[path = "../tmux/mod.rs"]
mod tmux;
mod trainer;
mod view;
