//! NVTX ranges around the parts of a step, so that a tool can say where a call was made.
//!
//! In: names, and for `step` its number. Out: nested push/pop calls to whatever library `NVTX_INJECTION64_PATH` names;
//! nothing at all when it names none. Must never fail, wait or print: a trainer runs the same with and without a tool.
//!
//! Two clients speak the protocol. [`own`] is the default: the part of it that a program needs is small, and it builds
//! with nothing but a Rust toolchain. The official crate (feature `nvtx-official`) needs libclang to build; it is here to
//! keep ours honest: `tests/nvtx.rs` records both and compares.

pub use nvtx_client as own;

#[cfg(feature = "nvtx-official")]
pub mod official;

#[cfg(feature = "nvtx-official")]
use official as client;
#[cfg(not(feature = "nvtx-official"))]
use own as client;

use std::ffi::CStr;
use std::marker::PhantomData;

/// An open range of this thread; it closes when dropped.
#[must_use = "the range closes when this is dropped"]
pub struct Range {
    // Ranges nest per thread, so one must be closed on the thread that opened it.
    _not_send: PhantomData<*mut ()>,
}

impl Drop for Range {
    fn drop(&mut self) {
        client::pop();
    }
}

/// Opens a range on this thread.
pub fn range(name: &CStr) -> Range {
    client::push(name);
    Range { _not_send: PhantomData }
}

/// Opens a range that carries a number, as `step` does.
pub fn range_with_payload(name: &CStr, payload: i64) -> Range {
    client::push_with_payload(name, payload);
    Range { _not_send: PhantomData }
}

/// Opens a range named `name @ file:line` after the line that this macro is written on.
///
/// The file is relative to the repository root, as rustc was given it, so that the name is the same on every machine.
#[macro_export]
macro_rules! call_site {
    ($name:literal) => {{
        const NAME: &str = concat!($name, " @ ", file!(), ":", line!(), "\0");
        const NAME_C: &std::ffi::CStr = match std::ffi::CStr::from_bytes_with_nul(NAME.as_bytes()) {
            Ok(name) => name,
            Err(_) => panic!("a call-site name holds a zero byte"),
        };
        $crate::nvtx::range(NAME_C)
    }};
}
