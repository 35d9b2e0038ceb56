//! Raw bindings to the part of CUPTI that syncaudit uses: about twenty functions, found at run time.
//!
//! In: a `libcupti` that is or can be mapped into this process. Out: its functions as Rust function pointers,
//! results, kinds, domains and callback ids as integers, and the *prefixes* of the records it writes.
//! Must never link against CUPTI, never assume the size of a record (each version writes its own, so stepping is
//! left to `cuptiActivityGetNextRecord`), and never turn an integer from the library into a Rust `enum`.
//!
//! Design constraints, with their reasons:
//! - One binary serves CUPTI 12.1 to 13.5. Ids and record prefixes are the same in all of them (compared with the
//!   headers of nine versions); record *sizes* are not.
//! - A library with no driver beside it may crash on any call (13.2.86 does), so [`Library::find`] refuses to look
//!   for one unless `libcuda.so.1` is mapped.
//! - The emulated device exports the same functions and shares these types, so the tracer has one code path.
//!
//! Who should use something else: programs that want all of CUPTI, or want it checked at build time.

#![allow(unsafe_code)]

pub mod call;
pub mod cbid;
mod library;
pub mod records;
mod types;

pub use call::{Call, CallArguments, Class, Direction};
pub use library::{FindError, Library, is_mapped};
pub use types::*;
