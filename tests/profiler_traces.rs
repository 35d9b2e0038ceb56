//! Profiler traces as they are found in the wild: every vocabulary, every kind of damage, many ranks.
//!
//! All traces here are made by the tests. What can be read is read and what can't is counted, or the error names the byte
//! and the reason: never a smaller trace in silence, never a panic.

use std::io::Write;
use std::path::{Path, PathBuf};

use syncaudit::audit::{Verdict, WaitKind};
use syncaudit::model::{Problem, ProblemKind, Trace};
use syncaudit::{Audit, AuditOptions, audit_path, load_path};

/// One training step with a read: an operator, the copy, its device side, the synchronise.
fn step(number: u64) -> Vec<String> {
    let at = 1000 * number;
    let x = |cat: &str, name: &str, start: u64, dur: u64, args: &str| {
        format!(
            r#"{{"ph": "X", "cat": "{cat}", "name": "{name}", "pid": 7, "tid": 7, "ts": {}, "dur": {dur}, "args": {{{args}}}}}"#,
            at + start
        )
    };
    vec![
        x("user_annotation", &format!("ProfilerStep#{number}"), 0, 900, ""),
        x("cpu_op", "aten::item", 100, 500, r#""External id": 3"#),
        x(
            "cuda_runtime",
            "cudaMemcpyAsync",
            110,
            80,
            &format!(r#""cbid": 41, "correlation": {}"#, number * 2 + 1),
        ),
        x(
            "cuda_runtime",
            "cudaStreamSynchronize",
            200,
            300,
            &format!(r#""correlation": {}"#, number * 2 + 2),
        ),
        format!(
            r#"{{"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoH (Device -> Pageable)", "pid": 0, "tid": 7, "ts": {}, "dur": 2, "args": {{"device": 0, "stream": 7, "correlation": {}, "bytes": 4}}}}"#,
            at + 180,
            number * 2 + 1
        ),
    ]
}

fn events(steps: u64) -> Vec<String> {
    (1..=steps).flat_map(step).collect()
}

fn document(events: &[String]) -> String {
    format!("{{\"schemaVersion\": 1, \"traceEvents\": [\n{}\n]}}\n", events.join(",\n"))
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }
}

fn load(content: impl AsRef<[u8]>) -> Result<Trace, String> {
    let folder = Folder::new();
    load_path(&[folder.file("trace.json", content)]).map_err(|error| error.to_string())
}

fn calls(trace: &Trace) -> usize {
    trace.call_count()
}

fn problem(trace: &Trace, kind: ProblemKind) -> &Problem {
    trace
        .problems
        .iter()
        .find(|problem| problem.kind == kind)
        .unwrap_or_else(|| panic!("{:?}", trace.problems))
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn zstd(text: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(text, ruzstd::encoding::CompressionLevel::Fastest)
}

fn audited(paths: &[PathBuf], options: &AuditOptions) -> Audit {
    let audit = audit_path(paths, options).unwrap();
    audit.reconcile().unwrap();
    audit
}

#[test]
fn a_read_in_each_step_is_one_wait_of_two_calls_in_its_operator() {
    let folder = Folder::new();
    let audit = audited(&[folder.file("trace.json", document(&events(5)))], &AuditOptions::default());
    assert_eq!(audit.verdict, Verdict::Fail);
    assert_eq!((audit.totals.waits, audit.totals.calls, audit.step_counts.total), (5, 10, 5));
    let site = &audit.sites[0];
    assert_eq!(audit.sites.len(), 1);
    assert_eq!((site.kind, site.op.as_deref()), (WaitKind::DeviceToHostRead, Some("aten::item")));
    assert_eq!(site.apis, ["cudaMemcpyAsync", "cudaStreamSynchronize"]);
    assert_eq!((site.bytes, site.blocked_ns), (20, Some(5 * 380_000)));
}

#[test]
fn the_vocabularies_of_all_years_say_the_same() {
    let today = document(&events(3));
    let of_2021 = today
        .replace("\"cpu_op\"", "\"Operator\"")
        .replace("\"user_annotation\"", "\"Operator\"")
        .replace("\"cuda_runtime\"", "\"Runtime\"")
        .replace("\"gpu_memcpy\"", "\"Memcpy\"")
        .replace("\"tid\": 7", "\"tid\": \"7\"")
        .replace("External id", "external id");
    let mixed = today.replace("\"gpu_memcpy\"", "\"Memcpy\"").replace("\"cpu_op\"", "\"operator\"");
    let folder = Folder::new();
    for (name, text) in [("today", &today), ("2021", &of_2021), ("mixed", &mixed)] {
        let audit = audited(&[folder.file(name, text)], &AuditOptions::default());
        assert_eq!((audit.totals.waits, audit.step_counts.total), (3, 3), "{name}");
        assert_eq!(audit.sites[0].op.as_deref(), Some("aten::item"), "{name}");
    }
}

#[test]
fn hip_calls_that_copy_and_wait_in_one_are_reads() {
    let text = document(&events(3))
        .replace("cudaMemcpyAsync", "hipMemcpyWithStream")
        .replace("cudaStreamSynchronize", "hipStreamSynchronize")
        .replace("Device -> Pageable", "Device -> Host");
    let folder = Folder::new();
    let audit = audited(&[folder.file("t.json", text)], &AuditOptions::default());
    let kinds: Vec<_> = audit.sites.iter().map(|site| (site.kind, site.waits)).collect();
    assert!(kinds.contains(&(WaitKind::DeviceToHostRead, 3)), "{kinds:?}");
}

#[test]
fn what_the_driver_says_of_a_synchronise_is_not_a_second_one_and_device_side_waits_are_none() {
    let mut all = events(3);
    all.push(r#"{"ph": "X", "cat": "cuda_sync", "name": "Stream Sync", "pid": 0, "tid": 7, "ts": 1200, "dur": 300, "args": {"stream": 7, "correlation": 4}}"#.into());
    all.push(r#"{"ph": "X", "cat": "cuda_sync", "name": "Stream Wait Event", "pid": 0, "tid": 7, "ts": 1210, "dur": 0, "args": {"stream": 7, "correlation": 900}}"#.into());
    all.push(r#"{"ph": "X", "cat": "cuda_runtime", "name": "cudaStreamWaitEvent", "pid": 7, "tid": 7, "ts": 1600, "dur": 3, "args": {"correlation": 900}}"#.into());
    all.push(r#"{"ph": "X", "cat": "cuda_runtime", "name": "cudaEventQuery", "pid": 7, "tid": 7, "ts": 1610, "dur": 1, "args": {"correlation": 901}}"#.into());
    let folder = Folder::new();
    assert_eq!(audited(&[folder.file("t.json", document(&all))], &AuditOptions::default()).totals.waits, 3);
}

#[test]
fn a_step_that_is_drawn_on_the_device_too_counts_once() {
    let mut all = events(3);
    for number in 1..=3 {
        all.push(format!(
            r#"{{"ph": "X", "cat": "gpu_user_annotation", "name": "ProfilerStep#{number}", "pid": 0, "tid": 7, "ts": {}, "dur": 50}}"#,
            number * 1000
        ));
    }
    let folder = Folder::new();
    assert_eq!(
        audited(&[folder.file("t.json", document(&all))], &AuditOptions::default()).step_counts.total,
        3
    );
}

#[test]
fn python_frames_come_from_functions_with_parents_and_from_call_stack_texts() {
    let mut with_functions = events(1);
    for (name, id, parent, start, dur) in [
        ("train.py(10): main", 1, "null", 1000, 800),
        ("train.py(31): log", 2, "1", 1090, 600),
        ("<built-in method item of Tensor object at 0x7f00>", 3, "2", 1095, 590),
    ] {
        with_functions.push(format!(
            r#"{{"ph": "X", "cat": "python_function", "name": "{name}", "pid": 7, "tid": 7, "ts": {start}, "dur": {dur}, "args": {{"Python parent id": {parent}, "Python id": {id}}}}}"#
        ));
    }
    let with_texts: Vec<String> = events(1)
        .into_iter()
        .map(|event| {
            event.replace(
                r#""External id": 3"#,
                r#""Call stack": "<built-in method item of Tensor object>;train.py(31): log;train.py(10): main""#,
            )
        })
        .collect();
    for all in [with_functions, with_texts] {
        let trace = load(document(&all)).unwrap();
        let call = &trace.processes[0].threads[0].calls[0];
        let frames: Vec<(&str, u32, &str)> = trace
            .python
            .get(call.python)
            .iter()
            .map(|frame| (trace.str(frame.file), frame.line, trace.str(frame.function)))
            .collect();
        assert_eq!(
            frames,
            [
                ("", 0, "<built-in method item of Tensor object>"),
                ("train.py", 31, "log"),
                ("train.py", 10, "main")
            ]
        );
    }
}

#[test]
fn a_wait_of_the_backward_pass_is_placed_at_the_forward_code() {
    let text = document(&[
        r#"{"ph": "X", "cat": "python_function", "name": "model.py(5): forward", "pid": 7, "tid": 7, "ts": 100, "dur": 100, "args": {"Python id": 1, "Python parent id": null}}"#.into(),
        r#"{"ph": "X", "cat": "cpu_op", "name": "aten::index", "pid": 7, "tid": 7, "ts": 110, "dur": 20, "args": {"Sequence number": 42, "Fwd thread id": 0}}"#.into(),
        r#"{"ph": "X", "cat": "cpu_op", "name": "IndexBackward0", "pid": 7, "tid": 8, "ts": 500, "dur": 100, "args": {"Sequence number": 42, "Fwd thread id": 1}}"#.into(),
        r#"{"ph": "X", "cat": "cuda_runtime", "name": "cudaStreamSynchronize", "pid": 7, "tid": 8, "ts": 510, "dur": 50, "args": {"correlation": 1}}"#.into(),
    ]);
    let trace = load(text).unwrap();
    let thread = trace.processes[0].threads.iter().find(|thread| thread.tid == 8).unwrap();
    let functions: Vec<&str> =
        trace.python.get(thread.calls[0].python).iter().map(|frame| trace.str(frame.function)).collect();
    assert_eq!(functions, ["<backward of the code below, in IndexBackward0>", "forward"]);
}

#[test]
fn without_sequence_numbers_flows_lead_from_the_backward_pass_to_the_forward_code() {
    let flow = |ph: &str, category: &str, id: u32, tid: u32, ts: u32| {
        format!(
            r#"{{"ph": "{ph}", "id": {id}, "pid": 7, "tid": {tid}, "ts": {ts}, "cat": "{category}", "name": "x", "bp": "e"}}"#
        )
    };
    let op = |name: &str, tid: u32, ts: u32, dur: u32| {
        format!(
            r#"{{"ph": "X", "cat": "cpu_op", "name": "{name}", "pid": 7, "tid": {tid}, "ts": {ts}, "dur": {dur}, "args": {{}}}}"#
        )
    };
    let function = |name: &str, id: u32, ts: u32| {
        format!(
            r#"{{"ph": "X", "cat": "python_function", "name": "{name}", "pid": 7, "tid": 7, "ts": {ts}, "dur": 40, "args": {{"Python id": {id}, "Python parent id": null}}}}"#
        )
    };
    for category in ["fwdbwd", "forward_backward"] {
        let text = document(&[
            // The same number twice: each flow comes from the last start before it.
            flow("f", category, 5, 8, 500),
            flow("s", category, 5, 7, 110),
            flow("s", category, 5, 7, 1110),
            flow("f", category, 5, 8, 1500),
            // Another kind of flow to the same place, one that never started, and one from a process that is not there.
            flow("s", "ac2g", 5, 7, 210),
            flow("f", category, 6, 8, 500),
            flow("s", category, 7, 7, 499).replace("\"pid\": 7", "\"pid\": 9"),
            flow("f", category, 7, 8, 500),
            function("model.py(5): first", 1, 100),
            function("model.py(9): other", 2, 200),
            function("model.py(5): second", 3, 1100),
            op("aten::index", 7, 110, 20),
            op("aten::index", 7, 1110, 20),
            op("IndexBackward0", 8, 500, 100),
            op("aten::index_put_", 8, 500, 5),
            op("IndexBackward0", 8, 1500, 100),
            r#"{"ph": "X", "cat": "cuda_runtime", "name": "cudaStreamSynchronize", "pid": 7, "tid": 8, "ts": 510, "dur": 50, "args": {"correlation": 1}}"#.into(),
            r#"{"ph": "X", "cat": "cuda_runtime", "name": "cudaStreamSynchronize", "pid": 7, "tid": 8, "ts": 1510, "dur": 50, "args": {"correlation": 2}}"#.into(),
        ]);
        let trace = load(text).unwrap();
        assert_eq!(trace.processes.len(), 1);
        let thread = trace.processes[0].threads.iter().find(|thread| thread.tid == 8).unwrap();
        let functions: Vec<Vec<&str>> = thread
            .calls
            .iter()
            .map(|call| trace.python.get(call.python).iter().map(|frame| trace.str(frame.function)).collect())
            .collect();
        let note = "<backward of the code below, in IndexBackward0>";
        assert_eq!(functions, [[note, "first"], [note, "second"]], "{category}");
    }
}

#[test]
fn times_are_exact_whatever_their_notation_and_events_may_come_in_any_order() {
    let mut all: Vec<String> = events(2);
    all.reverse();
    let text = document(&all)
        .replace("\"ts\": 1200, \"dur\": 300", "\"dur\": 300.125, \"ts\": 1419116733200.998")
        .replace("\"dur\": 900", "\"dur\": 9.0e2");
    let trace = load(text).unwrap();
    let calls = &trace.processes[0].threads[0].calls;
    let last = calls.last().unwrap();
    assert_eq!((last.start_ns, last.host_ns()), (1_419_116_733_200_998, Some(300_125)));
    assert!(calls.is_sorted_by_key(|call| call.start_ns));
}

#[test]
fn harmless_oddities_lose_nothing_and_say_nothing() {
    let plain = document(&events(3));
    let mut crlf_bom = b"\xef\xbb\xbf".to_vec();
    crlf_bom.extend(plain.replace('\n', "\r\n").bytes());
    let variants: Vec<(&str, Vec<u8>)> = vec![
        ("byte order mark and CRLF", crlf_bom),
        ("bare array", format!("[{}]", events(3).join(",")).into_bytes()),
        ("trailing commas", plain.replace("\n]}", ",\n],}").replace("}}", "},}").into_bytes()),
        ("NaN and Infinity", plain.replace("\"cbid\": 41", "\"x\": NaN, \"y\": -Infinity").into_bytes()),
        ("beyond 64 bits", plain.replace("\"cbid\": 41", "\"Comms Id\": 10159970886766084423").into_bytes()),
        ("control characters", plain.replace("aten::item", "aten::\u{1}item\t").into_bytes()),
        ("empty kernel name", plain.replace("Memcpy DtoH (Device -> Pageable)", "").into_bytes()),
        ("padding", [plain.as_bytes(), &[0; 512]].concat()),
        ("gzip under a plain name", gzip(plain.as_bytes())),
        ("gzip members", {
            let (a, b) = plain.as_bytes().split_at(500);
            [gzip(a), gzip(b)].concat()
        }),
        ("padding after gzip", [gzip(plain.as_bytes()), vec![0; 1024]].concat()),
        ("gzip in gzip", gzip(&gzip(plain.as_bytes()))),
        ("zstd", zstd(plain.as_bytes())),
        ("zstd frames", {
            let (a, b) = plain.as_bytes().split_at(700);
            [zstd(a), zstd(b)].concat()
        }),
    ];
    for (what, content) in variants {
        let trace = load(&content).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(calls(&trace), 6, "{what}");
        assert_eq!(trace.problems, [], "{what}");
    }
    // And the reverse: plain text under a name that promises gzip.
    let folder = Folder::new();
    assert_eq!(calls(&load_path(&[folder.file("trace.json.gz", &plain)]).unwrap()), 6);
}

#[test]
fn bytes_that_are_no_utf8_are_replaced_and_nothing_else_changes() {
    let mut text = document(&events(1)).into_bytes();
    let at = text.windows(4).position(|window| window == b"item").unwrap();
    text[at] = 0xe9;
    let trace = load(&text).unwrap();
    let thread = &trace.processes[0].threads[0];
    assert!(thread.spans.iter().any(|span| trace.str(span.name) == "aten::\u{fffd}tem"));
    assert_eq!(calls(&trace), 2);
}

#[test]
fn quotes_that_were_not_escaped_are_mended_and_counted() {
    let text = document(&events(3)).replacen("aten::item", "say \"hi\" to you", 1);
    let trace = load(text).unwrap();
    assert_eq!((calls(&trace), problem(&trace, ProblemKind::Note).count), (6, 1));
    let thread = &trace.processes[0].threads[0];
    assert!(thread.spans.iter().any(|span| trace.str(span.name) == "say \"hi\" to you"));
}

#[test]
fn a_cut_file_gives_what_came_before_and_never_passes() {
    let whole = document(&events(4));
    let cut = whole.rfind("cudaStreamSynchronize").unwrap();
    let trace = load(&whole[..cut]).unwrap();
    assert_eq!(calls(&trace), 7);
    let found = problem(&trace, ProblemKind::Truncated);
    assert!(
        found.text.contains(&format!("byte {cut}")) && found.text.contains("middle of an event"),
        "{}",
        found.text
    );

    let packed = gzip(whole.as_bytes());
    let trace = load(&packed[..packed.len() - 30]).unwrap();
    assert!(problem(&trace, ProblemKind::Truncated).text.contains("cut off"), "{:?}", trace.problems);

    let open_array = format!("[{}", events(4).join(","));
    let trace = load(open_array).unwrap();
    assert_eq!(calls(&trace), 8);
    assert!(problem(&trace, ProblemKind::Truncated).text.contains("closing bracket"));
}

#[test]
fn a_damaged_event_is_lost_alone_and_counted_with_its_place() {
    let all = events(4);
    let bad = all[7].clone();
    for damaged in [bad.replace("\"ts\": 2110", "\"ts\" 2110"), bad[..60].to_owned(), "#!garbage".to_owned()]
    {
        let mut all = all.clone();
        all[7] = damaged.clone();
        let text = document(&all);
        let trace = load(&text).unwrap();
        assert!(calls(&trace) >= 6, "{damaged}: {}", calls(&trace));
        let found = problem(&trace, ProblemKind::Corrupt);
        assert_eq!(found.count, 1, "{damaged}: {found:?}");
        assert!(found.text.contains("byte "), "{}", found.text);
    }
}

#[test]
fn begin_and_end_pairs_are_spans_and_an_end_without_begin_is_counted() {
    let mut all: Vec<String> = events(1).into_iter().filter(|event| !event.contains("cpu_op")).collect();
    for (ph, ts) in [("E", 1600), ("B", 1100), ("E", 1900)] {
        all.push(format!(
            r#"{{"ph": "{ph}", "cat": "cpu_op", "name": "aten::item", "pid": 7, "tid": 7, "ts": {ts}}}"#
        ));
    }
    let trace = load(document(&all)).unwrap();
    let thread = &trace.processes[0].threads[0];
    let op = thread.spans.iter().find(|span| trace.str(span.name) == "aten::item").unwrap();
    assert_eq!((op.start_ns, op.end_ns), (1_100_000, 1_600_000));
    assert_eq!(problem(&trace, ProblemKind::LostRecords).count, 1);
}

#[test]
fn events_that_cannot_be_used_are_counted_by_reason() {
    let mut all = events(2);
    all.push(r#"{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 7, "tid": 7, "ts": NaN, "dur": 1}"#.into());
    all.push(r#"{"cat": "cpu_op", "name": "a", "pid": 7, "tid": 7, "ts": 5, "dur": 1}"#.into());
    all.push(r#"{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 7, "tid": 7, "ts": -5, "dur": 1}"#.into());
    all.push(r#"{"ph": "X", "cat": "cuda_runtime", "name": "cudaDeviceSynchronize", "pid": 7, "tid": 7, "ts": 5000}"#.into());
    all.push(r#"{"ph": "X", "cat": "tea_break", "name": "a", "pid": 7, "tid": 7, "ts": 5, "dur": 1}"#.into());
    let trace = load(document(&all)).unwrap();
    let counts: Vec<(ProblemKind, u64)> =
        trace.problems.iter().map(|problem| (problem.kind, problem.count)).collect();
    use ProblemKind as K;
    assert_eq!(counts, [(K::LostRecords, 2), (K::LostRecords, 1), (K::NoDuration, 1), (K::Note, 1)]);
    assert_eq!(calls(&trace), 5, "a call without a duration is still a call");
}

#[test]
fn steps_without_a_duration_hold_no_wait_and_are_no_pass() {
    let folder = Folder::new();
    for duration in ["NaN", "-900", "null", "1e999"] {
        let text = document(&events(5)).replace("\"dur\": 900", &format!("\"dur\": {duration}"));
        let audit = audited(&[folder.file("t.json", text)], &AuditOptions::default());
        assert_eq!((audit.totals.waits, audit.totals.outside_steps_waits), (5, 5), "{duration}");
        assert_eq!(audit.verdict, Verdict::Inconclusive, "{duration}");
        assert!(audit.reasons[0].contains("5 events without a duration"), "{:?}", audit.reasons);
    }
    // A Python function decides on no wait.
    let function = r#"{"ph": "X", "cat": "python_function", "name": "a.py(1): f", "pid": 7, "tid": 7, "ts": 1, "dur": -1}"#;
    let text = quiet(&document(&[events(5), vec![function.into()]].concat()));
    let audit = audited(&[folder.file("t.json", text)], &AuditOptions::default());
    assert_eq!((audit.verdict, audit.problems.len()), (Verdict::Pass, 1), "{:?}", audit.problems);
}

#[test]
fn text_in_utf16_is_called_that_with_and_without_a_byte_order_mark() {
    let text = document(&events(1));
    let little: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let big: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
    for content in [little.clone(), big, [vec![0xff, 0xfe], little].concat()] {
        let error = load(&content).unwrap_err();
        assert!(error.contains("UTF-16"), "{error}");
    }
}

#[test]
fn what_is_no_trace_is_refused_with_byte_and_reason() {
    for (content, words) in [
        (&b""[..], "the file is empty"),
        (b"<!DOCTYPE html><title>Sign in</title>", "at byte 0 an HTML page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b"{\"a\": 1}", "traceEvents"),
        (b"{\"traceEvents\": [", "ends at byte 17"),
        (b"{\"traceEvents\": []}", "empty"),
        (b"{\"traceEvents\": 5}", "traceEvents"),
        (b"[]", "empty"),
        (b"{5", "at byte 1"),
        (b"{\"schemaVersion\": 1, \"x\": ?}", "at byte 26"),
        (b"\x1f\x8b\x08\x00trash", "unpacked"),
        (b"\x28\xb5\x2f\xfdtrash", "unpacked"),
        (&zstd(document(&events(9)).as_bytes())[..40], "the compressed file is cut off"),
        (&gzip(document(&events(9)).as_bytes())[..12], "the compressed file is cut off"),
        (b"hello", "at byte 0 there is 'hello'"),
        (b"{\"traceEvents\": [{\"ph\": \"X\", \"cat\": \"tea\", \"name\": \"a\", \"ts\": 1}]}", "category"),
    ] {
        let error = load(content).unwrap_err();
        assert!(error.contains(words), "{:?}: {error}", String::from_utf8_lossy(content));
    }
}

#[test]
fn a_trace_without_a_device_says_so_and_is_no_pass() {
    let all: Vec<String> = events(3)
        .into_iter()
        .filter(|event| event.contains("cpu_op") || event.contains("annotation"))
        .collect();
    let folder = Folder::new();
    let audit = audited(&[folder.file("cpu.json", document(&all))], &AuditOptions::default());
    assert_eq!(audit.verdict, Verdict::Inconclusive);
    assert!(audit.reasons.iter().any(|reason| reason.contains("no CUDA calls")), "{:?}", audit.reasons);
}

fn rank(rank: u32, world_size: u32, steps: u64) -> String {
    let text = document(&events(steps));
    text.replacen(
        "{\"schemaVersion\"",
        &format!(
            "{{\"distributedInfo\": {{\"rank\": {rank}, \"world_size\": {world_size}}}, \"schemaVersion\""
        ),
        1,
    )
}

/// Steps without waits, so that nothing but a missing rank decides.
fn quiet(text: &str) -> String {
    text.replace("cudaMemcpyAsync", "cudaLaunchKernel")
        .replace("cudaStreamSynchronize", "cudaGetLastError")
        .replace("\"gpu_memcpy\"", "\"kernel\"")
}

#[test]
fn a_directory_of_ranks_is_one_job_with_ranks_in_order() {
    let folder = Folder::new();
    // File names sort the other way round.
    folder.file("b_rank0.json", rank(0, 2, 4));
    folder.file("a_rank1.json.gz", gzip(rank(1, 2, 4).as_bytes()));
    folder.file("notes.txt", "not looked at");
    folder.file("config.json", "{\"lr\": 0.1}");
    rusqlite::Connection::open(folder.0.path().join("results.sqlite"))
        .unwrap()
        .execute_batch("CREATE TABLE a (b)")
        .unwrap();
    let audit = audited(&[folder.0.path().to_owned()], &AuditOptions::default());
    let rows: Vec<(Option<u32>, usize, u64)> =
        audit.processes.iter().map(|row| (row.rank, row.steps, row.waits)).collect();
    assert_eq!(rows, [(Some(0), 4, 4), (Some(1), 4, 4)]);
    assert_eq!(audit.sites.len(), 1, "the same place of two ranks is one site");
    assert_eq!(audit.shares(&audit.sites[0]).iter().map(|share| share.waits).collect::<Vec<_>>(), [4, 4]);
    let [config, results] = audit.problems.as_slice() else { panic!("{:?}", audit.problems) };
    for (problem, name) in [(config, "config.json"), (results, "results.sqlite")] {
        assert_eq!(problem.kind, ProblemKind::ForeignFile);
        assert!(problem.text.contains(name), "{}", problem.text);
    }
}

#[test]
fn a_report_of_nsight_systems_beside_traces_is_a_rank_that_was_not_exported() {
    let folder = Folder::new();
    folder.file("rank0.json", quiet(&rank(0, 1, 4)));
    folder.file("rank1.nsys-rep", "NVIDIA");
    let audit = audited(&[folder.0.path().to_owned()], &AuditOptions::default());
    assert_eq!(audit.verdict, Verdict::Inconclusive);
    assert!(
        audit.reasons[0].contains("nsys export --type sqlite --output rank1.sqlite rank1.nsys-rep"),
        "{:?}",
        audit.reasons
    );
    // One that was exported is no rank of its own.
    folder.file("rank1.sqlite.gz", gzip(b"SQLite format 3\0"));
    let audit = audited(&[folder.0.path().to_owned()], &AuditOptions::default());
    assert!(!audit.reasons.iter().any(|reason| reason.contains("nsys-rep")), "{:?}", audit.reasons);
}

#[test]
fn a_broken_or_missing_rank_is_named_and_leaves_no_pass_unless_allowed() {
    let folder = Folder::new();
    let paths = [
        folder.file("rank0.json", quiet(&rank(0, 3, 4))),
        folder.file("rank1.json", "<html>login</html>"),
        folder.file("rank2.json", quiet(&rank(2, 3, 4))),
    ];
    let audit = audited(&paths, &AuditOptions::default());
    assert_eq!(audit.verdict, Verdict::Inconclusive);
    assert!(audit.reasons.iter().any(|reason| reason.contains("rank1.json")), "{:?}", audit.reasons);
    assert!(audit.reasons.iter().any(|reason| reason.contains("no trace of rank 1")), "{:?}", audit.reasons);
    let options = AuditOptions { allow_missing_ranks: true, ..AuditOptions::default() };
    assert_eq!(audited(&paths, &options).verdict, Verdict::Pass);
}

#[test]
fn a_job_of_which_a_rank_is_missing_is_inconclusive_even_if_the_others_wait_too_often() {
    let folder = Folder::new();
    let paths = [folder.file("rank0.json", rank(0, 3, 4)), folder.file("rank2.json", rank(2, 3, 4))];
    let audit = audited(&paths, &AuditOptions::default());
    assert_eq!(audit.verdict, Verdict::Inconclusive);
    assert!(audit.reasons[0].contains("no trace of rank 1"), "{:?}", audit.reasons);
    assert!(
        audit.reasons[1].contains("4 of 4 ordinary steps wait"),
        "what is proven is said: {:?}",
        audit.reasons
    );
    assert!(audit.next.iter().any(|next| next.contains("--allow-missing-ranks")), "{:?}", audit.next);
    let options = AuditOptions { allow_missing_ranks: true, ..AuditOptions::default() };
    assert_eq!(audited(&paths, &options).verdict, Verdict::Fail);
}

#[test]
fn ranks_that_wait_unequally_often_are_named_in_every_report() {
    let folder = Folder::new();
    let all = rank(0, 3, 6);
    // Rank 1 reads in other steps only, rank 2 for longer and in steps of which there are fewer.
    let seldom = rank(1, 3, 6).replacen("cudaMemcpyAsync", "cudaLaunchKernel", 3).replacen(
        "cudaStreamSynchronize",
        "cudaGetLastError",
        3,
    );
    let slow = rank(2, 3, 5).replace("\"dur\": 300", "\"dur\": 390");
    let paths =
        [folder.file("rank0.json", &all), folder.file("rank1.json", seldom), folder.file("rank2.json", slow)];
    let audit = audited(&paths, &AuditOptions::default());
    let (longest, least) = audit.longest_and_least().unwrap();
    assert_eq!((longest.rank, least.rank), (Some(2), Some(1)));
    assert!(audit.ranks_disagree(&audit.sites[0]));
    let judged = syncaudit::gate::Judged::from(audit);
    use syncaudit::report::Format;
    let report =
        |format: Format| format.render(&judged, syncaudit::report::TextStyle { color: false, width: 200 });
    for format in [Format::Text, Format::Markdown, Format::Html] {
        let report = report(format);
        for sentence in [
            "rank 2 waits longest: 470.0 us per ordinary step; rank 1 least: 285.0 us",
            "ranks have different numbers of steps: 5 to 6",
            "ranks disagree at 1 place",
            "1 per ordinary step on ranks 0, 2; 0.75 per ordinary step on rank 1",
        ] {
            assert!(report.contains(sentence), "{format:?} lacks '{sentence}': {report}");
        }
    }
    let json: serde_json::Value = serde_json::from_str(&report(Format::Json)).unwrap();
    let waits_longest: Vec<_> =
        json["ranks"].as_array().unwrap().iter().map(|row| row["waits_longest"].as_bool()).collect();
    assert_eq!(waits_longest, [Some(false), Some(false), Some(true)]);
    assert_eq!(json["ranks"][1]["ordinary_waits_per_step"], 0.75);
    assert_eq!(
        (&json["sites"][0]["ranks_disagree"], &json["sites"][0]["per_rank"][1]["ordinary_waits"]),
        (&true.into(), &3.into())
    );
    // The same on all ranks: nothing to tell apart.
    let paths = [folder.file("rank0.json", &all), folder.file("rank1.json", rank(1, 2, 6))];
    let judged = syncaudit::gate::Judged::from(audited(
        &paths[..],
        &AuditOptions { allow_missing_ranks: true, ..AuditOptions::default() },
    ));
    assert!(
        Format::Text
            .render(&judged, Default::default())
            .contains("all ranks wait at the same places, equally often")
    );
}

#[test]
fn files_that_tell_no_rank_are_processes_side_by_side() {
    let folder = Folder::new();
    let other = document(&events(4)).replace("\"pid\": 7", "\"pid\": 8");
    let paths = [folder.file("a.json", document(&events(4))), folder.file("b.json", other)];
    let audit = audited(&paths, &AuditOptions::default());
    let names: Vec<String> = audit.ranks.iter().map(syncaudit::audit::RankRow::name).collect();
    assert_eq!(names, ["process 7", "process 8"]);
    let judged = syncaudit::gate::Judged::from(audit);
    let text = syncaudit::report::Format::Text.render(&judged, Default::default());
    assert!(text.contains("ranks: 1 per ordinary step on each"), "{text}");
}

#[test]
fn a_rank_without_steps_beside_others_that_have_some_cant_be_judged() {
    let folder = Folder::new();
    let without = quiet(&rank(1, 2, 4)).replace("ProfilerStep#", "epoch");
    let paths = [folder.file("rank0.json", quiet(&rank(0, 2, 4))), folder.file("rank1.json", without)];
    let audit = audited(&paths, &AuditOptions::default());
    assert_eq!(audit.verdict, Verdict::Inconclusive);
    assert!(audit.reasons[0].contains("no step was found in the trace of rank 1"), "{:?}", audit.reasons);
}

#[test]
fn a_rank_alone_says_that_it_is_one_of_many_and_is_judged() {
    let folder = Folder::new();
    let audit = audited(&[folder.file("t.json", quiet(&rank(3, 8, 4)))], &AuditOptions::default());
    assert_eq!(audit.verdict, Verdict::Pass);
    assert!(
        audit.problems.iter().any(|problem| problem.text.contains("rank 3 of 8")),
        "{:?}",
        audit.problems
    );
}

#[test]
fn recordings_with_different_zero_points_are_put_on_one_clock() {
    let folder = Folder::new();
    let based = |base: u64| {
        document(&events(1)).replacen("\n]}", &format!("\n], \"baseTimeNanoseconds\": {base}}}"), 1)
    };
    let paths = [folder.file("rank0.json", based(1_000_000)), folder.file("rank1.json", based(1_500_000))];
    let trace = load_path(&paths).unwrap();
    let starts: Vec<u64> =
        trace.processes.iter().map(|process| process.threads[0].calls[0].start_ns).collect();
    assert_eq!(starts, [1_110_000, 1_610_000]);
}

#[test]
fn progress_ends_at_the_size_of_the_files() {
    let folder = Folder::new();
    let path = folder.file("t.json.gz", gzip(document(&events(200)).as_bytes()));
    let mut seen = Vec::new();
    syncaudit::import::load_with(std::slice::from_ref(&path), &mut |progress| seen.push(progress)).unwrap();
    let size = std::fs::metadata(&path).unwrap().len();
    assert!(seen.iter().all(|progress| progress.total_bytes == Some(size)));
    assert!(seen.is_sorted_by_key(|progress| progress.done_bytes));
    assert_eq!(seen.last().unwrap().done_bytes, size);
}

#[test]
fn what_comes_through_pipes_is_read_whole_and_counts_up_without_a_total() {
    let folder = Folder::new();
    let (pipes, writers): (Vec<PathBuf>, Vec<_>) = (0..2)
        .map(|rank_number| {
            let pipe = folder.0.path().join(format!("pipe{rank_number}"));
            assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
            let text = rank(rank_number, 2, 2_000);
            let writer = std::thread::spawn({
                let pipe = pipe.clone();
                move || std::fs::write(pipe, &text).map(|()| text.len() as u64).unwrap()
            });
            (pipe, writer)
        })
        .unzip();
    let mut seen = Vec::new();
    let trace = syncaudit::import::load_with(&pipes, &mut |progress| seen.push(progress)).unwrap();
    let size: u64 = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
    assert_eq!((calls(&trace), trace.problems), (8_000, vec![]));
    assert!(seen.iter().all(|progress| progress.total_bytes.is_none()));
    assert!(seen.is_sorted_by_key(|progress| progress.done_bytes));
    assert_eq!(seen.last().unwrap().done_bytes, size);
}

#[test]
fn no_mutation_of_a_trace_makes_the_importer_panic() {
    let mut seeds: Vec<Vec<u8>> = Vec::new();
    let plain = document(&events(3));
    seeds.push(plain.clone().into_bytes());
    seeds.push(rank(1, 2, 2).into_bytes());
    seeds.push(gzip(plain.as_bytes()));
    seeds.push(zstd(plain.as_bytes()));
    let folder = Folder::new();
    let rounds: u64 =
        std::env::var("SYNCAUDIT_FUZZ").ok().and_then(|text| text.parse().ok()).unwrap_or(1_000);
    let mut random = Random(0x5eed);
    for _ in 0..rounds {
        let mut bytes = seeds[random.below(seeds.len())].clone();
        for _ in 0..=random.below(4) {
            mutate(&mut bytes, &mut random);
        }
        check_one(&folder.file("mutant", &bytes));
    }
}

fn check_one(path: &Path) {
    // An error is as good an answer as a trace; what is read has to be whole enough to be audited.
    if let Ok(trace) = load_path(&[path.to_owned()]) {
        let audit = syncaudit::audit::audit(&trace, &AuditOptions::default());
        audit.reconcile().unwrap();
    }
}

/// A xorshift generator: the same mutants in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound.max(1) as u64) as usize
    }
}

fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    const WORDS: [&[u8]; 12] = [
        b"\"",
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"\"ts\": -1e999",
        b"null",
        b"18446744073709551616",
        b"\x00",
    ];
    let at = random.below(bytes.len());
    match random.below(6) {
        0 => bytes.truncate(at),
        1 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
        2 => drop(bytes.splice(at..at, WORDS[random.below(WORDS.len())].iter().copied())),
        3 => {
            let end = (at + random.below(40)).min(bytes.len());
            bytes.drain(at..end);
        }
        4 => {
            let end = (at + random.below(200)).min(bytes.len());
            let copy = bytes[at..end].to_vec();
            let to = random.below(bytes.len());
            drop(bytes.splice(to..to, copy));
        }
        _ => {
            let word = WORDS[random.below(WORDS.len())];
            let end = (at + word.len()).min(bytes.len());
            drop(bytes.splice(at..end, word.iter().copied()));
        }
    }
}
