//! What one host thread did: nested spans, and the CUDA calls inside of them.
//!
//! Plain data, filled by [`super::ThreadBuilder`]: spans and calls are sorted by start, parents before children, and
//! each call knows its innermost span.

use super::{ApiId, CopyDirection, MemoryKind, OPEN, SpanId, StackId, StrId, StreamId};

/// What a span stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SpanKind {
    /// NVTX push/pop range, or a user annotation (`record_function`) of a profiler trace.
    #[default]
    Range,
    /// A framework operator (`aten::item`); `payload` is its autograd sequence number if it has one.
    Op,
    /// A Python function, `name` is `file(line): function` or whatever the source gives.
    PythonFrame,
}

/// Something that a thread was inside of from start to end.
#[derive(Clone, Debug, Default)]
pub struct Span {
    pub start_ns: u64,
    /// [`OPEN`] if it had not ended when the trace did.
    pub end_ns: u64,
    /// NVTX payload or autograd sequence number; see `has_payload`.
    pub payload: i64,
    pub name: StrId,
    /// NVTX domain, [`StrId::NONE`] for the default one.
    pub domain: StrId,
    /// The innermost span that was open when this one started.
    pub parent: SpanId,
    pub kind: SpanKind,
    pub has_payload: bool,
}

impl Span {
    /// Whether the time lies inside. An open span contains everything after its start.
    #[must_use]
    pub fn contains(&self, time_ns: u64) -> bool {
        self.start_ns <= time_ns && (time_ns <= self.end_ns)
    }

    /// Whether the trace ended before this span did.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.end_ns == OPEN
    }

    /// The payload, if it has one.
    #[must_use]
    pub fn payload(&self) -> Option<i64> {
        self.has_payload.then_some(self.payload)
    }
}

/// What the result of a call was, as far as the audit cares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CallEffect {
    #[default]
    Ok,
    /// An error: the call did nothing. ("Not ready" is no error of a query.)
    Failed,
    /// The call had not returned when the trace ended.
    Unfinished,
}

/// One CUDA (or HIP) API call as the program made it; calls nested inside of it are folded in.
#[derive(Clone, Debug)]
pub struct Call {
    pub start_ns: u64,
    /// [`OPEN`] if it had not returned when the trace ended.
    pub end_ns: u64,
    /// Bytes copied, set or allocated; 0 where unknown.
    pub bytes: u64,
    /// The event (or other object) that the call is about, 0 for none.
    pub object: u64,
    pub api: ApiId,
    /// First call nested in this one (the driver's half of a runtime call), if the source has it.
    pub inner: ApiId,
    /// Links to [`super::DeviceOp::correlation`]; 0 for none.
    pub correlation: u32,
    pub stream: StreamId,
    /// How many calls this entry stands for: more than one only for a run of queries of one object with nothing between.
    pub count: u32,
    /// How many of them answered "not ready", as far as the source says.
    pub not_ready: u32,
    /// Innermost span of this thread at the start of the call.
    pub span: SpanId,
    pub native: StackId,
    pub python: StackId,
    pub effect: CallEffect,
    pub direction: CopyDirection,
    pub from: MemoryKind,
    pub to: MemoryKind,
}

impl Call {
    /// Host time from enter to exit; `None` for a call that never returned.
    #[must_use]
    pub fn host_ns(&self) -> Option<u64> {
        (self.end_ns != OPEN).then(|| self.end_ns.saturating_sub(self.start_ns))
    }
}

/// A point in time that the program marked.
#[derive(Clone, Debug)]
pub struct Mark {
    pub time_ns: u64,
    pub name: StrId,
    pub domain: StrId,
}

/// A range started and ended by handle: it need not nest, and may end on another thread.
#[derive(Clone, Debug)]
pub struct FreeRange {
    pub start_ns: u64,
    /// [`OPEN`] if it had not ended when the trace did.
    pub end_ns: u64,
    pub payload: Option<i64>,
    pub name: StrId,
    pub domain: StrId,
    /// Thread that started it.
    pub tid: u64,
}

/// One host thread.
#[derive(Debug, Default)]
pub struct Thread {
    /// The operating system's thread id, or the source's number for it.
    pub tid: u64,
    pub name: StrId,
    /// Sorted by start; parents come before their children.
    pub spans: Vec<Span>,
    /// Sorted by start.
    pub calls: Vec<Call>,
    /// Sorted by time.
    pub marks: Vec<Mark>,
    /// From here on the calls are made by the tool that records the trace, not by the program: a profiler synchronises
    /// the device when it stops.
    pub recorder_from_ns: Option<u64>,
}

impl Thread {
    /// A call's spans from the innermost outwards. Spans that had ended before the call (interleaved NVTX domains can
    /// do that) are left out.
    pub fn spans_around<'a>(&'a self, call: &'a Call) -> impl Iterator<Item = &'a Span> + 'a {
        let mut next = call.span;
        std::iter::from_fn(move || {
            let index = next.get()?;
            let span = self.spans.get(index)?;
            // A parent always comes earlier; anything else would be a loop.
            next = if span.parent.get().is_some_and(|parent| parent < index) {
                span.parent
            } else {
                SpanId::NONE
            };
            Some(span)
        })
        .filter(move |span| span.contains(call.start_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_stay_within_eighty_bytes() {
        assert!(size_of::<Call>() <= 72, "{}", size_of::<Call>());
        assert!(size_of::<Span>() <= 48, "{}", size_of::<Span>());
        assert!(size_of::<super::super::DeviceOp>() <= 64, "{}", size_of::<super::super::DeviceOp>());
    }
}
