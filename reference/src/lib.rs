//! DFlash and Domino reference trainer, as a library so that its tests and benchmarks can call the parts.

pub mod nvtx;
