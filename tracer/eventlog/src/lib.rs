//! The event log: how the tracer hands over what it saw, and how the audit reads it back.
//!
//! In: [`Record`]s, from any thread of a traced program. Out: one file per process image that can be read at any moment,
//! up to the last record written, whatever happens to the process; and a reader that takes any bytes and answers with the
//! readable part and what is wrong with the rest. The layout is described in `docs/trace-format.md`.
//!
//! The writer (unix only) must never harm the program it runs in; the reader (portable) must never trust the file.

// Without a writer nothing encodes.
#![cfg_attr(not(unix), allow(dead_code))]

mod check;
pub mod format;
mod loss;
mod record;

mod foreign;
mod growth;
mod reader;
#[doc(hidden)]
pub mod testing;

#[cfg(unix)]
mod intern;
#[cfg(unix)]
mod map;
#[cfg(unix)]
mod writer;

pub use growth::committed_bytes;
pub use loss::LossReason;
pub use reader::{Header, LogFile, OpenError, Records, Summary, Thread, Warning};
pub use record::*;

#[cfg(unix)]
pub use map::{monotonic_ns, os_thread_id, realtime_ns};
#[cfg(unix)]
pub use writer::{CreateError, LogWriter, Options, ThreadLog};
