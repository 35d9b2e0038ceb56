//! What the formats are tested with: traces made by hand, judged by the real gate.

use std::path::Path;

use syncaudit::audit::{AuditOptions, audit};
use syncaudit::gate::{self, Against, AllowEntry, Baseline, Date, Judged, Rules};
use syncaudit::model::{
    CallData, CopyDirection, MemoryKind, PythonFrame, Span, SpanKind, Trace, TraceBuilder,
};

/// A function whose name tries to be markup, a mention, a command of a CI system and a terminal sequence.
pub const EVIL: &str =
    "x</script><b onload=\"y\">|`@team #12 ]]>{0}%0A::error::z ##[error]q\u{1b}[31m\u{202e}&amp;";

/// One place that waits.
#[derive(Clone, Debug)]
pub struct Place {
    pub file: String,
    pub line: u32,
    pub function: String,
    pub range: &'static str,
    pub op: Option<&'static str>,
    pub upload: bool,
    pub only_in_step: Option<u64>,
}

pub fn place(file: &str, line: u32, function: &str) -> Place {
    Place {
        file: format!("/home/me/project/{file}"),
        line,
        function: function.to_owned(),
        range: "forward",
        op: Some("aten::item"),
        upload: false,
        only_in_step: None,
    }
}

/// Places of every sort.
pub fn places() -> Vec<Place> {
    vec![
        place("src/train.py", 12, "train"),
        place("src/train.py", 12, "train_again"),
        Place { op: Some("aten::nonzero"), ..place("src/model dir/anchors.py", 40, "anchors") },
        Place { op: Some("aten::_to_copy"), upload: true, ..place("src/data.py", 7, "load") },
        Place { range: "log", only_in_step: Some(5), ..place("src/log.py", 3, "log_loss") },
        place("src/evil.py", 99, EVIL),
    ]
}

/// Eight steps, each waiting once at every place.
pub fn trace(places: &[Place], emulated: bool) -> Trace {
    let mut builder = TraceBuilder::default();
    builder.source.emulated = emulated;
    builder.source.program = vec!["python".to_owned(), "train.py".to_owned(), EVIL.to_owned()];
    let main = builder.intern("main");
    let stacks: Vec<_> = places
        .iter()
        .map(|place| {
            let (file, function) = (builder.intern(&place.file), builder.intern(&place.function));
            builder.python.intern(&[
                PythonFrame { file, function, line: place.line },
                PythonFrame { file, function: main, line: 100 },
            ])
        })
        .collect();
    let ops: Vec<_> = places.iter().map(|place| place.op.map(|op| builder.intern(op))).collect();
    let mut process = builder.process(1);
    let mut thread = process.thread(1);
    let mut now_ns = 0;
    for step in 0..8 {
        thread.push(now_ns, &format!("step {step}"), None);
        for (index, place) in places.iter().enumerate() {
            if place.only_in_step.is_some_and(|only| only != step) {
                continue;
            }
            now_ns += 50_000;
            thread.push(now_ns, place.range, None);
            let start_ns = now_ns;
            let (direction, from, to) = match place.upload {
                true => (CopyDirection::HostToDevice, MemoryKind::Pageable, MemoryKind::Device),
                false => (CopyDirection::DeviceToHost, MemoryKind::Device, MemoryKind::Pinned),
            };
            let python = stacks[index];
            let copy = CallData { bytes: 4, direction, from, to, python, ..CallData::default() };
            thread.call("cudaMemcpyAsync", now_ns + 10, now_ns + 5_000, copy);
            now_ns += 6_000;
            let wait = CallData { python, ..CallData::default() };
            thread.call("cudaStreamSynchronize", now_ns, now_ns + 200_000, wait);
            now_ns += 210_000;
            if let Some(name) = ops[index] {
                let span = Span {
                    start_ns: start_ns + 1,
                    end_ns: now_ns,
                    name,
                    kind: SpanKind::Op,
                    ..Span::default()
                };
                thread.span(span);
            }
            thread.pop(now_ns + 1);
            now_ns += 10;
        }
        now_ns += 100_000;
        thread.pop(now_ns);
    }
    builder.finish()
}

pub fn options() -> AuditOptions {
    AuditOptions { roots: vec!["/home/me/project".into()], ..AuditOptions::default() }
}

/// Judged with a baseline that knows the first place, and an allow-list for the upload (with a reason made to harm).
pub fn judged(emulated: bool) -> Judged {
    judge(&places(), emulated)
}

pub fn judge(places: &[Place], emulated: bool) -> Judged {
    let options = options();
    let before = audit(&trace(&places[..1], emulated), &options);
    let baseline = Baseline::of(&before, |_| true);
    let rules = Rules {
        allow: vec![AllowEntry {
            function: Some("load".parse().unwrap()),
            reason: format!("constants, see {EVIL}"),
            owner: Some("me".to_owned()),
            line: 3,
            ..AllowEntry::default()
        }],
        allow_path: "syncaudit.toml".into(),
        ..Rules::default()
    };
    let against = Against { baseline: &baseline, path: Path::new("syncaudit.baseline") };
    let audit = audit(&trace(places, emulated), &options);
    gate::judge(audit, &options, &rules, Some(against), Date::new(2026, 1, 1).unwrap())
}

/// Judged by the budget alone, with that many places over it.
pub fn many(count: u32) -> Judged {
    let places: Vec<Place> =
        (0..count).map(|index| place("src/many.py", index + 1, &format!("function_{index}"))).collect();
    let audit = audit(&trace(&places, false), &options());
    gate::judge(audit, &options(), &Rules::default(), None, Date::new(2026, 1, 1).unwrap())
}
