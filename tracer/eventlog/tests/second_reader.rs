//! docs/trace-format.md is enough to read a log: a reader in Python, written from that page, sees the same records.
#![cfg(unix)]

mod common;

use common::{KINDS, Random, build};
use std::fmt::Write;
use std::process::Command;
use syncaudit_eventlog::*;

fn hex(bytes: &[u8]) -> String {
    match bytes {
        [] => "-".to_owned(),
        _ => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

/// As the second reader prints a record.
fn line(record: &Record<'_>) -> String {
    let driver = |api: Api| u64::from(api.domain == ApiDomain::Driver);
    let mut line = String::new();
    let mut put = |kind: u8, numbers: &[u64], texts: &[&[u8]]| {
        write!(line, "{kind}").unwrap();
        numbers.iter().for_each(|number| write!(line, " {number}").unwrap());
        texts.iter().for_each(|text| write!(line, " {}", hex(text)).unwrap());
    };
    let wide = |numbers: &[u32]| numbers.iter().map(|number| u64::from(*number)).collect::<Vec<_>>();
    let attributes = |head: &[u64], attributes: &RangeAttributes| {
        let (tag, payload) = match attributes.payload {
            Payload::None => (0, 0),
            Payload::U64(value) => (1, value),
            Payload::I64(value) => (2, value as u64),
            Payload::F64(value) => (3, value.to_bits()),
            Payload::U32(value) => (4, u64::from(value)),
            Payload::I32(value) => (5, u64::from(value as u32)),
            Payload::F32(value) => (6, u64::from(value.to_bits())),
        };
        let fields = wide(&[attributes.domain.0, attributes.name.0, attributes.category]);
        [head, &fields, &[tag, payload]].concat()
    };
    match *record {
        Record::Meta { key, value } => put(1, &[], &[key.as_bytes(), value]),
        Record::Str { id, text } => put(2, &wide(&[id.0]), &[text]),
        Record::Module { id, loaded_ns, base, end, bias, path, build_id } => {
            put(3, &[u64::from(id.0), u64::from(path.0), loaded_ns, base, end, bias], &[build_id])
        }
        Record::Stack { id, addresses: words } => {
            put(4, &[wide(&[id.0]), words.iter().collect()].concat(), &[]);
        }
        Record::PyStack { id, frames: words } => {
            put(6, &[wide(&[id.0]), words.iter().collect()].concat(), &[]);
        }
        Record::PyCode { id, python_minor, first_line, filename, qualname, line_table } => {
            put(5, &wide(&[id.0, filename.0, qualname.0, first_line, u32::from(python_minor)]), &[line_table])
        }
        Record::Thread { os_tid } => put(7, &[os_tid], &[]),
        Record::ThreadName { name } => put(8, &wide(&[name.0]), &[]),
        Record::Domain { id, name } => put(9, &wide(&[id.0, name.0]), &[]),
        Record::Category { domain, category, name } => put(10, &wide(&[domain.0, category, name.0]), &[]),
        Record::ApiName { api, name } => {
            put(11, &[driver(api), u64::from(name.0), u64::from(api.cbid)], &[]);
        }
        Record::RangePush { t_ns, attributes: ref of } => put(16, &attributes(&[t_ns], of), &[]),
        Record::RangePop { t_ns, domain } => put(17, &[t_ns, u64::from(domain.0)], &[]),
        Record::RangeStart { t_ns, range, attributes: ref of } => {
            put(18, &attributes(&[t_ns, range], of), &[]);
        }
        Record::RangeEnd { t_ns, range, domain } => put(19, &[t_ns, range, u64::from(domain.0)], &[]),
        Record::Mark { t_ns, attributes: ref of } => put(20, &attributes(&[t_ns], of), &[]),
        Record::CallEnter(CallEnter { enter_ns, api, correlation, stack, py_stack }) => {
            let fields = wide(&[correlation, u32::from(api.cbid), stack.0, py_stack.0]);
            put(24, &[&[driver(api), enter_ns], &fields[..]].concat(), &[]);
        }
        Record::Call(call) => {
            let times = [driver(call.api), call.enter_ns, call.exit_ns - call.enter_ns];
            let small = wide(&[
                u32::from(call.nested_calls),
                u32::from(call.nested_cbid),
                call.correlation,
                u32::from(call.api.cbid),
                u32::from(call.result),
                u32::from(call.copy_kind),
            ]);
            let large = [call.stream, call.bytes, call.object];
            put(25, &[&times, &small[..], &large, &wide(&[call.stack.0, call.py_stack.0])].concat(), &[]);
        }
        Record::QueryRun(run) => {
            let times = [driver(run.api), run.first_enter_ns, run.last_exit_ns, run.object];
            let cbid = u32::from(run.api.cbid);
            let small = wide(&[run.run, cbid, run.count, run.not_ready, run.stack.0, run.py_stack.0]);
            put(26, &[&times, &small[..]].concat(), &[]);
        }
        Record::Memcpy(copy) => {
            let kinds = [copy.copy_kind, copy.src_kind, copy.dst_kind, copy.flags].map(u64::from);
            let times = [copy.bytes, copy.start_cupti_ns, copy.end_cupti_ns];
            let place = wide(&[copy.device, copy.context, copy.stream, copy.graph]);
            let head = wide(&[copy.correlation]);
            put(32, &[&head, &kinds[..], &times, &place, &[copy.graph_node]].concat(), &[]);
        }
        Record::Memset(set) => {
            let head = wide(&[set.correlation, u32::from(set.memory_kind), u32::from(set.flags)]);
            let times = [set.bytes, set.start_cupti_ns, set.end_cupti_ns];
            let place = wide(&[set.device, set.context, set.stream, set.graph]);
            put(33, &[&head, &times[..], &place, &[set.graph_node]].concat(), &[]);
        }
        Record::Synchronization(sync) => {
            let head = wide(&[sync.correlation, sync.sync_type]);
            let times = [sync.start_cupti_ns, sync.end_cupti_ns];
            put(34, &[&head, &times[..], &wide(&[sync.context, sync.stream, sync.event])].concat(), &[]);
        }
        Record::Kernel(kernel) => {
            let head = wide(&[kernel.correlation, kernel.name.0]);
            let times = [kernel.start_cupti_ns, kernel.end_cupti_ns];
            let place = wide(&[kernel.device, kernel.context, kernel.stream, kernel.graph]);
            put(35, &[&head, &times[..], &place, &[kernel.graph_node]].concat(), &[]);
        }
        Record::Overhead(overhead) => {
            let head = wide(&[overhead.correlation, overhead.overhead_kind]);
            put(36, &[&head, &[overhead.start_cupti_ns, overhead.end_cupti_ns][..]].concat(), &[]);
        }
        Record::Clock(clock) => put(40, &[clock.monotonic_ns, clock.realtime_ns, clock.cupti_ns], &[]),
        Record::Note { t_ns, level, text } => put(41, &[level as u64, t_ns], &[text]),
        Record::Fork { t_ns, child_pid } => put(42, &[t_ns, u64::from(child_pid)], &[]),
        Record::End { t_ns, reason, code } => put(43, &[reason as u64, t_ns, u64::from(code)], &[]),
    }
    line
}

#[test]
fn a_reader_written_from_the_page_sees_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let writer = LogWriter::create(folder.path(), Options::default()).unwrap();
    let mut log = writer.thread();
    let mut random = Random(5);
    for index in 0..KINDS * 80 {
        let from = random.ingredients(300, 40);
        log.write(&build(index % KINDS, &from));
    }
    writer.seal();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/second_reader.py");
    let output = match Command::new("python3").arg(script).arg(writer.path()).output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!("skipped: python3 can't be started: {error}");
            return;
        }
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let file = LogFile::open(writer.path()).unwrap();
    assert!(file.summary().chunks > 2);
    let ours: Vec<String> =
        file.threads().flat_map(|thread| thread.records()).map(|record| line(&record)).collect();
    assert_eq!(ours.len(), KINDS * 80 + 1);
    let said = String::from_utf8(output.stdout).unwrap();
    let theirs: Vec<&str> = said.lines().collect();
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(ours.len(), theirs.len());
}
