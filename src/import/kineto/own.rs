//! The profiler's own synchronise.
//!
//! In: a process with its calls and Python stacks. Out: the call that the profiler made itself is marked. PyTorch's profiler
//! synchronises the device when it stops, still recording; the program never asked for that, so it is shown and not judged.
//! It must never mark a call of the program: a recorded Python stack decides alone; without one it has to be the last call of
//! its thread, inside of no operator and no annotation but a step, right before the recording's own end.

use crate::model::{ApiClass, Call, SpanKind, StackId, Thread, TraceBuilder, classify};

/// Between the synchronise and the end that the recording gives itself. Recorded traces have 9 to 70 us.
const BEFORE_END_NS: u64 = 1_000_000;

/// Marks the call in the process with that index, if it is there.
pub(super) fn mark(trace: &mut TraceBuilder, process: usize, recording_end_ns: Option<u64>) {
    let threads = std::mem::take(&mut trace.process_at(process).data().threads);
    let found = threads
        .iter()
        .enumerate()
        .filter_map(|(index, thread)| {
            let call = thread.calls.iter().max_by_key(|call| call.start_ns)?;
            is_own(trace, thread, call, recording_end_ns).then_some((call.start_ns, index))
        })
        .max();
    let process = &mut trace.process_at(process);
    let data = process.data();
    data.threads = threads;
    if let Some((start_ns, thread)) = found {
        data.threads[thread].recorder_from_ns = Some(start_ns);
    }
}

fn is_own(trace: &TraceBuilder, thread: &Thread, call: &Call, recording_end_ns: Option<u64>) -> bool {
    if classify(trace.api_name(call.api)).class != ApiClass::DeviceSync {
        return false;
    }
    if call.python != StackId::NONE {
        return trace.python.get(call.python).iter().any(|frame| {
            let file = trace.strings.get(frame.file);
            file.ends_with("torch/profiler/profiler.py") || file.ends_with("torch/autograd/profiler.py")
        });
    }
    let inside = thread.spans.iter().any(|span| {
        span.start_ns <= call.start_ns
            && call.start_ns < span.end_ns
            && match span.kind {
                SpanKind::Op => true,
                SpanKind::Range => !trace.strings.get(span.name).starts_with("ProfilerStep#"),
                SpanKind::PythonFrame => false,
            }
    });
    let at_end = recording_end_ns.is_some_and(|end_ns| call.end_ns.abs_diff(end_ns) <= BEFORE_END_NS);
    !inside && at_end
}
