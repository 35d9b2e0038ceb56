//! What the tracer keeps per thread of the program.
//!
//! In: the calling thread. Out: its [`ThreadState`], at most once at a time. Must never be entered twice on one thread
//! (a signal handler, an allocator that calls CUDA): the second entry is counted as a loss and does nothing. Works while
//! the thread is being torn down, with a state that is made for the moment.

use std::cell::RefCell;
use std::sync::Arc;

use syncaudit_eventlog::{DomainId, LossReason, PyStackId, Record, StackId, ThreadLog};

use crate::calls::{ApiState, QueryState};
use crate::session::{self, Session};
use crate::stacks::native::ThreadUnwinder;
use crate::stacks::python::ThreadPython;

/// State of one thread. Its log changes when the process forks; the depths of its ranges don't.
pub struct ThreadState {
    session: Option<&'static Session>,
    log: Option<ThreadLog<'static>>,
    unwinder: Option<ThreadUnwinder>,
    python: ThreadPython,
    pub api: ApiState,
    pub queries: QueryState,
    depths: Vec<(DomainId, i32)>,
}

thread_local! {
    static STATE: RefCell<ThreadState> = const { RefCell::new(ThreadState::new()) };
}

/// Runs `body` with the state of the calling thread. `None`: the thread is inside the tracer already.
#[inline]
pub fn with<R>(body: impl FnOnce(&mut ThreadState) -> R) -> Option<R> {
    // Before the state is taken: opening the recording writes the first records through it.
    let session = session::current();
    let mut body = Some(body);
    let mut run = |state: &mut ThreadState| {
        state.attach(session);
        body.take().map(|body| body(state))
    };
    STATE
        .try_with(|state| match state.try_borrow_mut() {
            Ok(mut state) => run(&mut state),
            Err(_) => {
                reentered();
                None
            }
        })
        // The thread's own state is gone: it is ending, or this is an exit handler of the program's main thread.
        .unwrap_or_else(|_| run(&mut ThreadState::new()))
}

#[cold]
fn reentered() {
    if let Some(session) = session::current() {
        session.writer.count_loss(LossReason::Reentered, 1);
    }
}

impl ThreadState {
    const fn new() -> Self {
        Self {
            session: None,
            log: None,
            unwinder: None,
            python: ThreadPython::new(),
            api: ApiState::new(),
            queries: QueryState::new(),
            depths: Vec::new(),
        }
    }

    /// Follows the process to another recording (first event, fork) or to none (exit).
    #[inline]
    fn attach(&mut self, session: Option<&'static Session>) {
        let same = match (self.session, session) {
            (Some(old), Some(new)) => std::ptr::eq(old, new),
            (None, None) => true,
            _ => false,
        };
        if !same {
            self.change(session);
        }
    }

    #[cold]
    fn change(&mut self, session: Option<&'static Session>) {
        self.session = session;
        self.log = session.map(|session| session.writer.thread());
        self.api.reset();
        self.queries.reset();
        self.python.reset();
        if let Some(unwinder) = &mut self.unwinder {
            unwinder.snapshot = None;
        }
        if let Some(log) = &mut self.log {
            let mut name = [0u8; 16];
            let length = thread_name(&mut name);
            let name = log.str(&name[..length]);
            log.write(&Record::ThreadName { name });
        }
    }

    pub fn session(&self) -> Option<&'static Session> {
        self.session
    }

    /// Where this thread writes; `None` when nothing is recorded.
    #[inline]
    pub fn log(&mut self) -> Option<&mut ThreadLog<'static>> {
        self.log.as_mut()
    }

    /// The native stack of the calling thread, interned.
    pub fn native_stack(&mut self) -> StackId {
        let (Some(session), Some(log)) = (self.session, &mut self.log) else { return StackId::NONE };
        let unwinder = self.unwinder.get_or_insert_with(ThreadUnwinder::new);
        if !unwinder.snapshot.as_ref().is_some_and(|snapshot| snapshot.is_current())
            && let Some(snapshot) = session.refresh_modules(log)
        {
            unwinder.snapshot = Some(Arc::clone(&snapshot));
        }
        match unwinder.capture() {
            Some(frames) => log.stack(frames.addresses()),
            None => StackId::NONE,
        }
    }

    /// The Python stack of the calling thread, interned.
    pub fn python_stack(&mut self) -> PyStackId {
        match &mut self.log {
            Some(log) => self.python.capture(log),
            None => PyStackId::NONE,
        }
    }

    /// One range deeper in a domain; the level of the new range, counted from 0.
    #[inline]
    pub fn push(&mut self, domain: DomainId) -> i32 {
        for (known, depth) in &mut self.depths {
            if *known == domain {
                *depth += 1;
                return *depth - 1;
            }
        }
        self.depths.push((domain, 1));
        0
    }

    /// One range less in a domain; the level of the range that ended, or `None` when there was none.
    #[inline]
    pub fn pop(&mut self, domain: DomainId) -> Option<i32> {
        let (_, depth) = self.depths.iter_mut().find(|(known, depth)| *known == domain && *depth > 0)?;
        *depth -= 1;
        Some(*depth)
    }
}

impl Drop for ThreadState {
    fn drop(&mut self) {
        // Nothing more goes into a recording that has ended meanwhile.
        self.attach(session::already_open());
        self.end_query_run();
    }
}

#[allow(unsafe_code)]
fn thread_name(name: &mut [u8; 16]) -> usize {
    // SAFETY: the kernel writes at most 16 bytes, the last one NUL.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    name.iter().position(|byte| *byte == 0).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_inside_of_the_tracer_is_not_let_in_again() {
        assert_eq!(with(|_| with(|_| "inner")), Some(None));
        assert_eq!(with(|_| "later"), Some("later"));
    }

    #[test]
    fn each_domain_has_levels_of_its_own() {
        with(|thread| {
            let (one, two) = (DomainId(1), DomainId(2));
            assert_eq!([thread.push(one), thread.push(one), thread.push(two)], [0, 1, 0]);
            assert_eq!([thread.pop(one), thread.pop(one), thread.pop(one)], [Some(1), Some(0), None]);
            assert_eq!([thread.pop(two), thread.pop(DomainId(3))], [Some(0), None]);
        });
    }
}
