//! The same ranges through NVIDIA's `nvtx` crate. In, out and promises: see [the module above](super).

use nvtx::{EventAttributes, LocalRange};
use std::cell::RefCell;
use std::ffi::CStr;

thread_local! {
    // The crate closes a range when its guard goes; ours are closed innermost first, so a stack holds the guards.
    static OPEN: RefCell<Vec<LocalRange>> = const { RefCell::new(Vec::new()) };
}

/// Opens a range on this thread.
pub fn push(name: &CStr) {
    let range = LocalRange::new(name.to_owned());
    OPEN.with_borrow_mut(|open| open.push(range));
}

/// Opens a range with a signed 64-bit payload.
pub fn push_with_payload(name: &CStr, payload: i64) {
    let range = LocalRange::new(EventAttributes::builder().message(name.to_owned()).payload(payload).build());
    OPEN.with_borrow_mut(|open| open.push(range));
}

/// Closes the innermost open range of this thread.
pub fn pop() {
    OPEN.with_borrow_mut(|open| open.pop());
}
