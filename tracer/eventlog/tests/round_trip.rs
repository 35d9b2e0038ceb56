//! What is written is what is read.
#![cfg(unix)]

use syncaudit_eventlog::*;

fn sample(log: &mut ThreadLog<'_>) -> Vec<Call> {
    let name = log.str(b"step");
    let stack = log.stack(&[0x7f00_0000_1000, 0x7f00_0000_2000]);
    let api = Api { domain: ApiDomain::Driver, cbid: 279 };
    log.api_name(api, || b"cuStreamSynchronize");
    (0..10u32)
        .map(|index| {
            let t_ns = u64::from(index) * 1000;
            let attributes = RangeAttributes { name, payload: Payload::U64(t_ns), ..Default::default() };
            log.write(&Record::RangePush { t_ns, attributes });
            let call = Call {
                enter_ns: t_ns + 1,
                exit_ns: t_ns + 500,
                api,
                correlation: index,
                result: 0,
                copy_kind: 2,
                stream: 7,
                bytes: 4,
                object: 0xdead,
                stack,
                py_stack: PyStackId::NONE,
                nested_calls: 1,
                nested_cbid: 300,
            };
            log.write(&Record::Call(call));
            log.write(&Record::RangePop { t_ns: t_ns + 900, domain: DomainId::NONE });
            call
        })
        .collect()
}

#[test]
fn calls_names_and_stacks_come_back() {
    let directory = tempfile::tempdir().unwrap();
    let writer = LogWriter::create(directory.path(), Options::default()).unwrap();
    let mut log = writer.thread();
    log.write(&Record::Meta { key: meta::RANK, value: b"3" });
    let calls = sample(&mut log);
    log.end(EndReason::Exit, 0);

    let file = LogFile::open(writer.path()).unwrap();
    assert_eq!(file.warnings(), []);
    assert!(file.header().sealed);
    assert_eq!(file.header().pid, std::process::id());
    assert_eq!(file.meta(meta::RANK), Some(&b"3"[..]));
    let threads: Vec<_> = file.threads().collect();
    assert_eq!(threads.len(), 1);
    assert_eq!(threads[0].os_tid(), os_thread_id());
    let read: Vec<Call> = threads[0]
        .records()
        .filter_map(|record| match record {
            Record::Call(call) => Some(call),
            _ => None,
        })
        .collect();
    assert_eq!(read, calls);
    assert_eq!(file.api_name(calls[0].api), Some(&b"cuStreamSynchronize"[..]));
    let addresses: Vec<u64> = file.stack(calls[0].stack).unwrap().iter().collect();
    assert_eq!(addresses, [0x7f00_0000_1000, 0x7f00_0000_2000]);
}
