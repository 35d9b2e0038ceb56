//! The functions that the driver and NVTX look for in this library.
//!
//! In: a call from `cuInit`, or from the first NVTX call of each shared object that uses NVTX. Out: 1, always: any other
//! answer makes NVTX close the library. Must be quick (other threads spin meanwhile), may be called any number of times.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use syncaudit_eventlog::{Record, meta};

use crate::boundary::guard;
use crate::driver::Driver;
use crate::nvtx::{self, abi};
use crate::stacks::python;
use crate::{cupti, session, thread};

const ALWAYS: c_int = 1;

/// Called by `cuInit`, once, on the thread that called it, before devices are discovered.
#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjection() -> c_int {
    guard(ALWAYS, || {
        let Some(session) = session::current() else { return ALWAYS };
        let driver = Driver::mapped();
        let version = driver.as_ref().and_then(Driver::version).unwrap_or(0).to_string();
        let emulated = if driver.is_some_and(|driver| driver.is_emulated()) { "1" } else { "0" };
        session.tell("cuda", &version);
        session.tell("emulated", emulated);
        thread::with(|thread| {
            if let Some(log) = thread.log() {
                log.write(&Record::Meta { key: meta::CUDA_DRIVER, value: version.as_bytes() });
                log.write(&Record::Meta { key: meta::EMULATED, value: emulated.as_bytes() });
            }
        });
        python::find();
        cupti::start(session);
        // Last: the recording ends before the libraries that were loaded meanwhile take themselves apart.
        session::at_exit();
        ALWAYS
    })
}

/// Called by NVTX v3 (and the NVTX v2 library) once per shared object, with that object's own tables.
///
/// # Safety
/// `get_export_table` is null or the function that the NVTX protocol describes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeInjectionNvtx2(get_export_table: Option<abi::GetExportTable>) -> c_int {
    guard(ALWAYS, || {
        if let (Some(get_export_table), Some(session)) = (get_export_table, session::current()) {
            session.nvtx_came_up();
            python::find();
            // SAFETY: the caller's promise.
            unsafe { nvtx::fill_tables(get_export_table) };
        }
        ALWAYS
    })
}

/// Called by NVTX extensions (since 3.1). NVTX 3.2.0 and 3.2.1 drop every range unless the payload extension says that
/// domains are enabled.
///
/// # Safety
/// `info` is null or the `nvtxExtModuleInfo_t` that the NVTX protocol describes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeInjectionNvtxExtension(info: *const c_void) -> c_int {
    guard(ALWAYS, || {
        if session::current().is_some() {
            // SAFETY: the caller's promise.
            unsafe { nvtx::fill_extension(info.cast()) };
        }
        ALWAYS
    })
}
