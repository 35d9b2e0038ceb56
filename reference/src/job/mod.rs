//! A job of several processes: rollout workers and trainers, on one host or several. `docs/reference-topology.md` is its design.
//!
//! In: the usual rank variables. Out: for a trainer what [`crate::train::run`] needs of the others (samples, a communicator, somebody to
//! acknowledge to), for a rollout its whole work. Must never let a process train on when another one is gone: whoever
//! notices ends.
//!
//! [`place`] who am I, [`shares`] which samples are mine, [`control`] the links to rank 0, [`channel`] how features travel,
//! [`rollout`] and [`trainer`] the two roles, [`supervisor`] all of them started at once.

pub mod channel;
pub mod control;
pub mod link;
pub mod place;
pub mod rollout;
mod shared_memory;
pub mod shares;
pub mod supervisor;
pub mod trainer;

pub use place::{Layout, Place, Role};

/// Exit status of a process that ends because another one of the job is gone.
pub const PEER_LOST: i32 = 75;
