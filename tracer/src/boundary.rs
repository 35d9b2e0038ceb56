//! What every function that foreign code calls into is wrapped in.
//!
//! In: a closure. Out: its value, or a harmless one if it panicked. No panic may leave this library: it would abort
//! the program.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `body`; a panic in it becomes `otherwise`.
#[inline]
pub fn guard<R>(otherwise: R, body: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(otherwise)
}

/// One line on the program's stderr. Not through `std::io`, whose lock a thread of the program could hold.
#[allow(unsafe_code)]
pub fn say(text: &str) {
    let line = format!("syncaudit: {}\n", text.replace('\n', " "));
    // SAFETY: a valid buffer of that length; a closed or full stderr only means that nobody reads it.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}
