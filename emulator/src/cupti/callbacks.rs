//! Callbacks: one subscriber, told of the enabled driver calls on the thread that makes them.

use std::ffi::{CString, c_char, c_void};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use cupti_sys::{CallbackData, CallbackFn, CuptiResult, domain, site};

use super::{CALLBACKS, CORRELATION, DRIVER_IDS, RUNTIME_IDS, activity, set_wanted};
use crate::context;
use crate::entry::Entry;
use crate::handles::{self, lock};

#[derive(Clone, Copy)]
struct Subscriber {
    handle: usize,
    callback: CallbackFn,
    user: usize,
}

static SUBSCRIBER: Mutex<Option<Subscriber>> = Mutex::new(None);
static ENABLED: [AtomicBool; DRIVER_IDS] = [const { AtomicBool::new(false) }; DRIVER_IDS];
static ENABLED_COUNT: AtomicUsize = AtomicUsize::new(0);
static NEXT_CORRELATION: AtomicU32 = AtomicU32::new(1);

/// `cuptiSubscribe`: the new subscriber's handle.
pub fn subscribe(callback: CallbackFn, user: *mut c_void) -> Result<usize, CuptiResult> {
    let mut subscriber = lock(&SUBSCRIBER);
    if subscriber.is_some() {
        return Err(CuptiResult::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
    }
    let handle = handles::fresh();
    *subscriber = Some(Subscriber { handle, callback, user: user as usize });
    Ok(handle)
}

/// `cuptiUnsubscribe`.
pub fn unsubscribe(handle: usize) -> Result<(), CuptiResult> {
    let mut subscriber = lock(&SUBSCRIBER);
    if subscriber.is_none_or(|s| s.handle != handle) {
        return Err(CuptiResult::INVALID_PARAMETER);
    }
    *subscriber = None;
    set_wanted(CALLBACKS, false);
    for enabled in &ENABLED {
        enabled.store(false, Ordering::Relaxed);
    }
    ENABLED_COUNT.store(0, Ordering::Relaxed);
    Ok(())
}

fn check(handle: usize) -> Result<(), CuptiResult> {
    let known = lock(&SUBSCRIBER).is_some_and(|s| s.handle == handle);
    if known { Ok(()) } else { Err(CuptiResult::INVALID_PARAMETER) }
}

/// `cuptiEnableCallback`. Runtime ids are accepted: there is no CUDA runtime that could make such a call, and a tool
/// that lists them is right to. Other domains are refused, since nothing is delivered there.
pub fn enable(on: bool, handle: usize, in_domain: u32, id: u32) -> Result<(), CuptiResult> {
    check(handle)?;
    match in_domain {
        domain::DRIVER_API if super::driver_name(id).is_some() => {
            set(id, on);
            Ok(())
        }
        domain::RUNTIME_API if (1..RUNTIME_IDS).contains(&id) => Ok(()),
        domain::DRIVER_API | domain::RUNTIME_API => Err(CuptiResult::INVALID_PARAMETER),
        3..=6 => Err(CuptiResult::NOT_SUPPORTED),
        _ => Err(CuptiResult::INVALID_PARAMETER),
    }
}

/// `cuptiEnableDomain`.
pub fn enable_domain(on: bool, handle: usize, in_domain: u32) -> Result<(), CuptiResult> {
    check(handle)?;
    match in_domain {
        domain::DRIVER_API => {
            (1..DRIVER_IDS as u32).filter(|id| super::driver_name(*id).is_some()).for_each(|id| set(id, on));
            Ok(())
        }
        domain::RUNTIME_API => Ok(()),
        3..=6 => Err(CuptiResult::NOT_SUPPORTED),
        _ => Err(CuptiResult::INVALID_PARAMETER),
    }
}

/// `cuptiGetCallbackState`.
pub fn is_enabled(handle: usize, in_domain: u32, id: u32) -> Result<bool, CuptiResult> {
    check(handle)?;
    if in_domain != domain::DRIVER_API {
        return Ok(false);
    }
    ENABLED.get(id as usize).map(|e| e.load(Ordering::Relaxed)).ok_or(CuptiResult::INVALID_PARAMETER)
}

fn set(id: u32, on: bool) {
    if ENABLED[id as usize].swap(on, Ordering::Relaxed) != on {
        let count = if on {
            ENABLED_COUNT.fetch_add(1, Ordering::Relaxed) + 1
        } else {
            ENABLED_COUNT.fetch_sub(1, Ordering::Relaxed) - 1
        };
        set_wanted(CALLBACKS, count > 0);
    }
}

/// Puts the callbacks and the API record around one call. `params` is the call's argument block.
pub fn around(entry: &'static Entry, params: *const c_void, body: impl FnOnce() -> u32) -> u32 {
    let id = entry.callback_id();
    let correlation = NEXT_CORRELATION.fetch_add(1, Ordering::Relaxed);
    let told = ENABLED.get(id as usize).is_some_and(|e| id != 0 && e.load(Ordering::Relaxed));
    let subscriber = if told { *lock(&SUBSCRIBER) } else { None };
    let outer = CORRELATION.replace(correlation);
    let mut data = subscriber.map(|_| CallbackData {
        callback_site: site::ENTER,
        function_name: entry.c_name(),
        function_params: params,
        function_return_value: std::ptr::null(),
        symbol_name: kernel_name(entry.name, params),
        context: std::ptr::null_mut(),
        context_uid: 0,
        correlation_data: std::ptr::null_mut(),
        correlation_id: correlation,
    });
    let mut carried = 0u64;
    if let (Some(subscriber), Some(data)) = (&subscriber, &mut data) {
        data.correlation_data = &raw mut carried;
        tell(subscriber, id, data);
    }
    let start_ns = super::now_ns();
    let code = body();
    if let (Some(subscriber), Some(data)) = (&subscriber, &mut data) {
        data.callback_site = site::EXIT;
        data.function_return_value = &raw const code;
        tell(subscriber, id, data);
    }
    activity::api_call(id, start_ns, code, correlation);
    CORRELATION.set(outer);
    code
}

fn tell(subscriber: &Subscriber, id: u32, data: &mut CallbackData) {
    let current = context::current_any().ok();
    data.context = current.as_ref().map_or(0, |c| c.handle) as *mut c_void;
    data.context_uid = current.map_or(0, |c| c.uid);
    // SAFETY: the subscriber's function, called as its contract says: data valid for the call, on this thread.
    unsafe { (subscriber.callback)(subscriber.user as *mut c_void, domain::DRIVER_API, id, data) }
}

/// Name of the kernel that a launch is for, null for other calls.
fn kernel_name(name: &str, params: *const c_void) -> *const c_char {
    let at = match name {
        "cuLaunchKernel" | "cuLaunchKernel_ptsz" => 0,
        "cuLaunchCooperativeKernel" | "cuLaunchCooperativeKernel_ptsz" => 0,
        "cuLaunchKernelEx" | "cuLaunchKernelEx_ptsz" => 1,
        _ => return std::ptr::null(),
    };
    // SAFETY: the argument blocks of these calls begin with (config,) function, eight bytes each.
    let function = unsafe { params.cast::<usize>().add(at).read() };
    crate::module::function(function).map_or(std::ptr::null(), |f| f.c_name.as_ptr())
}

impl Entry {
    /// The function's name for tools.
    fn c_name(&'static self) -> *const c_char {
        self.c_name.get_or_init(|| CString::new(self.name).unwrap_or_default()).as_ptr()
    }

    /// The function's callback id, 0 for none.
    fn callback_id(&'static self) -> u32 {
        *self.id.get_or_init(|| super::callback_id(self.name))
    }
}

/// Types of the two caches in [`Entry`].
pub type NameCache = OnceLock<CString>;
/// See [`NameCache`].
pub type IdCache = OnceLock<u32>;
