//! Which of stdout and stderr were closed when the command was started.
//!
//! The runtime of the language opens `/dev/null` in the place of closed ones before `main`, so that whatever is written there would seem to be
//! written. Hence this looks earlier.

use std::sync::atomic::{AtomicBool, Ordering};

static STDOUT: AtomicBool = AtomicBool::new(false);
static STDERR: AtomicBool = AtomicBool::new(false);

// SAFETY: the loader calls what stands in this section once, before `main`, with arguments that a function without parameters may ignore. The
// function only asks the kernel for two names and sets two flags; it needs nothing that `main` would have set up.
#[allow(unsafe_code)]
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    let is_closed = |number: u32| {
        let of = |name: &str| std::fs::symlink_metadata(format!("/proc/self/fd/{name}")).is_ok();
        // Without /proc nothing is known, and nothing said.
        of(".") && !of(&number.to_string())
    };
    STDOUT.store(is_closed(1), Ordering::Relaxed);
    STDERR.store(is_closed(2), Ordering::Relaxed);
}

pub fn stdout() -> bool {
    STDOUT.load(Ordering::Relaxed)
}

pub fn stderr() -> bool {
    STDERR.load(Ordering::Relaxed)
}
