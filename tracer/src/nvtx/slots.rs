//! The functions behind the slots.
//!
//! In: one NVTX call of the program. Out: at most one record, and the answer that NVTX documents.

#![allow(unsafe_code)]

use std::borrow::Cow;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use syncaudit_eventlog::{DomainId, Payload, RangeAttributes, Record, StrId};

use super::abi::{self, EventAttributes, message, payload};
use super::handles::Handles;
use super::text::{Text, narrow};
use crate::boundary::guard;
use crate::clock;
use crate::thread::{self, ThreadState};

/// A domain lives for ever: programs use handles after destroying the domain.
struct Domain {
    name: Box<[u8]>,
    id: DomainId,
    /// The recording (by its number) in which it is defined.
    defined_in: AtomicU32,
}

/// A registered string.
struct Registered {
    text: Box<[u8]>,
    /// Its id in the log, with the recording's number in the upper half: a forked child has ids of its own.
    interned: AtomicU64,
}

static DOMAINS: Handles<Domain> = Handles::new();
static STRINGS: Handles<Registered> = Handles::new();
static NEXT_DOMAIN: AtomicU32 = AtomicU32::new(1);

type Slot = (usize, *const c_void);

pub fn core() -> [Slot; 15] {
    use abi::core::*;
    [
        (MARK_EX, mark_ex as *const c_void),
        (MARK_A, mark_a as *const c_void),
        (MARK_W, mark_w as *const c_void),
        (RANGE_START_EX, range_start_ex as *const c_void),
        (RANGE_START_A, range_start_a as *const c_void),
        (RANGE_START_W, range_start_w as *const c_void),
        (RANGE_END, range_end as *const c_void),
        (RANGE_PUSH_EX, range_push_ex as *const c_void),
        (RANGE_PUSH_A, range_push_a as *const c_void),
        (RANGE_PUSH_W, range_push_w as *const c_void),
        (RANGE_POP, range_pop as *const c_void),
        (NAME_CATEGORY_A, name_category_a as *const c_void),
        (NAME_CATEGORY_W, name_category_w as *const c_void),
        (NAME_OS_THREAD_A, name_os_thread_a as *const c_void),
        (NAME_OS_THREAD_W, name_os_thread_w as *const c_void),
    ]
}

pub fn core2() -> [Slot; 15] {
    use abi::core2::*;
    [
        (DOMAIN_MARK_EX, domain_mark_ex as *const c_void),
        (DOMAIN_RANGE_START_EX, domain_range_start_ex as *const c_void),
        (DOMAIN_RANGE_END, domain_range_end as *const c_void),
        (DOMAIN_RANGE_PUSH_EX, domain_range_push_ex as *const c_void),
        (DOMAIN_RANGE_POP, domain_range_pop as *const c_void),
        (DOMAIN_RESOURCE_CREATE, domain_resource_create as *const c_void),
        (DOMAIN_RESOURCE_DESTROY, domain_resource_destroy as *const c_void),
        (DOMAIN_NAME_CATEGORY_A, domain_name_category_a as *const c_void),
        (DOMAIN_NAME_CATEGORY_W, domain_name_category_w as *const c_void),
        (DOMAIN_REGISTER_STRING_A, domain_register_string_a as *const c_void),
        (DOMAIN_REGISTER_STRING_W, domain_register_string_w as *const c_void),
        (DOMAIN_CREATE_A, domain_create_a as *const c_void),
        (DOMAIN_CREATE_W, domain_create_w as *const c_void),
        (DOMAIN_DESTROY, domain_destroy as *const c_void),
        (INITIALIZE, initialize as *const c_void),
    ]
}

pub fn payload_extension() -> [Slot; 3] {
    use abi::payload_extension::*;
    [
        (RANGE_PUSH, range_push_payload as *const c_void),
        (RANGE_POP, range_pop_payload as *const c_void),
        (DOMAIN_IS_ENABLED, domain_is_enabled as *const c_void),
    ]
}

// ---- what the slots do ----

impl ThreadState {
    /// The id of a domain handle, defined in this recording's log. Null and unknown handles are the default domain.
    #[inline]
    fn domain(&mut self, handle: *const c_void) -> DomainId {
        if handle.is_null() {
            return DomainId::NONE;
        }
        let Some(domain) = DOMAINS.get(handle) else { return DomainId::NONE };
        if let Some(session) = self.session()
            && domain.defined_in.load(Ordering::Acquire) != session.number
            && domain.defined_in.swap(session.number, Ordering::AcqRel) != session.number
            && let Some(log) = self.log()
        {
            let name = log.str(&domain.name);
            log.write(&Record::Domain { id: domain.id, name });
        }
        domain.id
    }

    #[inline]
    fn registered(&mut self, handle: *const c_void) -> StrId {
        let (Some(string), Some(session)) = (STRINGS.get(handle), self.session()) else { return StrId::NONE };
        let known = string.interned.load(Ordering::Relaxed);
        if (known >> 32) as u32 == session.number {
            return StrId(known as u32);
        }
        let Some(log) = self.log() else { return StrId::NONE };
        let id = log.str(&string.text);
        if !id.is_none() {
            string.interned.store(u64::from(session.number) << 32 | u64::from(id.0), Ordering::Relaxed);
        }
        id
    }

    /// # Safety
    /// `attributes` is null or points to event attributes as NVTX passes them.
    #[inline]
    unsafe fn attributes(&mut self, domain: DomainId, attributes: *const EventAttributes) -> RangeAttributes {
        let none = RangeAttributes { domain, ..RangeAttributes::default() };
        // SAFETY: caller's promise; `size` tells whether the rest is there.
        let attributes = unsafe {
            if attributes.is_null() || usize::from((*attributes).size) < size_of::<EventAttributes>() {
                return none;
            }
            &*attributes
        };
        let name = match attributes.message_type {
            message::REGISTERED => self.registered(attributes.message),
            // SAFETY: the type says which kind of string it is.
            message::ASCII => unsafe { self.text(Text::Narrow(attributes.message.cast())) },
            // SAFETY: as above.
            message::UNICODE => unsafe { self.text(Text::Wide(attributes.message)) },
            _ => StrId::NONE,
        };
        let bits = attributes.payload;
        let payload = match attributes.payload_type {
            payload::UNSIGNED_INT64 => Payload::U64(bits),
            payload::INT64 => Payload::I64(bits as i64),
            payload::DOUBLE => Payload::F64(f64::from_bits(bits)),
            payload::UNSIGNED_INT32 => Payload::U32(bits as u32),
            payload::INT32 => Payload::I32(bits as i32),
            payload::FLOAT => Payload::F32(f32::from_bits(bits as u32)),
            _ => Payload::None,
        };
        RangeAttributes { domain, name, category: attributes.category, payload }
    }

    /// # Safety
    /// `text` is a string as NVTX passes it.
    #[inline]
    unsafe fn text(&mut self, text: Text) -> StrId {
        let Some(log) = self.log() else { return StrId::NONE };
        match text {
            // SAFETY: caller's promise.
            Text::Narrow(text) => log.str(unsafe { narrow(text) }),
            // SAFETY: caller's promise.
            text => log.str(&unsafe { text.bytes() }),
        }
    }

    #[inline]
    fn push_range(&mut self, attributes: RangeAttributes) -> c_int {
        self.end_query_run();
        if let Some(log) = self.log() {
            log.write(&Record::RangePush { t_ns: clock::monotonic_ns(), attributes });
        }
        self.push(attributes.domain)
    }

    #[inline]
    fn pop_range(&mut self, domain: DomainId) -> c_int {
        let t_ns = clock::monotonic_ns();
        self.end_query_run();
        // A pop without a push is the program's slip; recording it would close a range that never was.
        let Some(level) = self.pop(domain) else { return abi::NO_LEVEL };
        if let Some(log) = self.log() {
            log.write(&Record::RangePop { t_ns, domain });
        }
        level
    }

    fn mark(&mut self, attributes: RangeAttributes) {
        if let Some(log) = self.log() {
            log.write(&Record::Mark { t_ns: clock::monotonic_ns(), attributes });
        }
    }

    fn start_range(&mut self, attributes: RangeAttributes) -> u64 {
        let Some(session) = self.session() else { return 0 };
        let range = session.writer.next_range_id();
        if let Some(log) = self.log() {
            log.write(&Record::RangeStart { t_ns: clock::monotonic_ns(), range, attributes });
        }
        range
    }

    fn end_range(&mut self, domain: DomainId, range: u64) {
        // 0 is what a start that wasn't recorded answered.
        if range != 0
            && let Some(log) = self.log()
        {
            log.write(&Record::RangeEnd { t_ns: clock::monotonic_ns(), range, domain });
        }
    }

    fn name_category(&mut self, domain: DomainId, category: u32, name: StrId) {
        if let Some(log) = self.log() {
            log.write(&Record::Category { domain, category, name });
        }
    }

    fn name_thread(&mut self, os_tid: u32, name: StrId) {
        let Some(log) = self.log() else { return };
        let own = syncaudit_eventlog::os_thread_id();
        let other = u64::from(os_tid) != own;
        // The name goes to the lane's thread, so the lane changes hands for one record.
        if other {
            log.write(&Record::Thread { os_tid: u64::from(os_tid) });
        }
        log.write(&Record::ThreadName { name });
        if other {
            log.write(&Record::Thread { os_tid: own });
        }
    }
}

fn create_domain(name: Cow<'_, [u8]>) -> *const c_void {
    let id = DomainId(NEXT_DOMAIN.fetch_add(1, Ordering::Relaxed));
    let handle = DOMAINS.add(Domain { name: name.into(), id, defined_in: AtomicU32::new(0) });
    thread::with(|thread| thread.domain(handle));
    handle
}

fn register_string(text: Cow<'_, [u8]>) -> *const c_void {
    STRINGS.add(Registered { text: text.into(), interned: AtomicU64::new(0) })
}

/// Runs the body of a slot on the calling thread's state.
#[inline]
fn slot<R: Copy>(otherwise: R, body: impl FnOnce(&mut ThreadState) -> R) -> R {
    guard(otherwise, || thread::with(body).unwrap_or(otherwise))
}

// ---- CORE ----

unsafe extern "C" fn mark_ex(attributes: *const EventAttributes) {
    // SAFETY: NVTX passes the program's attributes through; also below.
    unsafe { domain_mark_ex(std::ptr::null(), attributes) }
}

unsafe extern "C" fn mark_a(text: *const c_char) {
    // SAFETY: NVTX passes the program's string through; also below.
    slot((), |thread| unsafe {
        let name = thread.text(Text::Narrow(text));
        thread.mark(RangeAttributes { name, ..RangeAttributes::default() });
    })
}

unsafe extern "C" fn mark_w(text: *const c_void) {
    // SAFETY: as in `mark_a`.
    slot((), |thread| unsafe {
        let name = thread.text(Text::Wide(text));
        thread.mark(RangeAttributes { name, ..RangeAttributes::default() });
    })
}

unsafe extern "C" fn range_start_ex(attributes: *const EventAttributes) -> u64 {
    // SAFETY: as in `mark_ex`.
    unsafe { domain_range_start_ex(std::ptr::null(), attributes) }
}

unsafe extern "C" fn range_start_a(text: *const c_char) -> u64 {
    // SAFETY: as in `mark_a`.
    slot(0, |thread| unsafe {
        let name = thread.text(Text::Narrow(text));
        thread.start_range(RangeAttributes { name, ..RangeAttributes::default() })
    })
}

unsafe extern "C" fn range_start_w(text: *const c_void) -> u64 {
    // SAFETY: as in `mark_a`.
    slot(0, |thread| unsafe {
        let name = thread.text(Text::Wide(text));
        thread.start_range(RangeAttributes { name, ..RangeAttributes::default() })
    })
}

extern "C" fn range_end(range: u64) {
    slot((), |thread| thread.end_range(DomainId::NONE, range))
}

unsafe extern "C" fn range_push_ex(attributes: *const EventAttributes) -> c_int {
    // SAFETY: as in `mark_ex`.
    unsafe { domain_range_push_ex(std::ptr::null(), attributes) }
}

unsafe extern "C" fn range_push_a(text: *const c_char) -> c_int {
    // SAFETY: as in `mark_a`.
    slot(abi::NO_LEVEL, |thread| unsafe {
        let name = thread.text(Text::Narrow(text));
        thread.push_range(RangeAttributes { name, ..RangeAttributes::default() })
    })
}

unsafe extern "C" fn range_push_w(text: *const c_void) -> c_int {
    // SAFETY: as in `mark_a`.
    slot(abi::NO_LEVEL, |thread| unsafe {
        let name = thread.text(Text::Wide(text));
        thread.push_range(RangeAttributes { name, ..RangeAttributes::default() })
    })
}

extern "C" fn range_pop() -> c_int {
    slot(abi::NO_LEVEL, |thread| thread.pop_range(DomainId::NONE))
}

unsafe extern "C" fn name_category_a(category: u32, text: *const c_char) {
    // SAFETY: as in `mark_a`.
    unsafe { domain_name_category_a(std::ptr::null(), category, text) }
}

unsafe extern "C" fn name_category_w(category: u32, text: *const c_void) {
    // SAFETY: as in `mark_a`.
    unsafe { domain_name_category_w(std::ptr::null(), category, text) }
}

unsafe extern "C" fn name_os_thread_a(os_tid: u32, text: *const c_char) {
    // SAFETY: as in `mark_a`.
    slot((), |thread| unsafe {
        let name = thread.text(Text::Narrow(text));
        thread.name_thread(os_tid, name);
    })
}

unsafe extern "C" fn name_os_thread_w(os_tid: u32, text: *const c_void) {
    // SAFETY: as in `mark_a`.
    slot((), |thread| unsafe {
        let name = thread.text(Text::Wide(text));
        thread.name_thread(os_tid, name);
    })
}

// ---- CORE2 ----

unsafe extern "C" fn domain_mark_ex(domain: *const c_void, attributes: *const EventAttributes) {
    // SAFETY: as in `mark_ex`.
    slot((), |thread| unsafe {
        let domain = thread.domain(domain);
        let attributes = thread.attributes(domain, attributes);
        thread.mark(attributes);
    })
}

unsafe extern "C" fn domain_range_start_ex(domain: *const c_void, attributes: *const EventAttributes) -> u64 {
    // SAFETY: as in `mark_ex`.
    slot(0, |thread| unsafe {
        let domain = thread.domain(domain);
        let attributes = thread.attributes(domain, attributes);
        thread.start_range(attributes)
    })
}

extern "C" fn domain_range_end(domain: *const c_void, range: u64) {
    slot((), |thread| {
        let domain = thread.domain(domain);
        thread.end_range(domain, range);
    })
}

unsafe extern "C" fn domain_range_push_ex(
    domain: *const c_void,
    attributes: *const EventAttributes,
) -> c_int {
    // SAFETY: as in `mark_ex`.
    slot(abi::NO_LEVEL, |thread| unsafe {
        let domain = thread.domain(domain);
        let attributes = thread.attributes(domain, attributes);
        thread.push_range(attributes)
    })
}

extern "C" fn domain_range_pop(domain: *const c_void) -> c_int {
    slot(abi::NO_LEVEL, |thread| {
        let domain = thread.domain(domain);
        thread.pop_range(domain)
    })
}

/// Resources (named locks and the like) say nothing about waits; the program only needs a handle that isn't null.
extern "C" fn domain_resource_create(_domain: *const c_void, _attributes: *const c_void) -> *const c_void {
    std::ptr::without_provenance(1)
}

extern "C" fn domain_resource_destroy(_resource: *const c_void) {}

unsafe extern "C" fn domain_name_category_a(domain: *const c_void, category: u32, text: *const c_char) {
    // SAFETY: as in `mark_a`.
    slot((), |thread| unsafe {
        let domain = thread.domain(domain);
        let name = thread.text(Text::Narrow(text));
        thread.name_category(domain, category, name);
    })
}

unsafe extern "C" fn domain_name_category_w(domain: *const c_void, category: u32, text: *const c_void) {
    // SAFETY: as in `mark_a`.
    slot((), |thread| unsafe {
        let domain = thread.domain(domain);
        let name = thread.text(Text::Wide(text));
        thread.name_category(domain, category, name);
    })
}

unsafe extern "C" fn domain_register_string_a(_domain: *const c_void, text: *const c_char) -> *const c_void {
    // SAFETY: as in `mark_a`.
    guard(std::ptr::null(), || register_string(unsafe { Text::Narrow(text).bytes() }))
}

unsafe extern "C" fn domain_register_string_w(_domain: *const c_void, text: *const c_void) -> *const c_void {
    // SAFETY: as in `mark_a`.
    guard(std::ptr::null(), || register_string(unsafe { Text::Wide(text).bytes() }))
}

unsafe extern "C" fn domain_create_a(text: *const c_char) -> *const c_void {
    // SAFETY: as in `mark_a`.
    guard(std::ptr::null(), || create_domain(unsafe { Text::Narrow(text).bytes() }))
}

unsafe extern "C" fn domain_create_w(text: *const c_void) -> *const c_void {
    // SAFETY: as in `mark_a`.
    guard(std::ptr::null(), || create_domain(unsafe { Text::Wide(text).bytes() }))
}

/// Ranges of the domain may still be open on other threads, and programs do use the handle afterwards.
extern "C" fn domain_destroy(_domain: *const c_void) {}

extern "C" fn initialize(_reserved: *const c_void) {}

// ---- payload extension ----

/// Ranges with an extended payload: what is in it is data of the program, so only the range is recorded.
extern "C" fn range_push_payload(domain: *const c_void, _payload: *const c_void, _count: usize) -> c_int {
    slot(abi::NO_LEVEL, |thread| {
        let domain = thread.domain(domain);
        thread.push_range(RangeAttributes { domain, ..RangeAttributes::default() })
    })
}

extern "C" fn range_pop_payload(domain: *const c_void, _payload: *const c_void, _count: usize) -> c_int {
    domain_range_pop(domain)
}

extern "C" fn domain_is_enabled(_domain: *const c_void) -> u8 {
    1
}
