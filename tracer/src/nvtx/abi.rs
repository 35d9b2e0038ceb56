//! The NVTX injection interface: table ids, slot numbers, structs.
//!
//! Facts: nvtxInit.h, nvtxTypes.h, nvtxExtTypes.h of NVTX 3 (nvidia-nvtx 13.0 and 13.2).

use std::ffi::{c_int, c_uint, c_void};

/// `NvtxGetExportTableFunc_t`.
pub type GetExportTable = unsafe extern "C" fn(u32) -> *const c_void;

/// `NVTX_ETID_CALLBACKS`.
pub const EXPORT_CALLBACKS: u32 = 1;
/// `NVTX_ETID_VERSIONINFO`.
pub const EXPORT_VERSION_INFO: u32 = 3;

/// `NvtxExportTableCallbacks`.
#[repr(C)]
pub struct ExportCallbacks {
    pub struct_size: usize,
    pub get_module_function_table: Option<GetModuleFunctionTable>,
}

/// Answers 1 and sets the table (of pointers to slots) and its number of slots.
pub type GetModuleFunctionTable =
    unsafe extern "C" fn(module: c_int, table: *mut *mut *mut *const c_void, slots: *mut c_uint) -> c_int;

/// `NvtxExportTableVersionInfo`.
#[repr(C)]
pub struct ExportVersionInfo {
    pub struct_size: usize,
    pub version: u32,
    pub reserved0: u32,
    pub set_injection_version: Option<unsafe extern "C" fn(u32)>,
}

/// The version of NVTX that this library speaks.
pub const NVTX_VERSION: u32 = 3;

/// `NVTX_CB_MODULE_CORE` and its slots.
pub mod core {
    pub const MODULE: i32 = 1;
    pub const MARK_EX: usize = 1;
    pub const MARK_A: usize = 2;
    pub const MARK_W: usize = 3;
    pub const RANGE_START_EX: usize = 4;
    pub const RANGE_START_A: usize = 5;
    pub const RANGE_START_W: usize = 6;
    pub const RANGE_END: usize = 7;
    pub const RANGE_PUSH_EX: usize = 8;
    pub const RANGE_PUSH_A: usize = 9;
    pub const RANGE_PUSH_W: usize = 10;
    pub const RANGE_POP: usize = 11;
    pub const NAME_CATEGORY_A: usize = 12;
    pub const NAME_CATEGORY_W: usize = 13;
    pub const NAME_OS_THREAD_A: usize = 14;
    pub const NAME_OS_THREAD_W: usize = 15;
}

/// `NVTX_CB_MODULE_CORE2` and its slots.
pub mod core2 {
    pub const MODULE: i32 = 5;
    pub const DOMAIN_MARK_EX: usize = 1;
    pub const DOMAIN_RANGE_START_EX: usize = 2;
    pub const DOMAIN_RANGE_END: usize = 3;
    pub const DOMAIN_RANGE_PUSH_EX: usize = 4;
    pub const DOMAIN_RANGE_POP: usize = 5;
    pub const DOMAIN_RESOURCE_CREATE: usize = 6;
    pub const DOMAIN_RESOURCE_DESTROY: usize = 7;
    pub const DOMAIN_NAME_CATEGORY_A: usize = 8;
    pub const DOMAIN_NAME_CATEGORY_W: usize = 9;
    pub const DOMAIN_REGISTER_STRING_A: usize = 10;
    pub const DOMAIN_REGISTER_STRING_W: usize = 11;
    pub const DOMAIN_CREATE_A: usize = 12;
    pub const DOMAIN_CREATE_W: usize = 13;
    pub const DOMAIN_DESTROY: usize = 14;
    /// Missing from the NVTX v2 library.
    pub const INITIALIZE: usize = 15;
}

/// `nvtxEventAttributes_t` (versions 2 and 3 lie alike).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EventAttributes {
    pub version: u16,
    pub size: u16,
    pub category: u32,
    pub color_type: i32,
    pub color: u32,
    pub payload_type: i32,
    pub reserved0: i32,
    /// A union of 64- and 32-bit integers and floats, by `payload_type`.
    pub payload: u64,
    pub message_type: i32,
    /// A union of `char*`, `wchar_t*` and a string handle, by `message_type`.
    pub message: *const c_void,
}

/// `nvtxMessageType_t`.
pub mod message {
    pub const ASCII: i32 = 1;
    pub const UNICODE: i32 = 2;
    pub const REGISTERED: i32 = 3;
}

/// `nvtxPayloadType_t`.
pub mod payload {
    pub const UNSIGNED_INT64: i32 = 1;
    pub const INT64: i32 = 2;
    pub const DOUBLE: i32 = 3;
    pub const UNSIGNED_INT32: i32 = 4;
    pub const INT32: i32 = 5;
    pub const FLOAT: i32 = 6;
}

/// What `nvtxRangePush` and `nvtxRangePop` answer when there is no level to tell (`NVTX_NO_PUSH_POP_TRACKING`).
pub const NO_LEVEL: c_int = -2;

/// `nvtxExtModuleInfo_t`.
#[repr(C)]
pub struct ExtModuleInfo {
    pub nvtx_version: u16,
    pub struct_size: u16,
    pub module_id: u16,
    pub compat_id: u16,
    pub segments_count: usize,
    pub segments: *const ExtModuleSegment,
    pub get_export_function: Option<unsafe extern "C" fn(u32) -> *const c_void>,
    pub extension_info: *const c_void,
}

/// `nvtxExtModuleSegment_t`.
#[repr(C)]
pub struct ExtModuleSegment {
    pub segment_id: usize,
    pub slots_count: usize,
    pub function_slots: *mut isize,
}

/// `NVTX_EXT_PAYLOAD_MODULEID` and the slots that matter.
pub mod payload_extension {
    pub const MODULE: u16 = 2;
    pub const RANGE_PUSH: usize = 3;
    pub const RANGE_POP: usize = 4;
    pub const DOMAIN_IS_ENABLED: usize = 7;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn event_attributes_lie_as_in_the_headers() {
        assert_eq!(size_of::<EventAttributes>(), 48);
        assert_eq!(
            [
                offset_of!(EventAttributes, size),
                offset_of!(EventAttributes, category),
                offset_of!(EventAttributes, payload_type),
                offset_of!(EventAttributes, payload),
                offset_of!(EventAttributes, message_type),
                offset_of!(EventAttributes, message),
            ],
            [2, 4, 16, 24, 32, 40]
        );
        assert_eq!(size_of::<ExportCallbacks>(), 16);
        assert_eq!((size_of::<ExtModuleInfo>(), size_of::<ExtModuleSegment>()), (40, 24));
    }
}
