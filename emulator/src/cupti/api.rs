//! The exported CUPTI functions. Codes as measured on the real library where they were.

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_void};
use std::sync::{LazyLock, Mutex};

use cupti_sys::{BufferCompletedFn, BufferRequestedFn, CallbackFn, CuptiResult, domain};

use super::{activity, callbacks, driver_name, now_ns};
use crate::args::Out;
use crate::handles::lock;
use crate::process;

/// CUPTI_API_VERSION of 12.8.
const VERSION: u32 = 26;

type Answer = Result<(), CuptiResult>;

fn code(answer: Answer) -> u32 {
    answer.err().unwrap_or(CuptiResult::SUCCESS).0
}

/// In a forked child the device is gone; nothing here may take a lock.
fn alive() -> Answer {
    if process::forked() { Err(CuptiResult::NOT_INITIALIZED) } else { Ok(()) }
}

fn set<T>(out: Out<T>, value: T) -> Answer {
    out.set(value).map_err(|_| CuptiResult::INVALID_PARAMETER)
}

macro_rules! cupti_functions {
    ($($name:ident($($arg:ident: $ty:ty),*) => $body:expr;)*) => {$(
        #[doc = concat!("`", stringify!($name), "` of CUPTI.")]
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub extern "C" fn $name($($arg: $ty),*) -> u32 {
            let body = || -> Answer { $body };
            code(body())
        }
    )*};
}

cupti_functions! {
    cuptiGetVersion(version: Out<u32>) => set(version, VERSION);
    cuptiGetTimestamp(timestamp: Out<u64>) => set(timestamp, now_ns());
    cuptiGetResultString(result: u32, text: Out<*const c_char>) => result_string(result, text);
    cuptiGetLastError() => Ok(());
    cuptiSubscribe(subscriber: Out<usize>, callback: Option<CallbackFn>, user: *mut c_void) => {
        alive()?;
        subscriber.check().map_err(|_| CuptiResult::INVALID_PARAMETER)?;
        set(subscriber, callbacks::subscribe(callback.ok_or(CuptiResult::INVALID_PARAMETER)?, user)?)
    };
    cuptiUnsubscribe(subscriber: usize) => alive().and_then(|()| callbacks::unsubscribe(subscriber));
    cuptiEnableCallback(enable: u32, subscriber: usize, domain: u32, cbid: u32)
        => alive().and_then(|()| callbacks::enable(enable != 0, subscriber, domain, cbid));
    cuptiEnableDomain(enable: u32, subscriber: usize, domain: u32)
        => alive().and_then(|()| callbacks::enable_domain(enable != 0, subscriber, domain));
    cuptiEnableAllDomains(enable: u32, subscriber: usize)
        => alive().and_then(|()| callbacks::enable_domain(enable != 0, subscriber, domain::DRIVER_API));
    cuptiGetCallbackState(enable: Out<u32>, subscriber: usize, domain: u32, cbid: u32)
        => alive().and_then(|()| set(enable, callbacks::is_enabled(subscriber, domain, cbid)?.into()));
    cuptiGetCallbackName(domain: u32, cbid: u32, name: Out<*const c_char>) => callback_name(domain, cbid, name);
    cuptiActivityRegisterCallbacks(requested: Option<BufferRequestedFn>, completed: Option<BufferCompletedFn>) => {
        alive()?;
        let both = requested.zip(completed).ok_or(CuptiResult::INVALID_PARAMETER)?;
        activity::register(both.0, both.1);
        Ok(())
    };
    cuptiActivityEnable(kind: u32) => alive().and_then(|()| activity::enable(kind, true));
    cuptiActivityDisable(kind: u32) => alive().and_then(|()| activity::enable(kind, false));
    cuptiActivityEnableDriverApi(cbid: u32, enable: u8)
        => alive().and_then(|()| activity::enable_driver_call(cbid, enable != 0));
    // There is no runtime whose calls could be recorded.
    cuptiActivityEnableRuntimeApi(cbid: u32, _enable: u8)
        => if (1..super::RUNTIME_IDS).contains(&cbid) { alive() } else { Err(CuptiResult::INVALID_PARAMETER) };
    cuptiActivityEnableAllSyncRecords(enable: u8) => {
        activity::enable_all_sync_records(enable != 0);
        Ok(())
    };
    cuptiActivityFlushAll(flag: u32) => {
        alive()?;
        activity::flush(flag & cupti_sys::FLAG_FLUSH_FORCED != 0);
        Ok(())
    };
    cuptiActivityFlushPeriod(time_ms: u32) => flush_period(time_ms);
    cuptiActivityGetNextRecord(buffer: *mut u8, valid: usize, record: Out<*mut u8>) => next_record(buffer, valid, record);
    cuptiActivityGetNumDroppedRecords(_context: *mut c_void, _stream: u32, dropped: Out<usize>)
        => alive().and_then(|()| set(dropped, activity::take_dropped()));
    cuptiActivityGetAttribute(attribute: u32, size: Out<usize>, value: *mut c_void) => get_attribute(attribute, size, value);
    cuptiActivitySetAttribute(attribute: u32, size: Out<usize>, value: *mut c_void) => set_attribute(attribute, size, value);
}

fn result_string(result: u32, text: Out<*const c_char>) -> Answer {
    let name = CuptiResult(result).name().ok_or(CuptiResult::INVALID_PARAMETER)?;
    let full = if result == 0 { "CUPTI_SUCCESS".to_owned() } else { format!("CUPTI_ERROR_{name}") };
    set(text, lasting(full))
}

/// A string that lives as long as the library.
fn lasting(text: String) -> *const c_char {
    static TEXTS: LazyLock<Mutex<HashMap<String, &'static std::ffi::CStr>>> = LazyLock::new(Mutex::default);
    let mut texts = lock(&TEXTS);
    let made =
        || Box::leak(CString::new(text.as_str()).unwrap_or_default().into_boxed_c_str()) as &std::ffi::CStr;
    texts.entry(text.clone()).or_insert_with(made).as_ptr()
}

fn callback_name(in_domain: u32, cbid: u32, name: Out<*const c_char>) -> Answer {
    let found = match in_domain {
        domain::DRIVER_API => driver_name(cbid),
        domain::RUNTIME_API => cupti_sys::cbid::find(in_domain, cbid).map(|call| call.name),
        _ => None,
    };
    set(name, lasting(found.ok_or(CuptiResult::INVALID_PARAMETER)?.to_owned()))
}

/// Steps by this version's record sizes. Measured on the real library: null 1, end of buffer and record cut short
/// 12, kind 0 or unknown 21.
fn next_record(buffer: *mut u8, valid: usize, record: Out<*mut u8>) -> Answer {
    let current = record.get().map_err(|_| CuptiResult::INVALID_PARAMETER)?;
    if buffer.is_null() {
        return Err(CuptiResult::INVALID_PARAMETER);
    }
    let kind_at = |offset: usize| {
        if offset + 4 > valid {
            return Err(CuptiResult::MAX_LIMIT_REACHED);
        }
        // SAFETY: the caller's buffer has `valid` bytes; four of them at `offset` are inside.
        Ok(unsafe { buffer.add(offset).cast::<u32>().read_unaligned() })
    };
    let offset = if current.is_null() {
        0
    } else {
        let at = (current as usize).wrapping_sub(buffer as usize);
        at.saturating_add(activity::stride(kind_at(at.min(valid))?))
    };
    let size = activity::stride(kind_at(offset)?);
    if size == 0 {
        return Err(CuptiResult::INVALID_KIND);
    }
    if offset + size > valid {
        return Err(CuptiResult::MAX_LIMIT_REACHED);
    }
    set(record, buffer.wrapping_add(offset))
}

/// Gives complete buffers back every `time_ms` milliseconds; 0 stops it.
fn flush_period(time_ms: u32) -> Answer {
    use std::sync::atomic::{AtomicU64, Ordering};
    static GENERATION: AtomicU64 = AtomicU64::new(0);
    alive()?;
    let mine = GENERATION.fetch_add(1, Ordering::SeqCst) + 1;
    if time_ms == 0 {
        return Ok(());
    }
    let tick = std::time::Duration::from_millis(time_ms.into());
    let flusher = move || {
        loop {
            std::thread::sleep(tick);
            if GENERATION.load(Ordering::SeqCst) != mine || process::check_alive().is_err() {
                return;
            }
            activity::give_back_complete();
        }
    };
    let spawned = std::thread::Builder::new().name("emu-cupti-flush".into()).spawn(flusher);
    spawned.map(drop).map_err(|_| CuptiResult::UNKNOWN)
}

/// Attributes (buffer sizes and limits) are kept and told, and change nothing here.
static ATTRIBUTES: LazyLock<Mutex<HashMap<u32, usize>>> = LazyLock::new(Mutex::default);
/// CUPTI_ACTIVITY_ATTR_* of 12.8 that are a `size_t`: buffer and pool sizes and limits.
const SIZE_ATTRIBUTES: std::ops::RangeInclusive<u32> = 0..=5;

fn get_attribute(attribute: u32, size: Out<usize>, value: *mut c_void) -> Answer {
    alive()?;
    if !SIZE_ATTRIBUTES.contains(&attribute) || size.get().unwrap_or(0) < size_of::<usize>() {
        return Err(CuptiResult::INVALID_PARAMETER);
    }
    let default = if attribute == 0 { 8 << 20 } else { 250 };
    set(Out(value.cast::<usize>()), lock(&ATTRIBUTES).get(&attribute).copied().unwrap_or(default))
}

fn set_attribute(attribute: u32, size: Out<usize>, value: *mut c_void) -> Answer {
    alive()?;
    if !SIZE_ATTRIBUTES.contains(&attribute) || size.get().unwrap_or(0) < size_of::<usize>() {
        return Err(CuptiResult::INVALID_PARAMETER);
    }
    let value = Out(value.cast::<usize>()).get().map_err(|_| CuptiResult::INVALID_PARAMETER)?;
    lock(&ATTRIBUTES).insert(attribute, value);
    Ok(())
}
