//! One event of a trace: which fields are wanted, and where they stand in the text.
//!
//! In: a [`Cursor`] before an event's opening brace. Out: an [`Event`] that borrows from the text. Nothing is interpreted
//! here; a field of an unexpected type is taken as absent.

use super::json::{Cursor, Fault, Text, Value, integer, micros_as_ns};

/// Process or thread as the trace names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Id<'a> {
    #[default]
    None,
    Number(i64),
    /// `"Spans"`, `"stream 7"`.
    Text(Text<'a>),
}

impl<'a> Id<'a> {
    /// A number in quotes is a number (`"tid": "25738"`).
    fn from(value: Value<'a>) -> Self {
        match value {
            Value::Number(raw) => integer(raw).map_or(Self::None, Self::Number),
            Value::Text(text) => match integer(text.raw) {
                Some(number) => Self::Number(number),
                None if text.raw.is_empty() => Self::None,
                None => Self::Text(text),
            },
            _ => Self::None,
        }
    }
}

/// The wanted fields of an event.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Event<'a> {
    /// First letter of the phase (`X`, `B`, `E`, `M`, ...), 0 if there is none.
    pub phase: u8,
    pub category: &'a [u8],
    pub name: Text<'a>,
    pub pid: Id<'a>,
    pub tid: Id<'a>,
    pub start_ns: Option<i64>,
    pub duration_ns: Option<i64>,
    pub args: Args<'a>,
    /// Of a flow event: what its start and its finish have in common.
    pub flow: Id<'a>,
}

/// The wanted fields of an event's `args`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Args<'a> {
    pub correlation: Option<i64>,
    pub stream: Option<i64>,
    pub device: Option<i64>,
    pub bytes: Option<i64>,
    pub graph_node: Option<i64>,
    pub event: Option<i64>,
    pub sequence: Option<i64>,
    pub forward_thread: Option<i64>,
    pub python_id: Option<i64>,
    pub python_parent: Option<i64>,
    pub call_stack: Text<'a>,
    /// Of a metadata event: the name that it gives to a process or thread.
    pub name: Text<'a>,
}

/// Reads the event that starts at the cursor, and leaves the cursor after it.
#[inline]
pub(super) fn read<'a>(cursor: &mut Cursor<'a>) -> Result<Event<'a>, Fault> {
    let mut event = Event::default();
    let start = cursor.at;
    cursor.enter_object()?;
    while let Some(key) = cursor.next_key()? {
        let value = cursor.value()?;
        match (key, value) {
            (b"args", Value::Object) => read_args(cursor, &mut event.args)?,
            (_, Value::Object | Value::Array) => cursor.skip_nested()?,
            (b"ph", Value::Text(text)) => event.phase = text.raw.first().copied().unwrap_or(0),
            (b"cat", Value::Text(text)) => event.category = text.raw,
            (b"name", Value::Text(text)) => event.name = text,
            (b"ts", value) => event.start_ns = time(value),
            (b"dur", value) => event.duration_ns = time(value),
            (b"pid", value) => event.pid = Id::from(value),
            (b"tid", value) => event.tid = Id::from(value),
            _ => {}
        }
        cursor.after_value()?;
        if is_flow(event.phase) {
            // A third of all events are arrows between others; only those from forward to backward operators are used.
            let mut begin = *cursor;
            begin.at = start;
            if cursor.skip_rest_seeing(&FORWARD_TO_BACKWARD)? || FORWARD_TO_BACKWARD.contains(&event.category)
            {
                return read_flow(begin);
            }
            break;
        }
    }
    Ok(event)
}

/// Reads a flow event whole.
#[cold]
fn read_flow(mut cursor: Cursor<'_>) -> Result<Event<'_>, Fault> {
    let mut event = Event::default();
    cursor.enter_object()?;
    while let Some(key) = cursor.next_key()? {
        match (key, cursor.value()?) {
            (_, Value::Object | Value::Array) => cursor.skip_nested()?,
            (b"ph", Value::Text(text)) => event.phase = text.raw.first().copied().unwrap_or(0),
            (b"cat", Value::Text(text)) => event.category = text.raw,
            (b"ts", value) => event.start_ns = time(value),
            (b"pid", value) => event.pid = Id::from(value),
            (b"tid", value) => event.tid = Id::from(value),
            (b"id", value) => event.flow = Id::from(value),
            _ => {}
        }
        cursor.after_value()?;
    }
    Ok(event)
}

/// Categories of the flows from a forward operator to the backward operator that differentiates it.
pub(super) const FORWARD_TO_BACKWARD: [&[u8]; 2] = [b"fwdbwd", b"forward_backward"];

/// Phases of flow events: start, step, finish.
fn is_flow(phase: u8) -> bool {
    matches!(phase, b's' | b't' | b'f')
}

#[inline]
fn read_args<'a>(cursor: &mut Cursor<'a>, args: &mut Args<'a>) -> Result<(), Fault> {
    cursor.enter_object()?;
    while let Some(key) = cursor.next_key()? {
        match cursor.value()? {
            Value::Object | Value::Array => cursor.skip_nested()?,
            Value::Number(raw) => {
                let field = match key {
                    b"correlation" => &mut args.correlation,
                    b"stream" => &mut args.stream,
                    b"device" => &mut args.device,
                    b"bytes" | b"size" => &mut args.bytes,
                    b"graph node id" => &mut args.graph_node,
                    b"wait_on_cuda_event_id" => &mut args.event,
                    b"Sequence number" => &mut args.sequence,
                    b"Fwd thread id" => &mut args.forward_thread,
                    b"Python id" => &mut args.python_id,
                    b"Python parent id" => &mut args.python_parent,
                    _ => {
                        cursor.after_value()?;
                        continue;
                    }
                };
                *field = integer(raw);
            }
            Value::Text(text) => match key {
                b"Call stack" => args.call_stack = text,
                b"name" => args.name = text,
                b"correlation" => args.correlation = integer(text.raw),
                b"stream" => args.stream = integer(text.raw),
                _ => {}
            },
            Value::Bool(_) | Value::Nothing => {}
        }
        cursor.after_value()?;
    }
    Ok(())
}

#[inline]
fn time(value: Value<'_>) -> Option<i64> {
    match value {
        Value::Number(raw) => micros_as_ns(raw),
        Value::Text(text) => micros_as_ns(text.raw),
        _ => None,
    }
}
