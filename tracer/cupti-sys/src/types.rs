//! Integers and function types of the CUPTI interface, named as in its headers.

use std::ffi::{c_char, c_void};
use std::fmt;

/// What a CUPTI function answered. An integer, because newer libraries know more codes than these.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[must_use]
pub struct CuptiResult(pub u32);

impl CuptiResult {
    pub const SUCCESS: Self = Self(0);
    pub const INVALID_PARAMETER: Self = Self(1);
    pub const MAX_LIMIT_REACHED: Self = Self(12);
    pub const NOT_COMPATIBLE: Self = Self(14);
    pub const NOT_INITIALIZED: Self = Self(15);
    pub const INVALID_KIND: Self = Self(21);
    pub const NOT_SUPPORTED: Self = Self(27);
    pub const VIRTUALIZED_DEVICE_NOT_SUPPORTED: Self = Self(33);
    pub const INSUFFICIENT_PRIVILEGES: Self = Self(35);
    /// Another client subscribed first, or the process runs under Nsight, cuda-gdb or compute-sanitizer.
    pub const MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED: Self = Self(39);
    pub const UNKNOWN: Self = Self(999);

    pub fn is_ok(self) -> bool {
        self == Self::SUCCESS
    }

    /// The header's name without its prefix; `None` for codes that syncaudit never had to tell apart.
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::SUCCESS => "SUCCESS",
            Self::INVALID_PARAMETER => "INVALID_PARAMETER",
            Self::MAX_LIMIT_REACHED => "MAX_LIMIT_REACHED",
            Self::NOT_COMPATIBLE => "NOT_COMPATIBLE",
            Self::NOT_INITIALIZED => "NOT_INITIALIZED",
            Self::INVALID_KIND => "INVALID_KIND",
            Self::NOT_SUPPORTED => "NOT_SUPPORTED",
            Self::VIRTUALIZED_DEVICE_NOT_SUPPORTED => "VIRTUALIZED_DEVICE_NOT_SUPPORTED",
            Self::INSUFFICIENT_PRIVILEGES => "INSUFFICIENT_PRIVILEGES",
            Self::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED => "MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED",
            Self::UNKNOWN => "UNKNOWN",
            _ => return None,
        })
    }
}

impl fmt::Display for CuptiResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "CUPTI result {} ({name})", self.0),
            None => write!(f, "CUPTI result {}", self.0),
        }
    }
}

/// `CUpti_CallbackDomain`.
pub mod domain {
    pub const DRIVER_API: u32 = 1;
    pub const RUNTIME_API: u32 = 2;
    pub const RESOURCE: u32 = 3;
    pub const SYNCHRONIZE: u32 = 4;
}

/// `CUpti_ApiCallbackSite`.
pub mod site {
    pub const ENTER: u32 = 0;
    pub const EXIT: u32 = 1;
}

/// `CUpti_ActivityKind`.
pub mod kind {
    pub const MEMCPY: u32 = 1;
    pub const MEMSET: u32 = 2;
    /// Kernels one after the other; serialises the program, so never enabled here.
    pub const KERNEL: u32 = 3;
    pub const DRIVER: u32 = 4;
    pub const RUNTIME: u32 = 5;
    pub const CONCURRENT_KERNEL: u32 = 10;
    pub const OVERHEAD: u32 = 17;
    /// Copies between devices.
    pub const MEMCPY2: u32 = 22;
    pub const SYNCHRONIZATION: u32 = 38;
}

/// `CUpti_ActivitySynchronizationType`.
pub mod synchronization {
    pub const EVENT_SYNCHRONIZE: u32 = 1;
    /// The device waits, the host does not.
    pub const STREAM_WAIT_EVENT: u32 = 2;
    pub const STREAM_SYNCHRONIZE: u32 = 3;
    pub const CONTEXT_SYNCHRONIZE: u32 = 4;
}

/// `CUpti_ActivityOverheadKind`.
pub mod overhead {
    pub const DRIVER_COMPILER: u32 = 1;
    pub const BUFFER_FLUSH: u32 = 1 << 16;
    pub const INSTRUMENTATION: u32 = 2 << 16;
    pub const RESOURCE: u32 = 3 << 16;
    pub const RUNTIME_TRIGGERED_MODULE_LOADING: u32 = 4 << 16;
    pub const LAZY_FUNCTION_LOADING: u32 = 5 << 16;
    /// Since 12.4: a launch found the command buffer full and waited for the device.
    pub const COMMAND_BUFFER_FULL: u32 = 6 << 16;
    pub const ACTIVITY_BUFFER_REQUEST: u32 = 7 << 16;
}

/// `CUpti_ActivityMemcpyKind`.
pub mod copy_kind {
    pub const HOST_TO_DEVICE: u8 = 1;
    pub const DEVICE_TO_HOST: u8 = 2;
    pub const HOST_TO_ARRAY: u8 = 3;
    pub const ARRAY_TO_HOST: u8 = 4;
    pub const ARRAY_TO_ARRAY: u8 = 5;
    pub const ARRAY_TO_DEVICE: u8 = 6;
    pub const DEVICE_TO_ARRAY: u8 = 7;
    pub const DEVICE_TO_DEVICE: u8 = 8;
    pub const HOST_TO_HOST: u8 = 9;
    pub const PEER_TO_PEER: u8 = 10;
}

/// `CUpti_ActivityMemoryKind`.
pub mod memory_kind {
    pub const UNKNOWN: u8 = 0;
    pub const PAGEABLE: u8 = 1;
    pub const PINNED: u8 = 2;
    pub const DEVICE: u8 = 3;
    pub const ARRAY: u8 = 4;
    pub const MANAGED: u8 = 5;
}

/// `CUpti_ActivityFlag`, for copies.
pub const FLAG_MEMCPY_ASYNC: u8 = 1;
/// `CUpti_ActivityFlag`, for `cuptiActivityFlushAll`: unfinished records too.
pub const FLAG_FLUSH_FORCED: u32 = 1;

/// `CUpti_SubscriberHandle`.
pub type Subscriber = *mut c_void;

/// What a driver or runtime callback is told (`CUpti_CallbackData`). Valid during the callback only.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CallbackData {
    /// [`site::ENTER`] or [`site::EXIT`].
    pub callback_site: u32,
    /// NUL-terminated, lives as long as the library.
    pub function_name: *const c_char,
    /// The call's argument block; its layout is that of [`Call::params`](crate::Call::params).
    pub function_params: *const c_void,
    /// At EXIT only: the `CUresult` or `cudaError_t` (both 4 bytes).
    pub function_return_value: *const u32,
    /// Kernel name, for launches.
    pub symbol_name: *const c_char,
    pub context: *mut c_void,
    pub context_uid: u32,
    /// 64 bits carried from ENTER to EXIT.
    pub correlation_data: *mut u64,
    /// Equal to that of the activity records which this call causes.
    pub correlation_id: u32,
}

pub type CallbackFn =
    unsafe extern "C" fn(userdata: *mut c_void, domain: u32, cbid: u32, data: *const CallbackData);
/// `CUpti_BuffersCallbackRequestFunc`.
pub type BufferRequestedFn =
    unsafe extern "C" fn(buffer: *mut *mut u8, size: *mut usize, max_records: *mut usize);
/// `CUpti_BuffersCallbackCompleteFunc`.
pub type BufferCompletedFn = unsafe extern "C" fn(
    context: *mut c_void,
    stream_id: u32,
    buffer: *mut u8,
    size: usize,
    valid_size: usize,
);

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    #[test]
    fn callback_data_lies_as_in_the_headers_12_1_to_13_5() {
        assert_eq!(size_of::<CallbackData>(), 72);
        assert_eq!(
            [
                offset_of!(CallbackData, callback_site),
                offset_of!(CallbackData, function_name),
                offset_of!(CallbackData, function_params),
                offset_of!(CallbackData, function_return_value),
                offset_of!(CallbackData, symbol_name),
                offset_of!(CallbackData, context),
                offset_of!(CallbackData, context_uid),
                offset_of!(CallbackData, correlation_data),
                offset_of!(CallbackData, correlation_id),
            ],
            [0, 8, 16, 24, 32, 40, 48, 56, 64]
        );
    }

    #[test]
    fn results_say_their_number_and_their_name() {
        assert_eq!(
            CuptiResult::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED.to_string(),
            "CUPTI result 39 (MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED)"
        );
        assert_eq!(CuptiResult(38).to_string(), "CUPTI result 38");
    }
}
