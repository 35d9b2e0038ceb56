//! The executable and shared objects of this process, for unwinding now and for symbols later.
//!
//! In: the dynamic linker's list. Out: a [`Snapshot`] with unwind tables (slices of the mapped files, nothing is
//! copied) and a description of each module. Must never read a file on the way to a stack.

#![allow(unsafe_code)]

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use framehop::{ExplicitModuleSectionInfo, MustNotAllocateDuringUnwind, Unwinder as _};

/// Unwind tables lie in the mapped modules themselves.
pub type Tables = framehop::UnwinderNative<&'static [u8], MustNotAllocateDuringUnwind>;

/// One mapped executable or shared object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Where it is mapped.
    pub range: Range<u64>,
    /// What to subtract from an address to get the one in the file.
    pub bias: u64,
    pub path: PathBuf,
    pub build_id: Vec<u8>,
    /// The program itself, not a library.
    pub is_executable: bool,
    eh_frame_hdr: Option<Range<u64>>,
    /// Starts where the header says and ends no later than its segment.
    eh_frame: Option<Range<u64>>,
}

/// The modules at one moment.
#[derive(Clone)]
pub struct Snapshot {
    pub tables: Tables,
    pub modules: Vec<Module>,
    /// The range of this library, if it is one: its frames say nothing about the program.
    pub own: Option<Range<u64>>,
    changes: u64,
}

/// How often modules were loaded and unloaded so far. Cheap: looks at the first list entry only.
pub fn changes() -> u64 {
    extern "C" fn first(info: *mut libc::dl_phdr_info, size: usize, data: *mut c_void) -> c_int {
        if size >= size_of::<libc::dl_phdr_info>() {
            // SAFETY: the linker passes a full `dl_phdr_info`, and `data` is the u64 below.
            unsafe { *data.cast::<u64>() = (*info).dlpi_adds.wrapping_add((*info).dlpi_subs << 32) };
        }
        1
    }
    let mut changes = 0u64;
    // SAFETY: `first` has the type asked for and keeps nothing.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut changes).cast()) };
    changes
}

impl Snapshot {
    /// Reads the linker's list anew, keeping what `previous` already knows.
    pub fn take(previous: Option<&Snapshot>) -> Arc<Snapshot> {
        let changes = changes();
        let mut modules: Vec<Module> = Vec::new();
        // SAFETY: `visit` has the type asked for; `modules` outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut modules).cast()) };

        let mut tables = previous.map_or_else(Tables::new, |previous| previous.tables.clone());
        let known = previous.map_or(&[][..], |previous| &previous.modules);
        for gone in known.iter().filter(|module| !modules.contains(module)) {
            tables.remove_module(gone.range.start);
        }
        for new in modules.iter().filter(|module| !known.contains(module)) {
            if let Some(module) = new.unwind_module() {
                tables.add_module(module);
            }
        }
        let here = Self::take as *const () as u64;
        let own = modules
            .iter()
            .find(|module| module.range.contains(&here) && !module.is_executable)
            .map(|module| module.range.clone());
        Arc::new(Snapshot { tables, modules, own, changes })
    }

    pub fn is_current(&self) -> bool {
        self.changes == changes()
    }
}

impl Module {
    fn unwind_module(&self) -> Option<framehop::Module<&'static [u8]>> {
        let (hdr, frame) = (self.eh_frame_hdr.clone()?, self.eh_frame.clone()?);
        let in_file = |range: &Range<u64>| range.start - self.bias..range.end - self.bias;
        // SAFETY: both ranges lie in mapped, readable segments of a loaded module. A module whose code is on the
        // stack can't be unloaded, and only such modules' tables are read; see `native`.
        let bytes = |range: &Range<u64>| unsafe {
            std::slice::from_raw_parts(range.start as *const u8, (range.end - range.start) as usize)
        };
        let sections = ExplicitModuleSectionInfo {
            base_svma: 0,
            eh_frame_hdr_svma: Some(in_file(&hdr)),
            eh_frame_hdr: Some(bytes(&hdr)),
            eh_frame_svma: Some(in_file(&frame)),
            eh_frame: Some(bytes(&frame)),
            ..Default::default()
        };
        Some(framehop::Module::new(String::new(), self.range.clone(), self.bias, sections))
    }
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
    // SAFETY: the linker passes a filled structure whose tables are valid during the call; `data` is the Vec that
    // `take` passed.
    let (info, modules) = unsafe { (&*info, &mut *data.cast::<Vec<Module>>()) };
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: as above, `dlpi_phnum` headers.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize) };
    let name = if info.dlpi_name.is_null() {
        c""
    } else {
        // SAFETY: NUL-terminated and valid during the call.
        unsafe { CStr::from_ptr(info.dlpi_name) }
    };
    let is_executable = modules.is_empty() && name.is_empty();
    let path = if is_executable {
        std::fs::read_link("/proc/self/exe").unwrap_or_default()
    } else {
        PathBuf::from(OsStr::from_bytes(name.to_bytes()))
    };
    if let Some(module) = describe(info.dlpi_addr, headers, path, is_executable) {
        modules.push(module);
    }
    0
}

fn describe(bias: u64, headers: &[libc::Elf64_Phdr], path: PathBuf, is_executable: bool) -> Option<Module> {
    let mapped = |header: &libc::Elf64_Phdr| {
        let start = bias.wrapping_add(header.p_vaddr);
        start..start.saturating_add(header.p_memsz)
    };
    let segments = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
    let start = segments.clone().map(|header| mapped(header).start).min()?;
    let end = segments.clone().map(|header| mapped(header).end).max()?;

    let eh_frame_hdr = headers.iter().find(|header| header.p_type == libc::PT_GNU_EH_FRAME).map(&mapped);
    let eh_frame = eh_frame_hdr.as_ref().and_then(|hdr| {
        let start = eh_frame_start(hdr)?;
        let segment = segments.clone().map(mapped).find(|segment| segment.contains(&start))?;
        Some(start..segment.end)
    });
    let build_id = headers
        .iter()
        .filter(|header| header.p_type == libc::PT_NOTE)
        .find_map(|header| {
            let notes = mapped(header);
            // SAFETY: notes with an address are part of a mapped, readable segment.
            let bytes = unsafe {
                std::slice::from_raw_parts(notes.start as *const u8, (notes.end - notes.start) as usize)
            };
            build_id(bytes, header.p_align as usize)
        })
        .unwrap_or_default();
    Some(Module { range: start..end, bias, path, build_id, is_executable, eh_frame_hdr, eh_frame })
}

/// Reads the pointer to `.eh_frame` in the way every current linker writes it (32 bits, relative to itself).
fn eh_frame_start(hdr: &Range<u64>) -> Option<u64> {
    const VERSION: u8 = 1;
    const PCREL_SDATA4: u8 = 0x1b;
    if hdr.end - hdr.start < 8 {
        return None;
    }
    // SAFETY: 8 bytes of a mapped segment (length just checked).
    let bytes = unsafe { *(hdr.start as *const [u8; 8]) };
    if bytes[0] != VERSION || bytes[1] != PCREL_SDATA4 {
        return None;
    }
    let offset = i32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
    (hdr.start + 4).checked_add_signed(i64::from(offset))
}

/// Finds `NT_GNU_BUILD_ID` in a note segment.
fn build_id(mut notes: &[u8], align: usize) -> Option<Vec<u8>> {
    const NT_GNU_BUILD_ID: u32 = 3;
    let align = if align == 8 { 8 } else { 4 };
    loop {
        let (head, rest) = notes.split_first_chunk::<12>()?;
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (name_len, desc_len, kind) = (word(0) as usize, word(4) as usize, word(8));
        let desc_at = (12 + name_len).next_multiple_of(align) - 12;
        let next = (12 + desc_at + desc_len).next_multiple_of(align) - 12;
        let desc = rest.get(desc_at..desc_at.checked_add(desc_len)?)?;
        if kind == NT_GNU_BUILD_ID && rest.get(..name_len)? == b"GNU\0" {
            return Some(desc.to_vec());
        }
        notes = rest.get(next..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_snapshot_knows_the_program_and_libc_with_their_build_ids() {
        let snapshot = Snapshot::take(None);
        assert!(snapshot.is_current());
        let here = Snapshot::take as *const () as u64;
        let program = snapshot.modules.iter().find(|module| module.range.contains(&here)).unwrap();
        assert!(program.is_executable);
        assert_eq!(program.path, std::env::current_exe().unwrap());
        let libc_module = snapshot
            .modules
            .iter()
            .find(|module| module.range.contains(&(libc::getpid as *const () as u64)))
            .unwrap();
        assert!(!libc_module.build_id.is_empty() && libc_module.path.is_absolute());
        assert!(libc_module.eh_frame.is_some() && libc_module.eh_frame_hdr.is_some());
    }

    #[test]
    fn build_ids_are_found_behind_other_notes_and_broken_notes_are_none() {
        let mut notes = Vec::new();
        for (kind, desc) in [(1u32, &[9u8; 16][..]), (3, &[1, 2, 3, 4, 5])] {
            notes.extend([4u32, desc.len() as u32, kind].iter().flat_map(|word| word.to_le_bytes()));
            notes.extend(b"GNU\0");
            notes.extend(desc);
            notes.resize(notes.len().next_multiple_of(4), 0);
        }
        assert_eq!(build_id(&notes, 4).as_deref(), Some(&[1u8, 2, 3, 4, 5][..]));
        for end in 0..notes.len() - 3 {
            assert_eq!(build_id(&notes[..end], 4), None, "cut at {end}");
        }
    }
}
