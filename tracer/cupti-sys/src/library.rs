//! Finding `libcupti` and its functions at run time.
//!
//! In: the process as it is (mapped libraries, `SYNCAUDIT_CUPTI`). Out: a [`Library`], or which places were tried and
//! what each answered. Must never touch a `libcupti` when `libcuda` isn't mapped: the one that PyTorch 2.15 brings
//! (13.2.86) runs off its stack on any call then.

use std::ffi::{CStr, CString, OsStr, c_char, c_void};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::{BufferCompletedFn, BufferRequestedFn, CallbackFn, CuptiResult, Subscriber};

macro_rules! functions {
    (required { $($name:ident: $symbol:literal = $type:ty;)* } optional { $($oname:ident: $osymbol:literal = $otype:ty;)* }) => {
        /// The functions of one mapped CUPTI library. Stays mapped for good: it is never closed.
        pub struct Library {
            path: PathBuf,
            $(pub $name: $type,)*
            $(
                /// Missing in older versions.
                pub $oname: Option<$otype>,
            )*
        }

        impl Library {
            /// Looks up every function in an open library.
            ///
            /// # Safety
            /// `handle` is from `dlopen`, and its symbols of these names are CUPTI's or a stand-in's.
            unsafe fn look_up(handle: *mut c_void, path: PathBuf) -> Result<Self, &'static str> {
                // SAFETY: a symbol of this name has this type (cupti_activity.h, cupti_callbacks.h; caller's promise).
                unsafe {
                    Ok(Self {
                        path,
                        $($name: std::mem::transmute::<*mut c_void, $type>(
                            symbol(handle, $symbol).ok_or(concat!("no function ", $symbol))?
                        ),)*
                        $($oname: symbol(handle, $osymbol)
                            .map(|found| std::mem::transmute::<*mut c_void, $otype>(found)),)*
                    })
                }
            }
        }
    };
}

functions! {
    required {
        get_version: "cuptiGetVersion" = unsafe extern "C" fn(*mut u32) -> CuptiResult;
        get_timestamp: "cuptiGetTimestamp" = unsafe extern "C" fn(*mut u64) -> CuptiResult;
        subscribe: "cuptiSubscribe" = unsafe extern "C" fn(*mut Subscriber, CallbackFn, *mut c_void) -> CuptiResult;
        unsubscribe: "cuptiUnsubscribe" = unsafe extern "C" fn(Subscriber) -> CuptiResult;
        enable_callback: "cuptiEnableCallback" = unsafe extern "C" fn(u32, Subscriber, u32, u32) -> CuptiResult;
        activity_register_callbacks: "cuptiActivityRegisterCallbacks" =
            unsafe extern "C" fn(BufferRequestedFn, BufferCompletedFn) -> CuptiResult;
        activity_enable: "cuptiActivityEnable" = unsafe extern "C" fn(u32) -> CuptiResult;
        activity_flush_all: "cuptiActivityFlushAll" = unsafe extern "C" fn(u32) -> CuptiResult;
        activity_get_next_record: "cuptiActivityGetNextRecord" =
            unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> CuptiResult;
        activity_get_num_dropped_records: "cuptiActivityGetNumDroppedRecords" =
            unsafe extern "C" fn(*mut c_void, u32, *mut usize) -> CuptiResult;
    }
    optional {
        get_callback_name: "cuptiGetCallbackName" = unsafe extern "C" fn(u32, u32, *mut *const c_char) -> CuptiResult;
        activity_enable_runtime_api: "cuptiActivityEnableRuntimeApi" = unsafe extern "C" fn(u32, u8) -> CuptiResult;
        activity_enable_driver_api: "cuptiActivityEnableDriverApi" = unsafe extern "C" fn(u32, u8) -> CuptiResult;
        activity_enable_all_sync_records: "cuptiActivityEnableAllSyncRecords" = unsafe extern "C" fn(u8) -> CuptiResult;
    }
}

/// Why there is no CUPTI: every place that was tried, with its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FindError {
    /// CUPTI was left alone because the driver isn't in this process.
    NoDriver,
    NotFound(Vec<(PathBuf, String)>),
}

impl fmt::Display for FindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDriver => {
                write!(f, "libcuda.so.1 is not loaded in this process, so CUPTI was not touched")
            }
            Self::NotFound(tried) => {
                write!(f, "no usable libcupti; tried ")?;
                for (place, (path, answer)) in tried.iter().enumerate() {
                    let comma = if place == 0 { "" } else { ", " };
                    write!(f, "{comma}{} ({answer})", path.display())?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for FindError {}

const SONAMES: [&str; 2] = ["libcupti.so.13", "libcupti.so.12"];
const CUDART_SONAMES: [&str; 2] = ["libcudart.so.13", "libcudart.so.12"];

impl Library {
    /// The CUPTI for this process. Order: `explicit` (and nothing else, when given); one that is mapped already
    /// (the first that was loaded is everyone's); beside the mapped CUDA runtime, where wheels and toolkits put
    /// it; wherever the dynamic linker finds it.
    pub fn find(explicit: Option<&Path>) -> Result<Self, FindError> {
        if !is_mapped("libcuda.so.1") {
            return Err(FindError::NoDriver);
        }
        let mut tried = Vec::new();
        let mut attempt = |path: &Path, flags: i32| match open(path, flags) {
            Ok(library) => Some(library),
            Err(answer) => {
                tried.push((path.to_owned(), answer));
                None
            }
        };
        if let Some(path) = explicit {
            return attempt(path, libc::RTLD_NOW).ok_or(FindError::NotFound(tried));
        }
        for soname in SONAMES {
            if is_mapped(soname)
                && let Some(library) = attempt(Path::new(soname), libc::RTLD_NOW | libc::RTLD_NOLOAD)
            {
                return Ok(library);
            }
        }
        for path in beside_the_runtime() {
            if let Some(library) = attempt(&path, libc::RTLD_NOW) {
                return Ok(library);
            }
        }
        for soname in SONAMES {
            if let Some(library) = attempt(Path::new(soname), libc::RTLD_NOW) {
                return Ok(library);
            }
        }
        Err(FindError::NotFound(tried))
    }

    /// Opens the library at `path` without asking whether the driver is mapped.
    ///
    /// Safe only with a library that is known to work alone (a stand-in, or a CUPTI other than 13.2): that is the
    /// caller's business, and a matter of a crash, not of memory.
    pub fn open(path: &Path) -> Result<Self, FindError> {
        open(path, libc::RTLD_NOW).map_err(|answer| FindError::NotFound(vec![(path.to_owned(), answer)]))
    }

    /// The file that `cuptiGetVersion` lies in, or the name it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `CUPTI_API_VERSION` of the library: 18 for 12.1 … 28 for 12.9, 130000 for 13.0, and so on.
    pub fn version(&self) -> Result<u32, CuptiResult> {
        let mut version = 0;
        // SAFETY: writes one u32.
        let result = unsafe { (self.get_version)(&mut version) };
        if result.is_ok() { Ok(version) } else { Err(result) }
    }

    /// CUPTI's clock in nanoseconds.
    pub fn timestamp_ns(&self) -> Result<u64, CuptiResult> {
        let mut timestamp = 0;
        // SAFETY: writes one u64.
        let result = unsafe { (self.get_timestamp)(&mut timestamp) };
        if result.is_ok() { Ok(timestamp) } else { Err(result) }
    }
}

/// Whether a library of this name is in the process.
pub fn is_mapped(soname: &str) -> bool {
    let Ok(name) = CString::new(soname) else { return false };
    // SAFETY: NUL-terminated name; RTLD_NOLOAD maps nothing. The reference it takes is given back at once.
    unsafe {
        let handle = libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if handle.is_null() {
            return false;
        }
        libc::dlclose(handle);
    }
    true
}

/// Where CUPTI lies next to a mapped `libcudart`: the same folder (CUDA 13 wheels, toolkits), the sibling folder
/// of the CUDA 12 wheels, the `extras` folder of a toolkit.
fn beside_the_runtime() -> Vec<PathBuf> {
    let mut places = Vec::new();
    for (cudart, cupti) in CUDART_SONAMES.iter().zip(SONAMES) {
        let Some(path) = mapped_path(cudart, c"cudaGetDeviceCount") else { continue };
        let Some(folder) = path.parent() else { continue };
        for relative in ["", "../../cuda_cupti/lib", "../extras/CUPTI/lib64"] {
            places.push(folder.join(relative).join(cupti));
        }
    }
    places.retain(|path| path.exists());
    places
}

/// The file from which a mapped library was loaded.
fn mapped_path(soname: &str, function: &CStr) -> Option<PathBuf> {
    let name = CString::new(soname).ok()?;
    // SAFETY: as in `is_mapped`; the handle is closed after its last use.
    unsafe {
        let handle = libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if handle.is_null() {
            return None;
        }
        let address = libc::dlsym(handle, function.as_ptr());
        libc::dlclose(handle);
        path_of(address)
    }
}

/// The file in which an address lies.
fn path_of(address: *mut c_void) -> Option<PathBuf> {
    if address.is_null() {
        return None;
    }
    // SAFETY: dladdr fills `info` for any address or answers 0; the name it gives lives as long as the mapping.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(address, &mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        Some(PathBuf::from(OsStr::from_bytes(CStr::from_ptr(info.dli_fname).to_bytes())))
    }
}

fn open(path: &Path, flags: i32) -> Result<Library, String> {
    let name =
        CString::new(path.as_os_str().as_bytes()).map_err(|_| "its name has a NUL in it".to_owned())?;
    // SAFETY: NUL-terminated name; loading a library runs its initialisers, which is what the caller asked for.
    unsafe {
        let handle = libc::dlopen(name.as_ptr(), flags);
        if handle.is_null() {
            let error = libc::dlerror();
            return Err(if error.is_null() {
                "not loaded".to_owned()
            } else {
                CStr::from_ptr(error).to_string_lossy().into_owned()
            });
        }
        let found = symbol(handle, "cuptiGetVersion").and_then(path_of);
        Library::look_up(handle, found.unwrap_or_else(|| path.to_owned())).map_err(str::to_owned)
    }
}

/// # Safety
/// `handle` is from `dlopen` and still open.
unsafe fn symbol(handle: *mut c_void, name: &str) -> Option<*mut c_void> {
    let name = CString::new(name).ok()?;
    // SAFETY: an open handle (caller's promise) and a NUL-terminated name.
    let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_driver_no_cupti_is_touched() {
        assert!(!is_mapped("libcuda.so.1"), "this test needs a process without the driver");
        assert_eq!(Library::find(Some(Path::new("/nonexistent"))).err(), Some(FindError::NoDriver));
        assert_eq!(Library::find(None).err(), Some(FindError::NoDriver));
    }

    #[test]
    fn a_library_without_the_functions_is_refused_with_the_missing_name() {
        let error = Library::open(Path::new("libc.so.6")).err().unwrap();
        assert!(error.to_string().contains("no function cuptiGetVersion"), "{error}");
    }

    #[test]
    fn a_missing_file_is_named_with_the_linkers_words() {
        let error = Library::open(Path::new("/nonexistent/libcupti.so.12")).err().unwrap().to_string();
        assert!(error.contains("/nonexistent/libcupti.so.12"), "{error}");
    }
}
