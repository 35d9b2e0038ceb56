//! The Python side of a stack.
//!
//! In: the calling thread, during a callback, with or without the GIL. Out: an interned Python stack. Must never take
//! the GIL, touch a reference count or run Python: another thread may hold the GIL and wait for a lock
//! that this thread holds (PyTorch's allocator does that).
//!
//! Why this is safe: the thread is inside of a C call that its innermost Python frame made, so its chain of frames stands still, and
//! each frame keeps its code object alive, whatever other threads do. That holds for the calling thread's own frames and no others, and
//! until the interpreter shuts down, which takes away the states of threads that still run: from then on nothing is read.
//! The first stack is read through the kernel, which can't fault, and checked piece by piece; only if all of it is what it should be,
//! later ones are read directly. Whatever is not as expected ends the reading of Python frames for good, with one line on stderr.

#![allow(unsafe_code)]

mod layout;
mod memory;

use std::ffi::{CStr, c_char, c_int, c_ulong, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use syncaudit_eventlog::{NoteLevel, PyCodeId, PyFrame, PyStackId, Record, ThreadLog};

use self::layout::{FIRST_INTERNAL_OWNER, Layout, Position, Top};
use self::memory::{Checked, Direct, Memory};
use crate::boundary::say;
use crate::{clock, session};

/// Frames beyond this are cut off at the outer end, and a frame without a code object says so.
const MAX_FRAMES: usize = 256;
/// With the interpreter's own between them, of which there is at most one per frame.
const MAX_VISITED: usize = 4 * MAX_FRAMES;
/// Characters of a name, bytes of a line table.
const MAX_TEXT: u64 = 4096;
const MAX_TABLE: u64 = 60 * 1024;

/// The interpreter of this process.
struct Interpreter {
    layout: Layout,
    this_thread: unsafe extern "C" fn() -> *mut c_void,
    is_finalizing: unsafe extern "C" fn() -> c_int,
    code_type: u64,
    str_type: u64,
    bytes_type: u64,
}

/// Null until [`find`] has found one. Never changes after that.
static INTERPRETER: AtomicPtr<Interpreter> = AtomicPtr::new(std::ptr::null_mut());

const UNTESTED: u8 = 0;
const TRUSTED: u8 = 1;
/// There is an interpreter whose frames can't be read.
const OFF: u8 = 2;
static STATE: AtomicU8 = AtomicU8::new(UNTESTED);

/// Looks for an interpreter in the process. For moments at which libraries are being looked up anyway, since that takes the
/// loader's lock: when CUDA and NVTX come up.
pub fn find() {
    if !INTERPRETER.load(Ordering::Acquire).is_null() || STATE.load(Ordering::Acquire) == OFF {
        return;
    }
    match Interpreter::of_this_process() {
        Ok(None) => {}
        Ok(Some(interpreter)) => {
            let new = Box::into_raw(Box::new(interpreter));
            // Two threads at once: one of the two stays, the other one's is the same and is left alone.
            let _ =
                INTERPRETER.compare_exchange(std::ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire);
        }
        Err(reason) => {
            if STATE.swap(OFF, Ordering::AcqRel) != OFF {
                session::problem(NoteLevel::Info, &without_frames(&reason));
            }
        }
    }
}

fn without_frames(reason: &str) -> String {
    format!("no Python frames are recorded: {reason}; waits have native stacks and ranges")
}

impl Interpreter {
    fn of_this_process() -> Result<Option<Self>, String> {
        let (Some(this_thread), Some(code_type)) =
            (symbol(c"PyGILState_GetThisThreadState"), symbol(c"PyCode_Type"))
        else {
            return Ok(None);
        };
        let minor = version()?;
        let named = |text: String| format!("CPython 3.{minor}: {text}");
        let layout = Layout::of(minor, symbol(c"_PyRuntime").map(|address| address as u64)).map_err(named)?;
        let is_finalizing = symbol(c"Py_IsFinalizing").or_else(|| symbol(c"_Py_IsFinalizing"));
        let (Some(is_finalizing), Some(str_type), Some(bytes_type)) =
            (is_finalizing, symbol(c"PyUnicode_Type"), symbol(c"PyBytes_Type"))
        else {
            return Err(named("it lacks exported names that others of that version have".to_owned()));
        };
        // SAFETY: CPython's functions of these names have these types.
        let (this_thread, is_finalizing) = unsafe {
            (
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> *mut c_void>(this_thread),
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(is_finalizing),
            )
        };
        let (code_type, str_type, bytes_type) = (code_type as u64, str_type as u64, bytes_type as u64);
        Ok(Some(Self { layout, this_thread, is_finalizing, code_type, str_type, bytes_type }))
    }

    /// Reads an atomic of the interpreter, no more.
    fn is_finalizing(&self) -> bool {
        // SAFETY: a function of the interpreter that may be called at any time, with no state.
        unsafe { (self.is_finalizing)() != 0 }
    }
}

/// Y of the 3.y that runs.
fn version() -> Result<u16, String> {
    // SAFETY: a constant of the interpreter (from 3.11 on).
    let hex = symbol(c"Py_Version").map(|address| unsafe { *address.cast::<c_ulong>() });
    let (major, minor) = match hex {
        Some(hex) => ((hex >> 24) as u16, (hex >> 16 & 0xff) as u16),
        None => {
            let get = symbol(c"Py_GetVersion").ok_or("an interpreter that tells no version")?;
            // SAFETY: CPython's function of this name has this type; the text lives for ever.
            let text = unsafe {
                let get = std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> *const c_char>(get);
                CStr::from_ptr(get()).to_string_lossy()
            };
            let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
            (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
        }
    };
    if major == 3 {
        Ok(minor)
    } else {
        Err(format!("Python {major}.{minor} is not known to this version of syncaudit"))
    }
}

fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: looks a name up among the libraries that are loaded.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}

/// A code object as a frame shows it. Code objects are freed and others made at the same address, so all of this tells whether it is a known
/// one: addresses, first line, and length and beginning of the line table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Code {
    address: u64,
    filename: u64,
    qualname: u64,
    line_table: u64,
    table_length: u64,
    table_head: u64,
    first_line: u32,
}

impl Code {
    fn identity(&self) -> [u64; 7] {
        [
            self.address,
            self.filename,
            self.qualname,
            self.line_table,
            self.table_length,
            self.table_head,
            u64::from(self.first_line),
        ]
    }
}

/// Something that is not as it should be.
struct Broken(&'static str);

/// How a walk ended.
#[derive(PartialEq, Eq)]
enum Walked {
    Whole,
    /// There were further frames outwards.
    CutOff,
    /// The interpreter began to shut down meanwhile.
    Finalizing,
}

/// Common start of all objects: reference count, type, and for some a number of items.
const OBJECT_TYPE: u64 = 8;
const OBJECT_SIZE: u64 = 16;
const BYTES_DATA: u64 = 32;
const STR_LENGTH: u64 = 16;
const STR_STATE: u64 = 32;
/// Bit of a string's state at which its kind begins; then come `compact` and `ascii`.
const STR_KIND: u32 = 2;

impl Interpreter {
    /// Visits the frames of the thread whose state is at `state`, innermost first.
    #[inline(always)]
    fn walk<M: Memory>(
        &self,
        memory: &M,
        state: u64,
        mut visit: impl FnMut(&Code, u32) -> Result<(), Broken>,
    ) -> Result<Walked, Broken> {
        const UNREADABLE: Broken = Broken("a frame can't be read");
        let layout = &self.layout;
        let word = |base: u64, at: u64| memory.word(base.wrapping_add(at)).ok_or(UNREADABLE);
        let mut frame = match layout.top {
            Top::Frame(at) => word(state, at)?,
            Top::Through(to, at) => word(word(state, to)?, at)?,
        };
        let mut taken = 0;
        for _ in 0..MAX_VISITED {
            if frame == 0 {
                return Ok(Walked::Whole);
            }
            let here = frame;
            if self.is_finalizing() {
                return Ok(Walked::Finalizing);
            }
            frame = word(here, layout.frame_back)?;
            if let Some(owner) = layout.frame_owner
                && memory.byte(here.wrapping_add(owner)).ok_or(UNREADABLE)? >= FIRST_INTERNAL_OWNER
            {
                continue;
            }
            let code = self.code(memory, word(here, layout.frame_code)? & !TAG)?;
            let offset = match layout.position {
                Position::Index { at, bytes } => {
                    let index = memory.half(here.wrapping_add(at)).ok_or(UNREADABLE)?.cast_signed();
                    // Below 0: about to begin.
                    u32::try_from(index).unwrap_or(0).saturating_mul(bytes)
                }
                Position::Pointer { at, instructions } => {
                    let begin = code.address.wrapping_add(instructions);
                    match word(here, at)?.checked_sub(begin) {
                        Some(offset) if offset < 1 << 31 => offset as u32,
                        Some(_) => return Err(Broken("an instruction is not in its code")),
                        // Being made: not a frame yet.
                        None => continue,
                    }
                }
            };
            if taken == MAX_FRAMES {
                return Ok(Walked::CutOff);
            }
            taken += 1;
            visit(&code, offset)?;
        }
        Err(Broken("the chain of frames has no end"))
    }

    #[inline(always)]
    fn code<M: Memory>(&self, memory: &M, address: u64) -> Result<Code, Broken> {
        const UNREADABLE: Broken = Broken("a code object can't be read");
        let layout = &self.layout;
        let word = |base: u64, at: u64| memory.word(base.wrapping_add(at)).ok_or(UNREADABLE);
        if word(address, OBJECT_TYPE)? != self.code_type {
            return Err(Broken("a frame has something else than a code object"));
        }
        let line_table = word(address, layout.code_line_table)?;
        Ok(Code {
            address,
            filename: word(address, layout.code_filename)?,
            qualname: word(address, layout.code_qualname)?,
            line_table,
            table_length: word(line_table, OBJECT_SIZE)?,
            table_head: word(line_table, BYTES_DATA)?,
            first_line: memory.half(address.wrapping_add(layout.code_first_line)).ok_or(UNREADABLE)?,
        })
    }

    /// Whether the parts of a code object are what they should be.
    fn check(&self, code: &Code, offset: u32) -> Result<(), Broken> {
        let is = |object: u64, kind: u64| Checked.word(object.wrapping_add(OBJECT_TYPE)) == Some(kind);
        let parts = is(code.filename, self.str_type)
            && is(code.qualname, self.str_type)
            && is(code.line_table, self.bytes_type)
            && code.table_length <= i32::MAX as u64;
        // From 3.11 on the instructions, of two bytes each, are at the end of the code object.
        let inside = match self.layout.position {
            Position::Index { .. } => true,
            Position::Pointer { .. } => {
                Checked.word(code.address + OBJECT_SIZE).is_some_and(|units| u64::from(offset) <= units * 2)
            }
        };
        if parts && inside { Ok(()) } else { Err(Broken("a code object is not laid out as expected")) }
    }

    /// Writes a code object into the log.
    fn define(&self, log: &mut ThreadLog<'static>, code: &Code, id: PyCodeId) -> bool {
        let filename = log.str(&self.text(code.filename));
        let qualname = log.str(&self.text(code.qualname));
        let mut line_table = vec![0; code.table_length.min(MAX_TABLE) as usize];
        if !Checked.copy(code.line_table + BYTES_DATA, &mut line_table) {
            line_table.clear();
        }
        log.write(&Record::PyCode {
            id,
            python_minor: self.layout.minor,
            first_line: code.first_line,
            filename,
            qualname,
            line_table: &line_table,
        })
    }

    /// A string in UTF-8; empty when it can't be read.
    fn text(&self, string: u64) -> Vec<u8> {
        self.characters(string).unwrap_or_default()
    }

    fn characters(&self, string: u64) -> Option<Vec<u8>> {
        if Checked.word(string + OBJECT_TYPE)? != self.str_type {
            return None;
        }
        let length = Checked.word(string + STR_LENGTH)?.min(MAX_TEXT) as usize;
        let state = Checked.half(string + STR_STATE)? >> STR_KIND;
        let (kind, compact, ascii) = (state & 7, state >> 3 & 1, state >> 4 & 1);
        if compact == 0 {
            return None;
        }
        let data = string + if ascii == 1 { self.layout.ascii_data } else { self.layout.wide_data };
        let mut bytes = vec![0; length * kind as usize];
        if !Checked.copy(data, &mut bytes) {
            return None;
        }
        let wide = |unit: u32| char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER);
        Some(match kind {
            1 if ascii == 1 => bytes,
            1 => bytes.iter().map(|&byte| char::from(byte)).collect::<String>().into_bytes(),
            2 => {
                let units = bytes.as_chunks::<2>().0.iter();
                units.map(|unit| wide(u32::from(u16::from_ne_bytes(*unit)))).collect::<String>().into_bytes()
            }
            4 => {
                let units = bytes.as_chunks::<4>().0.iter();
                units.map(|unit| wide(u32::from_ne_bytes(*unit))).collect::<String>().into_bytes()
            }
            _ => return None,
        })
    }
}

/// 3.14 marks pointers to objects in bits that are 0 in their addresses.
const TAG: u64 = 3;

/// Code objects that a thread has met, by address: later ones push out earlier ones.
const KNOWN_CODES: usize = 256;

/// What a thread keeps between two stacks.
pub struct ThreadPython {
    known: Vec<Option<(Code, PyCodeId)>>,
}

impl ThreadPython {
    pub const fn new() -> Self {
        Self { known: Vec::new() }
    }

    /// Another log has other ids.
    pub fn reset(&mut self) {
        self.known.clear();
    }

    /// The Python stack of the calling thread; none if it has no Python frames.
    pub fn capture(&mut self, log: &mut ThreadLog<'static>) -> PyStackId {
        // SAFETY: null or a leaked `Interpreter`.
        let Some(interpreter) = (unsafe { INTERPRETER.load(Ordering::Acquire).as_ref() }) else {
            return PyStackId::NONE;
        };
        let trust = STATE.load(Ordering::Acquire);
        if trust == OFF || interpreter.is_finalizing() {
            return PyStackId::NONE;
        }
        // SAFETY: reads a thread-local of the interpreter; needs no GIL. Null for threads that Python does not know.
        let state = unsafe { (interpreter.this_thread)() } as u64;
        if state == 0 {
            return PyStackId::NONE;
        }
        let captured = if trust == TRUSTED {
            self.frames(interpreter, &Direct, state, log, |_, _| Ok(()))
        } else {
            self.frames(interpreter, &Checked, state, log, |code, offset| interpreter.check(code, offset))
                .inspect(|stack| {
                    // A thread without frames proves nothing.
                    if !stack.is_none() {
                        let _ =
                            STATE.compare_exchange(UNTESTED, TRUSTED, Ordering::AcqRel, Ordering::Acquire);
                    }
                })
        };
        captured.unwrap_or_else(|broken| {
            give_up(interpreter, &broken, log);
            PyStackId::NONE
        })
    }

    #[inline(always)]
    fn frames<M: Memory>(
        &mut self,
        interpreter: &Interpreter,
        memory: &M,
        state: u64,
        log: &mut ThreadLog<'static>,
        check: impl Fn(&Code, u32) -> Result<(), Broken>,
    ) -> Result<PyStackId, Broken> {
        let mut words = [0u64; MAX_FRAMES + 1];
        let mut count = 0;
        let walked = interpreter.walk(memory, state, |code, offset| {
            check(code, offset)?;
            let id = self.id_of(interpreter, code, log);
            // Without an id, the log has no room any more; it counts what it loses.
            if !id.is_none()
                && let Some(word) = words.get_mut(count)
            {
                *word = PyFrame { code: id, offset }.pack();
                count += 1;
            }
            Ok(())
        })?;
        match walked {
            Walked::Whole => {}
            // The word of a frame without a code object.
            Walked::CutOff => count += 1,
            Walked::Finalizing => return Ok(PyStackId::NONE),
        }
        Ok(log.py_stack(words.get(..count).unwrap_or_default()))
    }

    #[inline(always)]
    fn id_of(&mut self, interpreter: &Interpreter, code: &Code, log: &mut ThreadLog<'static>) -> PyCodeId {
        // Objects are a multiple of 16 apart.
        let slot = ((code.address >> 4) ^ (code.address >> 12)) as usize % KNOWN_CODES;
        match self.known.get(slot) {
            Some(Some((known, id))) if known == code => *id,
            _ => self.learn(slot, interpreter, code, log),
        }
    }

    #[cold]
    fn learn(
        &mut self,
        slot: usize,
        interpreter: &Interpreter,
        code: &Code,
        log: &mut ThreadLog<'static>,
    ) -> PyCodeId {
        let id = log.py_code(&code.identity(), |log, id| interpreter.define(log, code, id));
        if self.known.is_empty() {
            self.known.resize(KNOWN_CODES, None);
        }
        if let Some(place) = self.known.get_mut(slot)
            && !id.is_none()
        {
            *place = Some((*code, id));
        }
        id
    }
}

#[cold]
fn give_up(interpreter: &Interpreter, broken: &Broken, log: &mut ThreadLog<'static>) {
    if STATE.swap(OFF, Ordering::AcqRel) != OFF {
        let text = without_frames(&format!("CPython 3.{}: {}", interpreter.layout.minor, broken.0));
        say(&text);
        log.write(&Record::Note {
            t_ns: clock::monotonic_ns(),
            level: NoteLevel::Info,
            text: text.as_bytes(),
        });
    }
}
