//! How a function of the driver API is made: written once as `name(arguments) [rules] => body`, it becomes the
//! exported C function, its entry in the look-up table, and the checks and callbacks that every function has.
//!
//! Rules: `anywhere` (works before `cuInit`, inside host functions), `not_while_capturing` (prohibited while a stream
//! capture forbids unsafe calls).

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::cupti::callbacks::{IdCache, NameCache};
use crate::error::{Error, Result};
use crate::{capture, clock, cupti, process, worker};

/// A rule of an entry point.
#[derive(Clone, Copy, PartialEq, Eq)]
#[allow(non_camel_case_types)] // spelled as in the tables
pub enum Rule {
    anywhere,
    not_while_capturing,
}

/// One function of the driver API.
pub struct Entry {
    pub name: &'static str,
    rules: &'static [Rule],
    pub(crate) c_name: NameCache,
    pub(crate) id: IdCache,
}

/// Address of an exported function.
pub struct Address(pub *const ());
// SAFETY: the address of a function, never read through.
unsafe impl Sync for Address {}

impl Entry {
    pub const fn new(name: &'static str, rules: &'static [Rule]) -> Self {
        Self { name, rules, c_name: NameCache::new(), id: IdCache::new() }
    }

    /// Runs one call: checks, callbacks, body. No panic leaves it.
    pub fn call<P>(&'static self, params: &P, body: impl FnOnce() -> Result) -> u32 {
        let checked = || {
            if clock::is_virtual() {
                clock::work(clock::CALL_NS);
            }
            if !self.rules.contains(&Rule::anywhere) {
                process::check_ready()?;
                if worker::in_host_function() {
                    return Err(Error::NOT_PERMITTED);
                }
            }
            if self.rules.contains(&Rule::not_while_capturing) {
                capture::check_unsafe_call()?;
            }
            body()
        };
        let guarded = || match catch_unwind(AssertUnwindSafe(checked)) {
            Ok(result) => crate::error::code(result),
            Err(_) => {
                eprintln!(
                    "syncaudit emulator: a fault inside {} was answered with CUDA_ERROR_UNKNOWN",
                    self.name
                );
                Error::UNKNOWN.0
            }
        };
        if cupti::wanted() == 0 || process::forked() {
            return guarded();
        }
        cupti::callbacks::around(self, std::ptr::from_ref(params).cast(), guarded)
    }
}

macro_rules! entry_points {
    ($($name:ident($($arg:ident: $ty:ty),* $(,)?) $([$($rule:ident),*])? => $body:expr;)*) => {
        $(
            #[doc = concat!("`", stringify!($name), "` of the CUDA driver API.")]
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, clippy::too_many_arguments)]
            pub extern "C" fn $name($($arg: $ty),*) -> u32 {
                #[repr(C)]
                #[allow(non_snake_case)]
                struct Params { $($arg: $ty),* }
                static ENTRY: $crate::entry::Entry =
                    $crate::entry::Entry::new(stringify!($name), &[$($($crate::entry::Rule::$rule),*)?]);
                ENTRY.call(&Params { $($arg),* }, || $body)
            }
        )*
        /// Name and address of every function in this file.
        pub(crate) static FUNCTIONS: &[(&str, $crate::entry::Address)] = &[
            $((stringify!($name), $crate::entry::Address($name as *const ()))),*
        ];
    };
}
