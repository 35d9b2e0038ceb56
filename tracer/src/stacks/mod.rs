//! Where in the program a call was made: return addresses (native) and Python frames.
//!
//! In: the calling thread, during a callback. Out: interned stacks. Must never fault, whatever the stack looks
//! like, and never take a lock that the program may hold.

pub mod modules;
pub mod native;
pub mod python;

/// Native frames beyond this are cut off at the outer end: the places that matter are near the call.
pub const MAX_FRAMES: usize = 64;
