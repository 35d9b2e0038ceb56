//! Sites for the tests of rules, made the way that real ones are: a trace with one wait per step, audited.

use super::Rule;
use crate::audit::{AuditOptions, audit};
use crate::model::{
    CallData, CopyDirection, MemoryKind, PythonFrame, SourceKind, Span, SpanKind, TraceBuilder,
};

/// The calls of one wait and what is around them.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    calls: Vec<(&'static str, CallData)>,
    ops: &'static [&'static str],
    ranges: &'static [&'static str],
    python: &'static [(&'static str, &'static str)],
    by_recorder: bool,
    in_framework: bool,
    per_step: usize,
}

/// A copy to the host and the synchronise after it.
pub(super) fn read(bytes: u64) -> Sample {
    copy("cudaMemcpyAsync", CopyDirection::DeviceToHost, bytes, MemoryKind::Device, MemoryKind::Pinned)
}

/// A copy to the device from that kind of memory, and the synchronise after it.
pub(super) fn upload(bytes: u64, from: MemoryKind) -> Sample {
    copy("cudaMemcpyAsync", CopyDirection::HostToDevice, bytes, from, MemoryKind::Device)
}

/// One call that is a wait by itself.
pub(super) fn call(name: &'static str) -> Sample {
    Sample {
        calls: vec![(name, CallData { object: 1, ..CallData::default() })],
        per_step: 1,
        ..Sample::default()
    }
}

fn copy(
    name: &'static str,
    direction: CopyDirection,
    bytes: u64,
    from: MemoryKind,
    to: MemoryKind,
) -> Sample {
    let data = CallData { bytes, direction, from, to, ..CallData::default() };
    let calls = vec![(name, data), ("cudaStreamSynchronize", CallData::default())];
    Sample { calls, per_step: 1, ..Sample::default() }
}

/// Every sample is what the rule is about.
pub(super) fn fires(rule: &Rule, samples: &[Sample]) {
    for sample in samples {
        assert_eq!(sample.rule(), rule.id, "{sample:?}");
    }
}

/// No sample is; each is what stands beside it.
pub(super) fn silent(rule: &Rule, samples: &[(Sample, &str)]) {
    for (sample, expected) in samples {
        assert_ne!(*expected, rule.id, "{sample:?} is no look-alike");
        assert_eq!(sample.rule(), *expected, "{sample:?}");
    }
}

impl Sample {
    /// Operators from the outermost inwards.
    pub(super) fn ops(mut self, ops: &'static [&'static str]) -> Self {
        self.ops = ops;
        self
    }

    /// Ranges inside of the step, from the outermost inwards.
    pub(super) fn ranges(mut self, ranges: &'static [&'static str]) -> Self {
        self.ranges = ranges;
        self
    }

    /// Python frames as (file, function), innermost first.
    pub(super) fn python(mut self, python: &'static [(&'static str, &'static str)]) -> Self {
        self.python = python;
        self
    }

    pub(super) fn times(mut self, per_step: usize) -> Self {
        self.per_step = per_step;
        self
    }

    /// Elsewhere in the program an operator runs.
    pub(super) fn in_framework(mut self) -> Self {
        self.in_framework = true;
        self
    }

    /// Made by the tool that records.
    pub(super) fn by_recorder(mut self) -> Self {
        self.by_recorder = true;
        self
    }

    /// The rule that the audit gives to the one site of this.
    pub(super) fn rule(&self) -> &'static str {
        let mut builder = TraceBuilder::default();
        builder.source.kind = SourceKind::Kineto;
        let frames: Vec<PythonFrame> = self
            .python
            .iter()
            .map(|(file, function)| PythonFrame {
                file: builder.intern(file),
                function: builder.intern(function),
                line: 7,
            })
            .collect();
        let python = builder.python.intern(&frames);
        let mut names = Vec::new();
        for (texts, kind) in [(self.ranges, SpanKind::Range), (self.ops, SpanKind::Op)] {
            names.extend(texts.iter().map(|name| (builder.intern(name), kind)));
        }
        let mut process = builder.process(1);
        let mut thread = process.thread(1);
        // Held for longer than any floor: waits whatever the class of the call.
        const HELD_NS: u64 = 1_000_000;
        let mut now_ns = 0;
        for step in 0..4 {
            thread.push(now_ns, &format!("step {step}"), None);
            for _ in 0..self.per_step {
                let start_ns = now_ns + 10;
                now_ns = start_ns + 100;
                for (name, data) in &self.calls {
                    thread.call(name, now_ns, now_ns + HELD_NS, CallData { python, ..data.clone() });
                    now_ns += HELD_NS + 10;
                }
                for (index, &(name, kind)) in names.iter().enumerate() {
                    let index = index as u64;
                    thread.span(Span {
                        start_ns: start_ns + index,
                        end_ns: now_ns + 100 - index,
                        name,
                        kind,
                        ..Span::default()
                    });
                }
                now_ns += 200;
            }
            if self.in_framework {
                thread.named_span(SpanKind::Op, "aten::mm", now_ns, now_ns + 5);
                now_ns += 10;
            }
            thread.pop(now_ns);
            now_ns += 10;
        }
        let mut trace = builder.finish();
        trace.processes[0].threads[0].recorder_from_ns = self.by_recorder.then_some(0);
        let audit = audit(&trace, &AuditOptions::default());
        audit.reconcile().unwrap();
        let rules: std::collections::BTreeSet<&str> = audit.sites.iter().map(|site| site.rule).collect();
        assert_eq!(rules.len(), 1, "{self:?} gives {rules:?}");
        audit.sites[0].rule
    }
}
