//! NVTX: the ranges, marks, names and domains that the program tells tools about.
//!
//! In: calls of the program through the slots that [`fill_tables`] fills. Out: records in the log of the calling thread.
//! Must never call NVTX itself, and must give the program the answers that NVTX documents (levels, handles, range ids)
//! whether or not anything is recorded.
//!
//! Each shared object that uses NVTX has tables of its own, so there are several fills per process, and all end here.

#![allow(unsafe_code)]

pub mod abi;
mod handles;
mod slots;
mod text;

use std::ffi::c_void;

use abi::{GetExportTable, core, core2, payload_extension};

/// Fills one object's tables with this library's functions.
///
/// # Safety
/// `get_export_table` is what NVTX passed to `InitializeInjectionNvtx2`.
pub unsafe fn fill_tables(get_export_table: GetExportTable) {
    // SAFETY: the protocol: an id gives a table that lives as long as the object, or null; sizes come first.
    unsafe {
        if let Some(info) =
            get_export_table(abi::EXPORT_VERSION_INFO).cast::<abi::ExportVersionInfo>().as_ref()
            && info.struct_size >= size_of::<abi::ExportVersionInfo>()
            && let Some(set_version) = info.set_injection_version
        {
            set_version(abi::NVTX_VERSION);
        }
        let Some(callbacks) = get_export_table(abi::EXPORT_CALLBACKS).cast::<abi::ExportCallbacks>().as_ref()
        else {
            return;
        };
        if callbacks.struct_size < size_of::<abi::ExportCallbacks>() {
            return;
        }
        let Some(get_table) = callbacks.get_module_function_table else { return };
        fill(get_table, core::MODULE, &slots::core());
        fill(get_table, core2::MODULE, &slots::core2());
    }
}

/// # Safety
/// `get_table` is NVTX's function, and each function in `functions` has the type of its slot.
unsafe fn fill(get_table: abi::GetModuleFunctionTable, module: i32, functions: &[(usize, *const c_void)]) {
    let mut table: *mut *mut *const c_void = std::ptr::null_mut();
    let mut slots = 0u32;
    // SAFETY: NVTX sets both and answers 1, or answers something else.
    let found = unsafe { get_table(module, &mut table, &mut slots) };
    if found != 1 || table.is_null() {
        return;
    }
    for (slot, function) in functions {
        if *slot < slots as usize {
            // SAFETY: `slots` pointers to slots (or null), which NVTX lets its injection write now.
            unsafe {
                let place = *table.add(*slot);
                if !place.is_null() {
                    *place = *function;
                }
            }
        }
    }
}

/// Answers the payload extension: domains are enabled, and ranges with an extended payload are ranges.
///
/// # Safety
/// `info` is null or what NVTX passed to `InitializeInjectionNvtxExtension`.
pub unsafe fn fill_extension(info: *const abi::ExtModuleInfo) {
    // SAFETY: caller's promise; the size says which fields there are.
    unsafe {
        let Some(info) = info.as_ref() else { return };
        if usize::from(info.struct_size) < size_of::<abi::ExtModuleInfo>()
            || info.module_id != payload_extension::MODULE
            || info.segments_count == 0
        {
            return;
        }
        let Some(segment) = info.segments.as_ref() else { return };
        if segment.function_slots.is_null() {
            return;
        }
        for (slot, function) in slots::payload_extension() {
            if slot < segment.slots_count {
                *segment.function_slots.add(slot) = function as isize;
            }
        }
    }
}
