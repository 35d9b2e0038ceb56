//! What `syncaudit export` writes: every wait once, and no time of an emulated run.

use serde_json::Value;
use syncaudit::audit::{AuditOptions, audit};
use syncaudit::export;
use syncaudit::model::{CallData, CopyDirection, DeviceOp, DeviceOpKind, TraceBuilder};
use syncaudit::view::Recording;
use syncaudit::view::axis::Window;

/// Four steps, each with a copy to the host and a synchronise (one wait), and a synchronise on another thread.
fn recording(emulated: bool) -> Recording {
    let mut trace = TraceBuilder::default();
    trace.source.emulated = emulated;
    let mut process = trace.process(7);
    let stream = process.stream(0x70, Some(7), 0);
    for step in 0..4u32 {
        let at = 1_000_000 * u64::from(step + 1);
        process.thread(7).push(at, "step, \"quoted\"", None);
        process.thread(7).push(at, "step", Some(i64::from(step)));
        let copy = CallData {
            stream,
            correlation: step + 1,
            direction: CopyDirection::DeviceToHost,
            ..CallData::default()
        };
        process.thread(7).call("cuMemcpyDtoHAsync_v2", at + 100, at + 200, copy);
        process.device_op(DeviceOp {
            start_ns: at + 150,
            end_ns: at + 90_000,
            bytes: 4,
            correlation: step + 1,
            stream,
            kind: DeviceOpKind::Copy,
            direction: CopyDirection::DeviceToHost,
            ..DeviceOp::default()
        });
        let data = CallData { stream, ..CallData::default() };
        process.thread(7).call("cuStreamSynchronize", at + 300, at + 100_000, data.clone());
        process.thread(8).call("cuStreamSynchronize", at + 200_000, at + 300_000, data);
        process.thread(7).pop(at + 500_000);
        process.thread(7).pop(at + 500_000);
    }
    let trace = trace.finish();
    let audit = audit(&trace, &AuditOptions::default());
    assert_eq!(audit.waits.len(), 8);
    Recording::new(trace, audit)
}

fn written(write: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut bytes);
    bytes
}

#[test]
fn csv_has_a_line_per_wait_and_quotes_what_needs_it() {
    for emulated in [false, true] {
        let text = String::from_utf8(written(|out| export::csv(&recording(emulated), out).unwrap())).unwrap();
        let lines: Vec<&str> = text.split_terminator("\r\n").collect();
        assert_eq!(lines.len(), 9);
        assert!(lines[1].contains("\"step, \"\"quoted\"\" > step\""), "{}", lines[1]);
        let unit = if emulated { ",call-order,," } else { ",ns,99800," };
        assert!(lines[1].contains(unit) && lines[1].ends_with("copy to the host"), "{}", lines[1]);
    }
}

#[test]
fn speedscope_weighs_waits_by_host_time_or_where_there_is_none_by_number() {
    for (emulated, unit, totals) in [(false, "nanoseconds", [399_200, 400_000]), (true, "none", [4, 4])] {
        let bytes = written(|out| export::speedscope(&recording(emulated), out).unwrap());
        let file: Value = serde_json::from_slice(&bytes).unwrap();
        let frames = file["shared"]["frames"].as_array().unwrap().len() as u64;
        let profiles = file["profiles"].as_array().unwrap();
        assert_eq!(profiles.len(), 2);
        for (profile, total) in profiles.iter().zip(totals) {
            assert_eq!((profile["unit"].as_str(), profile["endValue"].as_u64()), (Some(unit), Some(total)));
            let samples = profile["samples"].as_array().unwrap();
            assert_eq!(samples.len(), profile["weights"].as_array().unwrap().len());
            let known = |frame: &Value| frame.as_u64().is_some_and(|frame| frame < frames);
            assert!(samples.iter().all(|stack| stack.as_array().unwrap().iter().all(known)));
        }
    }
}

/// A protobuf message as its fields: number and value, read without any knowledge of our own structs.
fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, &[u8])> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    }
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let (number, part): (u64, &[u8]) = match key & 7 {
            0 => (varint(&mut bytes), &[]),
            1 => {
                let (head, rest) = bytes.split_at(8);
                bytes = rest;
                (u64::from_le_bytes(head.try_into().unwrap()), &[])
            }
            2 => {
                let length = usize::try_from(varint(&mut bytes)).unwrap();
                let (head, rest) = bytes.split_at(length);
                bytes = rest;
                (0, head)
            }
            other => panic!("wire type {other}"),
        };
        all.push((key >> 3, number, part));
    }
    all
}

/// Tracks, and slices of them, by name, read without any knowledge of our own structs.
fn slices(bytes: &[u8]) -> Vec<String> {
    let mut names = std::collections::BTreeMap::new();
    let mut slices = Vec::new();
    for (_, _, packet) in fields(bytes) {
        for (field, _, part) in fields(packet) {
            if field == 12 {
                for (_, _, name) in fields(part).into_iter().filter(|(field, ..)| *field == 2) {
                    let name = fields(name);
                    names.insert(name[0].1, String::from_utf8(name[1].2.to_vec()).unwrap());
                }
            }
            if field == 11 {
                slices
                    .extend(fields(part).iter().filter(|(field, ..)| *field == 10).map(|&(_, name, _)| name));
            }
        }
    }
    slices.into_iter().map(|name| names[&name].clone()).collect()
}

#[test]
fn a_window_of_a_trace_has_what_reaches_into_it_and_flows_with_two_ends() {
    let rec = recording(false);
    let whole = slices(&written(|out| export::perfetto(&rec, rec.axis.whole(), out).unwrap()));
    assert_eq!(whole.iter().filter(|name| *name == "step").count(), 4);
    // From the middle of the first read's synchronise, behind its copy, to just before the other thread's.
    let start = rec.axis.position(1_095_000);
    let window = Window { start, len: rec.axis.position(1_199_000) - start };
    let bytes = written(|out| export::perfetto(&rec, window, out).unwrap());
    let mut found = slices(&bytes);
    found.sort();
    assert_eq!(found, ["cuStreamSynchronize", "device-to-host-read", "step", "step, \"quoted\""]);
    let flows =
        fields(&bytes).into_iter().flat_map(|packet| fields(packet.2)).filter(|(field, ..)| *field == 11);
    let ends = flows.flat_map(|event| fields(event.2)).filter(|(field, ..)| [47, 48].contains(field));
    assert_eq!(ends.count(), 0, "the copy is not there");
}

#[test]
fn perfetto_flows_have_two_ends_and_none_goes_back_in_time() {
    for emulated in [false, true] {
        let rec = recording(emulated);
        let bytes = written(|out| export::perfetto(&rec, rec.axis.whole(), out).unwrap());
        let (mut begun, mut ended) = (Vec::new(), Vec::new());
        let mut balance = std::collections::BTreeMap::new();
        let mut names = 0;
        for (field, _, packet) in fields(&bytes) {
            assert_eq!(field, 1, "Trace.packet");
            let packet = fields(packet);
            let time = packet.iter().find(|(field, ..)| *field == 8).map(|&(_, time, _)| time);
            names += packet.iter().filter(|(field, ..)| *field == 12).count();
            for (_, _, event) in packet.iter().filter(|(field, ..)| *field == 11) {
                let event = fields(event);
                let one =
                    |number| event.iter().find(|(field, ..)| *field == number).map(|&(_, value, _)| value);
                *balance.entry(one(11).expect("a track")).or_insert(0i64) +=
                    if one(9) == Some(1) { 1 } else { -1 };
                for &(field, flow, _) in &event {
                    match field {
                        47 => begun.push((flow, time.unwrap())),
                        48 => ended.push((flow, time.unwrap())),
                        _ => {}
                    }
                }
            }
        }
        assert!(balance.values().all(|&open| open == 0) && names > 3);
        begun.sort_unstable();
        ended.sort_unstable();
        assert!(begun.len() >= 4, "{begun:?}");
        assert_eq!(begun.len(), ended.len());
        assert!(
            begun.iter().zip(&ended).all(|(from, to)| from.0 == to.0 && from.1 <= to.1),
            "{begun:?} {ended:?}"
        );
    }
}
