//! An NVTX client that builds with nothing but a Rust toolchain: the program's side of the injection protocol (NVTX v3, load sequence 2).
//!
//! In: the first range of the process. Then: the library that `NVTX_INJECTION64_PATH` names is loaded, its
//! `InitializeInjectionNvtx2` is handed a function that answers with our tables, and it fills the slots it wants.
//! Out: a call through the slot, or nothing where a slot stayed empty. Must never unload a library that said yes.
//!
//! Used by the reference trainer and by the probe of `syncaudit doctor`.
//!
//! Facts: `nvtxInit.h`, `nvtxTypes.h` of NVTX 3 (table ids, slot numbers, layouts of the structs).

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Opens a range on this thread.
pub fn push(name: &CStr) {
    let slot = tables().core(RANGE_PUSH_A);
    if !slot.is_null() {
        // SAFETY: the injected library filled slot 9 of CORE, whose type the protocol fixes as nvtxRangePushA.
        let push: extern "C" fn(*const c_char) -> c_int = unsafe { std::mem::transmute(slot) };
        push(name.as_ptr());
    }
}

/// Opens a range with a signed 64-bit payload.
pub fn push_with_payload(name: &CStr, payload: i64) {
    let slot = tables().core(RANGE_PUSH_EX);
    if !slot.is_null() {
        // SAFETY: the injected library filled slot 8 of CORE, whose type the protocol fixes as nvtxRangePushEx.
        let push: extern "C" fn(*const EventAttributes) -> c_int = unsafe { std::mem::transmute(slot) };
        push(&EventAttributes::new(name, payload));
    }
}

/// Closes the innermost open range of this thread.
pub fn pop() {
    let slot = tables().core(RANGE_POP);
    if !slot.is_null() {
        // SAFETY: the injected library filled slot 11 of CORE, whose type the protocol fixes as nvtxRangePop.
        let pop: extern "C" fn() -> c_int = unsafe { std::mem::transmute(slot) };
        pop();
    }
}

const RANGE_PUSH_EX: usize = 8;
const RANGE_PUSH_A: usize = 9;
const RANGE_POP: usize = 11;

/// nvtxEventAttributes_t, version 3: 48 bytes.
#[repr(C)]
struct EventAttributes {
    version: u16,
    size: u16,
    category: u32,
    color_type: i32,
    color: u32,
    payload_type: i32,
    reserved: i32,
    payload: i64,
    message_type: i32,
    message: *const c_char,
}

impl EventAttributes {
    fn new(name: &CStr, payload: i64) -> Self {
        const PAYLOAD_INT64: i32 = 2;
        const MESSAGE_ASCII: i32 = 1;
        EventAttributes {
            version: 3,
            size: size_of::<EventAttributes>() as u16,
            category: 0,
            color_type: 0,
            color: 0,
            payload_type: PAYLOAD_INT64,
            reserved: 0,
            payload,
            message_type: MESSAGE_ASCII,
            message: name.as_ptr(),
        }
    }
}

/// Modules of the protocol that we hold slots for, and how many slots NVTX 3 gives them.
const CORE: c_int = 1;
const CORE2: c_int = 5;
const SLOTS: usize = 16;

/// The slots of one module, and the array of their addresses that the protocol hands out.
struct Module {
    slots: [AtomicPtr<c_void>; SLOTS],
    addresses: [AtomicPtr<AtomicPtr<c_void>>; SLOTS],
}

impl Module {
    fn new() -> Self {
        Module {
            slots: [const { AtomicPtr::new(ptr::null_mut()) }; SLOTS],
            addresses: [const { AtomicPtr::new(ptr::null_mut()) }; SLOTS],
        }
    }

    /// Points the addresses at the slots, once the module no longer moves. Slot 0 is not used and stays null.
    fn link(&'static self) {
        for (address, slot) in self.addresses.iter().zip(&self.slots).skip(1) {
            address.store(ptr::from_ref(slot).cast_mut(), Ordering::Relaxed);
        }
    }
}

struct Tables {
    core: Module,
    core2: Module,
    callbacks: Callbacks,
    version: VersionInfo,
}

impl Tables {
    fn core(&self, index: usize) -> *mut c_void {
        self.core.slots[index].load(Ordering::Acquire)
    }
}

/// NvtxExportTableCallbacks
#[repr(C)]
struct Callbacks {
    struct_size: usize,
    get_module_function_table:
        extern "C" fn(c_int, *mut *const AtomicPtr<AtomicPtr<c_void>>, *mut c_uint) -> c_int,
}

/// NvtxExportTableVersionInfo
#[repr(C)]
struct VersionInfo {
    struct_size: usize,
    version: u32,
    reserved: u32,
    set_injection_version: extern "C" fn(u32),
}

static TABLES: OnceLock<&'static Tables> = OnceLock::new();
static READY: OnceLock<()> = OnceLock::new();

fn tables() -> &'static Tables {
    // Two steps, because the library calls back for the tables while it is being initialised.
    let tables = *TABLES.get_or_init(|| {
        let tables: &'static Tables = Box::leak(Box::new(Tables {
            core: Module::new(),
            core2: Module::new(),
            callbacks: Callbacks {
                struct_size: size_of::<Callbacks>(),
                get_module_function_table: module_function_table,
            },
            version: VersionInfo {
                struct_size: size_of::<VersionInfo>(),
                version: 3,
                reserved: 0,
                set_injection_version: ignore_version,
            },
        }));
        tables.core.link();
        tables.core2.link();
        tables
    });
    READY.get_or_init(|| load(tables));
    tables
}

/// Loads the library that the environment names. A library that is missing, holds no entry point or says no turns NVTX
/// off for this process, without a word: that is what the official headers do, and the tool has its own way to notice.
fn load(tables: &'static Tables) {
    let Some(path) = std::env::var_os("NVTX_INJECTION64_PATH").filter(|path| !path.is_empty()) else {
        return;
    };
    type Initialize = extern "C" fn(extern "C" fn(u32) -> *const c_void) -> c_int;
    // SAFETY: loading runs the library's constructors; the user named it for this purpose.
    let Ok(library) = (unsafe { libloading::Library::new(&path) }) else { return };
    // SAFETY: the protocol fixes the type of this symbol.
    let initialize = match unsafe { library.get::<Initialize>(b"InitializeInjectionNvtx2\0") } {
        Ok(symbol) => *symbol,
        Err(_) => return,
    };
    if initialize(export_table) == 1 {
        // The slots point into the library from here on, to the end of the process.
        std::mem::forget(library);
    } else {
        for slot in tables.core.slots.iter().chain(&tables.core2.slots) {
            slot.store(ptr::null_mut(), Ordering::Release);
        }
    }
}

extern "C" fn export_table(id: u32) -> *const c_void {
    const CALLBACKS: u32 = 1;
    const VERSION_INFO: u32 = 3;
    let Some(tables) = TABLES.get() else { return ptr::null() };
    match id {
        CALLBACKS => ptr::from_ref(&tables.callbacks).cast(),
        VERSION_INFO => ptr::from_ref(&tables.version).cast(),
        _ => ptr::null(),
    }
}

extern "C" fn module_function_table(
    module: c_int,
    out_table: *mut *const AtomicPtr<AtomicPtr<c_void>>,
    out_size: *mut c_uint,
) -> c_int {
    let Some(tables) = TABLES.get() else { return 0 };
    let module = match module {
        CORE => &tables.core,
        CORE2 => &tables.core2,
        _ => return 0,
    };
    if !out_table.is_null() {
        // SAFETY: the caller passes either null or a valid place for the table.
        unsafe { out_table.write(module.addresses.as_ptr()) };
    }
    if !out_size.is_null() {
        // SAFETY: the caller passes either null or a valid place for the size.
        unsafe { out_size.write(SLOTS as c_uint) };
    }
    1
}

extern "C" fn ignore_version(_version: u32) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_attributes_have_the_layout_of_the_header() {
        assert_eq!(size_of::<EventAttributes>(), 48);
        assert_eq!(std::mem::offset_of!(EventAttributes, payload_type), 16);
        assert_eq!(std::mem::offset_of!(EventAttributes, payload), 24);
        assert_eq!(std::mem::offset_of!(EventAttributes, message_type), 32);
        assert_eq!(std::mem::offset_of!(EventAttributes, message), 40);
    }

    #[test]
    fn modules_we_do_not_hold_are_refused() {
        tables();
        assert_eq!(module_function_table(2, ptr::null_mut(), ptr::null_mut()), 0);
        assert_eq!(module_function_table(CORE, ptr::null_mut(), ptr::null_mut()), 1);
    }
}
