//! The DFlash/Domino reference trainer: a draft model that learns to predict whole blocks of tokens from a frozen target's
//! hidden states, trained by a step in which the host never waits for the device.
//!
//! `device` is the layer over the CUDA driver, `kernels` what runs on it, `model` and `optim` the mathematics; `data` and
//! `rollout` make what is learned from, `train` is the loop, `job` several processes of it, `waits` the historical waits that it can bring back.

pub mod data;
pub mod device;
pub mod error;
pub mod job;
pub mod kernels;
pub mod model;
pub mod nvtx;
pub mod optim;
pub mod preset;
pub mod rollout;
pub mod train;
pub mod verify;
pub mod waits;
