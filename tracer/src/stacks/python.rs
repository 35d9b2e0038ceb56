//! The Python side of a stack.
//!
//! In: the calling thread, during a callback, with or without the GIL. Out: an interned Python stack. Must never take
//! the GIL, touch a reference count or call into the interpreter: another thread may hold the GIL and wait for a lock
//! that this thread holds (PyTorch's allocator does that).
//!
//! No interpreter's frames are read in this version: every stack is "none", and the report says so by having no
//! Python frames. The log has the records for them ([`syncaudit_eventlog::Record::PyStack`]).

use syncaudit_eventlog::PyStackId;

/// The Python stack of the calling thread.
pub fn capture() -> PyStackId {
    PyStackId::NONE
}
