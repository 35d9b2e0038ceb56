//! Which Python code a call came from.
//!
//! In: Python functions with their parents, `Call stack` texts of operators (traces of 2021 and 2022), and the sequence numbers
//! and flows that tie a backward operator to the forward operator it differentiates. Out: a Python stack for every call that lies
//! inside of one of these. A call from a backward operator gets the forward code's stack, under a frame that says so:
//! autograd's threads run no Python of their own.

use std::collections::HashMap;

use rustc_hash::FxHashMap;

use super::json::{Text, unescape};
use super::names;
use crate::model::{PythonFrame, Span, SpanKind, StackId, StrId, Thread, TraceBuilder};

type Key = (usize, u64);

/// Collects what tells about places, until [`Places::finish`].
#[derive(Default)]
pub(super) struct Places {
    threads: FxHashMap<Key, Vec<Place>>,
    /// Python id -> (name, parent's id).
    python: FxHashMap<u32, (StrId, u32)>,
    forward: FxHashMap<(usize, i64), Vec<Forward>>,
    backward: HashMap<Key, Vec<Backward>>,
    /// By the thread of the backward operator: when it was on, and where it came from.
    flows: HashMap<Key, Vec<(u64, Forward)>>,
    stacks_by_text: FxHashMap<Box<[u8]>, StackId>,
    frames: HashMap<StrId, PythonFrame>,
}

/// A time span of a thread in which the Python stack is known.
#[derive(Clone, Copy)]
struct Place {
    start_ns: u64,
    end_ns: u64,
    stack: Stack,
}

#[derive(Clone, Copy)]
enum Stack {
    Known(StackId),
    /// A Python function by its id; its parents are found when the stack is needed.
    Python(u32),
    /// A Python function without an id: alone.
    Name(StrId),
}

/// Where forward code was.
#[derive(Clone, Copy)]
struct Forward {
    thread: Key,
    start_ns: u64,
}

#[derive(Clone, Copy)]
struct Backward {
    start_ns: u64,
    end_ns: u64,
    name: StrId,
    from: From,
}

/// How the forward operator is found.
#[derive(Clone, Copy)]
enum From {
    Sequence(i64),
    Flow(Forward),
}

impl Places {
    pub(super) fn python(
        &mut self,
        thread: Key,
        start_ns: u64,
        end_ns: u64,
        id: Option<i64>,
        parent: Option<i64>,
        name: StrId,
    ) {
        let number = |id: Option<i64>| id.and_then(|id| u32::try_from(id).ok());
        let stack = match number(id) {
            Some(id) => {
                self.python.insert(id, (name, number(parent).unwrap_or(u32::MAX)));
                Stack::Python(id)
            }
            None => Stack::Name(name),
        };
        self.threads.entry(thread).or_default().push(Place { start_ns, end_ns, stack });
    }

    /// `Call stack`: innermost frame first, separated by semicolons.
    pub(super) fn call_stack(
        &mut self,
        thread: Key,
        start_ns: u64,
        end_ns: u64,
        text: Text<'_>,
        trace: &mut TraceBuilder,
    ) {
        let stack = match self.stacks_by_text.get(text.raw) {
            Some(&stack) => stack,
            None => {
                let whole = unescape(text);
                let mut frames = Vec::new();
                for name in whole.split(';').map(str::trim).filter(|name| !name.is_empty()) {
                    frames.push(frame(name, trace));
                }
                let stack = trace.python.intern(&frames);
                self.stacks_by_text.insert(text.raw.into(), stack);
                stack
            }
        };
        let place = Place { start_ns, end_ns, stack: Stack::Known(stack) };
        self.threads.entry(thread).or_default().push(place);
    }

    /// An operator with an autograd sequence number. Only backward operators name the thread of the forward one.
    pub(super) fn sequence(
        &mut self,
        thread: Key,
        start_ns: u64,
        end_ns: u64,
        sequence: i64,
        forward_thread: Option<i64>,
        name: StrId,
    ) {
        if forward_thread.is_some_and(|thread| thread != 0) {
            let from = From::Sequence(sequence);
            self.backward.entry(thread).or_default().push(Backward { start_ns, end_ns, name, from });
        } else {
            let known = self.forward.entry((thread.0, sequence)).or_default();
            known.push(Forward { thread, start_ns });
        }
    }

    /// A flow from a forward operator to a backward operator: a thread, and a time at which the operator is on, of each.
    pub(super) fn flow(&mut self, forward: (Key, u64), backward: (Key, u64)) {
        let forward = Forward { thread: forward.0, start_ns: forward.1 };
        self.flows.entry(backward.0).or_default().push((backward.1, forward));
    }

    /// Gives every call its Python stack.
    pub(super) fn finish(mut self, trace: &mut TraceBuilder) {
        for places in self.threads.values_mut() {
            places.sort_by_key(|place| (place.start_ns, std::cmp::Reverse(place.end_ns)));
        }
        for process in 0..trace.process_count() {
            for index in 0..trace.process_at(process).data().threads.len() {
                self.thread(process, index, trace);
            }
        }
    }

    fn thread(&mut self, process: usize, index: usize, trace: &mut TraceBuilder) {
        let mut process_builder = trace.process_at(process);
        let thread = &mut process_builder.data().threads[index];
        let key = (process, thread.tid);
        let flows = self.flows.remove(&key).map_or_else(Vec::new, |flows| joined(flows, thread));
        if !self.threads.contains_key(&key) && !self.backward.contains_key(&key) && flows.is_empty() {
            return;
        }
        let mut calls = std::mem::take(&mut thread.calls);
        calls.sort_by_key(|call| (call.start_ns, std::cmp::Reverse(call.end_ns)));

        let places = self.threads.remove(&key).unwrap_or_default();
        let mut sweep = Sweep::default();
        for call in &mut calls {
            if let Some(place) = sweep.innermost(&places, call.start_ns) {
                call.python = self.stack(place.stack, trace);
            }
        }
        self.threads.insert(key, places);

        // What sequence numbers say goes before what flows say.
        for mut backward in self.backward.remove(&key).into_iter().chain([flows]) {
            backward.sort_by_key(|op| (op.start_ns, std::cmp::Reverse(op.end_ns)));
            let mut sweep = Sweep::default();
            for call in &mut calls {
                if call.python == StackId::NONE
                    && let Some(op) = sweep.innermost(&backward, call.start_ns)
                {
                    call.python = self.forward_stack(process, *op, trace);
                }
            }
        }
        trace.process_at(process).data().threads[index].calls = calls;
    }

    /// The stack of the forward operator that `op` differentiates, under a frame that names `op`.
    fn forward_stack(&mut self, process: usize, op: Backward, trace: &mut TraceBuilder) -> StackId {
        let forward = match op.from {
            // Operators nested in the one that made the autograd node have its number too, as have those that came between
            // two nodes: the node was made in the last one that began.
            From::Sequence(sequence) => self.forward.get(&(process, sequence)).and_then(|known| {
                let before = known.iter().filter(|forward| forward.start_ns <= op.start_ns);
                before.max_by_key(|forward| forward.start_ns).copied()
            }),
            From::Flow(forward) => Some(forward),
        };
        let Some(Forward { thread, start_ns }) = forward else { return StackId::NONE };
        let Some(places) = self.threads.get(&thread) else { return StackId::NONE };
        let until = places.partition_point(|place| place.start_ns <= start_ns);
        let Some(place) = places[..until].iter().rev().find(|place| start_ns < place.end_ns).copied() else {
            return StackId::NONE;
        };
        let stack = self.stack(place.stack, trace);
        let name = trace.strings.get(op.name).to_owned();
        let function = trace.intern(&format!("<backward of the code below, in {name}>"));
        let mut frames = vec![PythonFrame { file: StrId::NONE, function, line: 0 }];
        frames.extend_from_slice(trace.python.get(stack));
        trace.python.intern(&frames)
    }

    fn stack(&mut self, stack: Stack, trace: &mut TraceBuilder) -> StackId {
        let mut frames = Vec::new();
        match stack {
            Stack::Known(stack) => return stack,
            Stack::Name(name) => frames.push(self.frame(name, trace)),
            Stack::Python(mut id) => {
                // A stack deeper than this is a loop among damaged parents.
                while frames.len() < 1000
                    && let Some(&(name, parent)) = self.python.get(&id)
                {
                    frames.push(self.frame(name, trace));
                    id = parent;
                }
            }
        }
        trace.python.intern(&frames)
    }

    fn frame(&mut self, name: StrId, trace: &mut TraceBuilder) -> PythonFrame {
        if let Some(&known) = self.frames.get(&name) {
            return known;
        }
        let text = trace.strings.get(name).to_owned();
        let frame = frame(&text, trace);
        self.frames.insert(name, frame);
        frame
    }
}

/// The backward operators at which flows finish: of several that begin then the outermost, else the innermost that is on.
fn joined(mut flows: Vec<(u64, Forward)>, thread: &Thread) -> Vec<Backward> {
    let mut ops: Vec<&Span> = thread.spans.iter().filter(|span| span.kind == SpanKind::Op).collect();
    ops.sort_by_key(|op| (op.start_ns, std::cmp::Reverse(op.end_ns)));
    flows.sort_by_key(|flow| flow.0);
    let mut sweep = Sweep::default();
    let mut found = Vec::with_capacity(flows.len());
    for (time_ns, forward) in flows {
        let first = ops.partition_point(|op| op.start_ns < time_ns);
        let begins = ops.get(first).filter(|op| op.start_ns == time_ns);
        if let Some(op) = begins.or_else(|| sweep.innermost(&ops, time_ns)) {
            let from = From::Flow(forward);
            found.push(Backward { start_ns: op.start_ns, end_ns: op.end_ns, name: op.name, from });
        }
    }
    found
}

fn frame(name: &str, trace: &mut TraceBuilder) -> PythonFrame {
    let (file, line, function) = names::python_frame(name);
    let file = if file.is_empty() { StrId::NONE } else { trace.intern(file) };
    PythonFrame { file, function: trace.intern(function), line }
}

trait Timed {
    fn start_ns(&self) -> u64;
    fn end_ns(&self) -> u64;
}

impl Timed for Place {
    fn start_ns(&self) -> u64 {
        self.start_ns
    }
    fn end_ns(&self) -> u64 {
        self.end_ns
    }
}

impl Timed for &Span {
    fn start_ns(&self) -> u64 {
        self.start_ns
    }
    fn end_ns(&self) -> u64 {
        self.end_ns
    }
}

impl Timed for Backward {
    fn start_ns(&self) -> u64 {
        self.start_ns
    }
    fn end_ns(&self) -> u64 {
        self.end_ns
    }
}

/// Goes through nested spans, sorted by start, along with times that only grow.
#[derive(Default)]
struct Sweep {
    next: usize,
    open: Vec<usize>,
}

impl Sweep {
    fn innermost<'a, T: Timed>(&mut self, spans: &'a [T], time_ns: u64) -> Option<&'a T> {
        let close = |open: &mut Vec<usize>, now_ns: u64| {
            while let Some(&last) = open.last() {
                let (start_ns, end_ns) = (spans[last].start_ns(), spans[last].end_ns());
                if now_ns < end_ns || (start_ns == end_ns && now_ns == end_ns) {
                    break;
                }
                open.pop();
            }
        };
        while let Some(span) = spans.get(self.next).filter(|span| span.start_ns() <= time_ns) {
            close(&mut self.open, span.start_ns());
            self.open.push(self.next);
            self.next += 1;
        }
        close(&mut self.open, time_ns);
        self.open.last().map(|&index| &spans[index])
    }
}
