//! How fast profiler traces are read, as ratios against other readers in one run.
//!
//! In: a recorded trace to repeat (`--source`, default the largest HTA trace of the shared folder) and a size in megabytes. It
//! writes a trace of that size under `target/`, reads it with our importer (plain and gzip), then with `orjson.loads` and
//! with HolisticTraceAnalysis where `--python` names an interpreter that has them. Each reader runs in a process of its own, so
//! that its peak memory is its own. Out: a table with the best of `--rounds` rounds (default 3) of each. User CPU time is what to compare on
//! a machine that others use too.
//!
//! ```text
//! cargo run --release --example kineto_bench -- --size 250 --python target/bench-venv/bin/python
//! ```

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (mut size_mb, mut source, mut python, mut reference) = (250u64, None, None, false);
    let mut rounds = 3u32;
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--size" => size_mb = value()?.parse()?,
            "--rounds" => rounds = value()?.parse::<u32>()?.max(1),
            "--source" => source = Some(PathBuf::from(value()?)),
            "--python" => python = Some(PathBuf::from(value()?)),
            "--hta" => reference = true,
            "--only-import" => return import(Path::new(&value()?)),
            _ => return Err(format!("unknown argument {argument}; see the top of this file").into()),
        }
    }
    let shared =
        std::env::var_os("SYNCAUDIT_SHARED").map_or_else(|| PathBuf::from("../shared"), PathBuf::from);
    let source = source.unwrap_or_else(|| shared.join("traces/hta_control.json.gz"));
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/kineto-bench");
    std::fs::create_dir_all(&folder)?;
    let plain = folder.join(format!("repeated-{size_mb}.json"));
    if !plain.is_file() {
        repeat(&source, &plain, size_mb << 20)?;
    }
    let packed = plain.with_extension("json.gz");
    if !packed.is_file() {
        let mut encoder =
            flate2::write::GzEncoder::new(std::fs::File::create(&packed)?, flate2::Compression::new(6));
        std::io::copy(&mut std::fs::File::open(&plain)?, &mut encoder)?;
        encoder.finish()?;
    }
    let megabytes = std::fs::metadata(&plain)?.len() as f64 / 1e6;

    let own = std::env::current_exe()?;
    let command = |program: &Path, arguments: &[&str], file: &Path| {
        let mut command = Command::new(program);
        command.args(arguments).arg(file).stdout(std::process::Stdio::null());
        command
    };
    import(&plain)?;
    let mut readers = vec![
        ("syncaudit, plain", command(&own, &["--only-import"], &plain)),
        ("syncaudit, gzip", command(&own, &["--only-import"], &packed)),
        ("unpacking the gzip alone", command(Path::new("gzip"), &["-dc"], &packed)),
    ];
    if let Some(python) = python {
        let orjson =
            "import orjson,sys; print(len(orjson.loads(open(sys.argv[1],'rb').read())['traceEvents']))";
        readers.push(("orjson.loads", command(&python, &["-c", orjson], &plain)));
        if reference {
            let hta = "import sys; from hta.common.trace_parser import parse_trace_dataframe as p; from hta.configs.parser_config import ParserConfig as c; print(len(p(sys.argv[1], c.get_default_cfg())[1]))";
            readers.push(("HolisticTraceAnalysis", command(&python, &["-c", hta], &plain)));
        }
    }
    // In turns, so that whatever else the machine does falls on all of them.
    let mut rows: Vec<Row> = Vec::new();
    for round in 0..rounds {
        for (index, (name, command)) in readers.iter_mut().enumerate() {
            let row = measure(name, command)?;
            match rows.get_mut(index) {
                Some(best) if row.user_s < best.user_s => *best = row,
                Some(_) => {}
                None => rows.push(row),
            }
        }
        eprintln!("round {} of {rounds} is done", round + 1);
    }
    let first = rows[0].user_s;
    let mut table = String::new();
    writeln!(table, "{megabytes:.0} MB of text from {}, best of {rounds}", source.display())?;
    writeln!(table, "| reader | user CPU s | wall s | MB/s (CPU) | peak memory / text | CPU, ours = 1 |")?;
    writeln!(table, "|---|---|---|---|---|---|")?;
    for row in &rows {
        writeln!(
            table,
            "| {} | {:.2} | {:.2} | {:.0} | {:.2} | {:.1} |",
            row.name,
            row.user_s,
            row.wall_s,
            megabytes / row.user_s,
            row.peak_mb / megabytes,
            row.user_s / first
        )?;
    }
    print!("{table}");
    Ok(())
}

/// Reads one trace and prints what came of it.
fn import(path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let start = Instant::now();
    let trace = syncaudit::load_path(&[path.to_owned()])?;
    let read_s = start.elapsed().as_secs_f64();
    let spans: usize = trace.processes.iter().flat_map(|p| &p.threads).map(|thread| thread.spans.len()).sum();
    let device_ops: usize = trace.processes.iter().map(|process| process.device_ops.len()).sum();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kept = status.lines().find(|line| line.starts_with("RssAnon")).unwrap_or_default().to_owned();
    let start = Instant::now();
    let audit = syncaudit::audit::audit(&trace, &syncaudit::AuditOptions::default());
    println!(
        "{spans} spans, {} calls, {device_ops} device operations, {} waits; read in {read_s:.2} s, audited in {:.2} s; {kept}",
        trace.call_count(),
        audit.totals.waits,
        start.elapsed().as_secs_f64()
    );
    for problem in &trace.problems {
        println!("{problem:?}");
    }
    Ok(())
}

struct Row {
    name: &'static str,
    user_s: f64,
    wall_s: f64,
    peak_mb: f64,
}

/// Runs a command under `/usr/bin/time`-like accounting: its own user time and peak resident memory.
fn measure(name: &'static str, command: &mut Command) -> Result<Row, Box<dyn std::error::Error>> {
    let before = children_user_s()?;
    let start = Instant::now();
    let mut child = command.spawn()?;
    let status_file = format!("/proc/{}/status", child.id());
    let mut peak_kb = 0;
    let status = loop {
        // The high-water mark only grows, so looking now and then is enough; what grows in the last 2 ms is missed.
        if let Ok(status) = std::fs::read_to_string(&status_file)
            && let Some(line) = status.lines().find(|line| line.starts_with("VmHWM"))
        {
            peak_kb = line.split_whitespace().nth(1).and_then(|kb| kb.parse().ok()).unwrap_or(peak_kb);
        }
        match child.try_wait()? {
            Some(status) => break status,
            None => std::thread::sleep(std::time::Duration::from_millis(2)),
        }
    };
    let wall_s = start.elapsed().as_secs_f64();
    if !status.success() {
        return Err(format!("{name} failed: {status}").into());
    }
    Ok(Row { name, user_s: children_user_s()? - before, wall_s, peak_mb: f64::from(peak_kb) * 1024.0 / 1e6 })
}

/// User CPU time of all children that have ended, in seconds (field 16 of `/proc/self/stat`, in ticks of 10 ms).
fn children_user_s() -> Result<f64, Box<dyn std::error::Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let after_name = stat.rsplit_once(')').ok_or("no name in /proc/self/stat")?.1;
    Ok(after_name.split_whitespace().nth(13).ok_or("no user time")?.parse::<f64>()? / 100.0)
}

/// Writes a trace that repeats the events of another one, each time later and with other correlation ids.
fn repeat(source: &Path, target: &Path, size: u64) -> Result<(), Box<dyn std::error::Error>> {
    let mut text = Vec::new();
    let packed = std::fs::read(source)?;
    if packed.starts_with(&[0x1f, 0x8b]) {
        flate2::read::MultiGzDecoder::new(packed.as_slice()).read_to_end(&mut text)?;
    } else {
        text = packed;
    }
    let text = String::from_utf8(text)?;
    let key = "\"traceEvents\": [";
    let begin = text.find(key).ok_or("no traceEvents in the source")? + key.len();
    let end = text.rfind(']').ok_or("no end of traceEvents in the source")?;
    let events = &text[begin..end];
    let mut out = std::io::BufWriter::new(std::fs::File::create(target)?);
    out.write_all(&text.as_bytes()[..begin])?;
    let mut written = begin as u64;
    let mut round = 0;
    while written < size {
        if round > 0 {
            out.write_all(b",")?;
        }
        written += shifted(events, round, &mut out)?;
        round += 1;
    }
    out.write_all(&text.as_bytes()[end..])?;
    Ok(out.flush()?)
}

/// Writes the events with times and ids of the `round`-th repetition.
fn shifted(events: &str, round: u64, out: &mut impl Write) -> std::io::Result<u64> {
    let mut written = 0;
    let (mut done, mut from) = (0, 0);
    while let Some(found) = events[from..].find("\": ") {
        let at = from + found + 3;
        from = at;
        let wanted = ["\"ts", "\"correlation", "\"id"].iter().any(|key| events[..at - 3].ends_with(key));
        let digits = events[at..].bytes().take_while(u8::is_ascii_digit).count();
        if !wanted || digits == 0 {
            continue;
        }
        let number = events[at..at + digits].parse::<u64>().unwrap_or(0) + round * 10_000_000;
        let number = number.to_string();
        out.write_all(&events.as_bytes()[done..at])?;
        out.write_all(number.as_bytes())?;
        written += (at - done + number.len()) as u64;
        done = at + digits;
        from = done;
    }
    out.write_all(&events.as_bytes()[done..])?;
    Ok(written + (events.len() - done) as u64)
}
