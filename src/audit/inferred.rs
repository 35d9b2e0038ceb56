//! Steps of a trace in which nothing is marked as one.
//!
//! In: a process without a step range. Out: where its steps probably begin and end, and by what that was told. The optimiser
//! tells best: PyTorch's profiler has `Optimizer.step#...` around each of its steps, and a training step ends with it. Else
//! the operators that a thread calls by itself tell: a loop makes the same ones again and again. So do the layers of a model
//! within a step; what tells a step is that something is differentiated in it. It must never invent steps where nothing
//! repeats, and what it infers is always said to be inferred.

use std::collections::{BTreeMap, HashMap};

use super::options::stem;
use crate::model::{OPEN, Process, Span, SpanKind, StrId, Thread, Trace};

/// Fewer repetitions than this may be chance.
const LEAST_REPETITIONS: usize = 3;

/// The steps of one process.
pub(super) struct Inferred {
    /// Index into the process' threads.
    pub thread: u32,
    /// Start and end of each.
    pub steps: Vec<(u64, u64)>,
    /// By what they were told, for people: `the end of 'Optimizer.step#SGD.step'`.
    pub by: String,
}

/// Starts and ends of steps, and by what they were told.
type Found = (Vec<(u64, u64)>, String);

/// Infers the steps of a process; `None` where nothing repeats.
pub(super) fn steps(trace: &Trace, process: &Process) -> Option<Inferred> {
    let of_threads = |infer: fn(&Trace, &Thread) -> Option<Found>| {
        process
            .threads
            .iter()
            .enumerate()
            .filter_map(|(index, thread)| {
                let (steps, by) = infer(trace, thread)?;
                Some(Inferred { thread: u32::try_from(index).ok()?, steps, by })
            })
            .max_by_key(|found| (found.steps.len(), std::cmp::Reverse(found.thread)))
    };
    of_threads(by_optimizer).or_else(|| {
        let backward = backward_starts(trace, process);
        of_threads(by_operators).filter(|found| {
            found.steps.iter().all(|&(start_ns, end_ns)| {
                let first = backward.partition_point(|&at| at < start_ns);
                backward.get(first).is_some_and(|&at| at < end_ns)
            })
        })
    })
}

/// When operators of the backward pass began, on whatever thread, in order.
fn backward_starts(trace: &Trace, process: &Process) -> Vec<u64> {
    let mut is_backward: HashMap<StrId, bool> = HashMap::new();
    let mut starts = Vec::new();
    for span in
        process.threads.iter().flat_map(|thread| &thread.spans).filter(|span| span.kind == SpanKind::Op)
    {
        let named = || {
            let name = trace.str(span.name);
            name.starts_with("autograd::engine::evaluate_function") || name.contains("Backward")
        };
        if *is_backward.entry(span.name).or_insert_with(named) {
            starts.push(span.start_ns);
        }
    }
    starts.sort_unstable();
    starts
}

/// A step is what happens from one end of the optimiser's step to the next.
fn by_optimizer(trace: &Trace, thread: &Thread) -> Option<Found> {
    let mut is_optimizer: HashMap<StrId, bool> = HashMap::new();
    let mut ends: Vec<(u64, StrId)> = Vec::new();
    for span in thread.spans.iter().filter(|span| span.kind != SpanKind::PythonFrame && span.end_ns != OPEN) {
        let named = || stem(trace.str(span.name)).starts_with("Optimizer.step");
        // An optimiser that wraps another one steps inside of its own step.
        if *is_optimizer.entry(span.name).or_insert_with(named)
            && ends.last().is_none_or(|last| last.0 <= span.start_ns)
        {
            ends.push((span.end_ns, span.name));
        }
    }
    if ends.len() < LEAST_REPETITIONS {
        return None;
    }
    let begin = thread.spans.iter().map(|span| span.start_ns).min()?;
    let starts = std::iter::once(begin).chain(ends.iter().map(|end| end.0));
    let steps = starts.zip(&ends).map(|(start_ns, end)| (start_ns, end.0)).collect();
    Some((steps, format!("the end of '{}'", trace.str(ends[0].1))))
}

/// A step begins where an operator begins that comes once per repetition.
fn by_operators(trace: &Trace, thread: &Thread) -> Option<Found> {
    // Top-level operators in order, by name.
    let top: Vec<&Span> = top_level_ops(thread);
    let mut starts: HashMap<StrId, Vec<usize>> = HashMap::new();
    for (index, span) in top.iter().enumerate() {
        starts.entry(span.name).or_default().push(index);
    }
    // Operators that come once per step all have the same number. So have those that come once per layer; of the numbers at
    // which they come in turns, the smallest is that of the steps.
    let mut by_count: BTreeMap<usize, Vec<StrId>> = BTreeMap::new();
    for (name, at) in &starts {
        if at.len() >= LEAST_REPETITIONS {
            by_count.entry(at.len()).or_default().push(*name);
        }
    }
    let (count, first) = by_count.into_iter().find_map(|(count, names)| {
        let first = *names.iter().min_by_key(|name| starts[*name][0])?;
        (names.len() >= 2 && in_turns(&starts, first, &names)).then_some((count, first))
    })?;
    let anchors = &starts[&first];
    let mut steps = Vec::with_capacity(count);
    for (index, &anchor) in anchors.iter().enumerate() {
        let end_ns = match anchors.get(index + 1) {
            Some(&next) => top[next].start_ns,
            None => top.last()?.end_ns,
        };
        steps.push((top[anchor].start_ns, end_ns));
    }
    Some((steps, format!("the repetition of '{}' and what follows it", trace.str(first))))
}

/// Whether each of the operators comes exactly once from one `first` to the next.
fn in_turns(starts: &HashMap<StrId, Vec<usize>>, first: StrId, names: &[StrId]) -> bool {
    let anchors = &starts[&first];
    let ends = || anchors.iter().skip(1).chain([&usize::MAX]);
    names.iter().all(|name| {
        starts[name].iter().zip(anchors).zip(ends()).all(|((&at, &from), &until)| from <= at && at < until)
    })
}

/// Operators that are in no other operator.
fn top_level_ops(thread: &Thread) -> Vec<&Span> {
    let mut covered_until_ns = 0;
    let mut top = Vec::new();
    for span in thread.spans.iter().filter(|span| span.kind == SpanKind::Op && span.end_ns != OPEN) {
        if span.start_ns >= covered_until_ns {
            covered_until_ns = span.end_ns;
            top.push(span);
        }
    }
    top
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::TraceBuilder;

    fn of(ops: &[(SpanKind, &str, u64, u64)]) -> Option<Found> {
        let mut builder = TraceBuilder::default();
        let mut process = builder.process(1);
        let mut thread = process.thread(1);
        for &(kind, name, start_ns, end_ns) in ops {
            thread.named_span(kind, name, start_ns, end_ns);
        }
        let trace = builder.finish();
        steps(&trace, &trace.processes[0]).map(|found| (found.steps, found.by))
    }

    #[test]
    fn a_step_ends_with_the_optimizer() {
        use SpanKind::{Op, Range};
        let (steps, by) = of(&[
            (Op, "aten::conv2d", 10, 20),
            (Range, "Optimizer.step#SGD.step", 30, 40),
            (Range, "Optimizer.step#SGD.step", 31, 39),
            (Op, "aten::conv2d", 50, 60),
            (Range, "Optimizer.step#SGD.step", 70, 80),
            (Range, "Optimizer.step#SGD.step", 110, 120),
            (Op, "aten::item", 130, 140),
        ])
        .unwrap();
        assert_eq!(steps, [(10, 40), (40, 80), (80, 120)]);
        assert!(by.contains("Optimizer.step#SGD.step"), "{by}");
    }

    /// Four repetitions of two layers and a loss, with or without a backward pass.
    fn loop_of_layers(backward: bool) -> Vec<(SpanKind, &'static str, u64, u64)> {
        let mut ops = Vec::new();
        for step in 0..4 {
            let at = 100 * step;
            let mut op = |name, start: u64, end: u64| ops.push((SpanKind::Op, name, at + start, at + end));
            op("aten::embedding", 0, 10);
            for layer in [20, 40] {
                op("aten::linear", layer, layer + 8);
                op("aten::mm", layer + 1, layer + 7);
                op("aten::gelu", layer + 10, layer + 18);
            }
            op("aten::cross_entropy", 60, 70);
            if backward {
                op("autograd::engine::evaluate_function: MmBackward0", 80, 90);
            }
        }
        ops
    }

    #[test]
    fn operators_that_come_once_per_repetition_begin_steps_and_those_of_layers_do_not() {
        let (steps, by) = of(&loop_of_layers(true)).unwrap();
        assert_eq!(steps, [(0, 100), (100, 200), (200, 300), (300, 390)]);
        assert!(by.contains("aten::embedding"), "{by}");
    }

    #[test]
    fn repetitions_without_a_backward_pass_are_no_training_steps() {
        assert_eq!(of(&loop_of_layers(false)), None);
    }

    #[test]
    fn nothing_is_inferred_where_nothing_repeats() {
        let kind = SpanKind::Op;
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[(kind, "a", 0, 1), (kind, "b", 2, 3), (kind, "a", 4, 5), (kind, "b", 6, 7)]), None);
        // Three of each, but not in turns.
        let irregular: Vec<_> = ["a", "a", "a", "b", "b", "b"]
            .iter()
            .enumerate()
            .map(|(at, name)| (kind, *name, at as u64 * 10, at as u64 * 10 + 5))
            .collect();
        assert_eq!(of(&irregular), None);
    }
}
