//! Measures the terminal timeline: `cargo run --release --example view_bench [-- --events N]`.
//!
//! Builds a measured trace in memory (steps of nested ranges, calls, kernels, three waits each), then times what stands between a
//! loaded and audited trace and its first picture, redrawing at every zoom from the whole run down to single calls, and
//! searching. Prints one table. The memory of the view is what is resident beyond the trace and its audit.

use std::time::{Duration, Instant};

use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Rect;
use syncaudit::audit::{AuditOptions, audit};
use syncaudit::model::{CallData, CopyDirection, DeviceOp, DeviceOpKind, PythonFrame, Trace, TraceBuilder};
use syncaudit::view::keys::Keymap;
use syncaudit::view::{App, Recording, Theme, widgets};

const SCREEN: (u16, u16) = (200, 50);

fn main() {
    let mut events: u64 = 10_000_000;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match (argument.as_str(), arguments.next().and_then(|value| value.parse().ok())) {
            ("--events", Some(value)) => events = value,
            _ => {
                eprintln!("usage: view_bench [--events N]");
                std::process::exit(2);
            }
        }
    }
    let (trace, built) = trace(events);
    let audited = audit(&trace, &AuditOptions::default());
    println!(
        "{built} events: {} calls, {} waits, {} steps; screen {}x{}",
        trace.call_count(),
        audited.totals.waits,
        audited.step_counts.total,
        SCREEN.0,
        SCREEN.1
    );
    let model = model_bytes(&trace);
    let before = resident_bytes();
    let begun = Instant::now();
    let mut app = App::new(Recording::new(trace, audited), Keymap::default(), SCREEN);
    let ready = begun.elapsed();
    draw(&app);
    row("first frame", &[begun.elapsed()]);
    row("  of which indexing", &[ready]);
    let extra = resident_bytes().saturating_sub(before);
    println!(
        "memory: trace model {:.1} MB, view {:.1} MB more ({:.2}x in all)",
        model as f64 / 1e6,
        extra as f64 / 1e6,
        (model + extra) as f64 / model as f64
    );

    press(&mut app, '0');
    let mut all = Vec::new();
    loop {
        let window = app.window;
        all.push(timed(|| draw(&app)));
        press(&mut app, '+');
        if app.window == window {
            break;
        }
    }
    println!("{} zooms from the whole run to {} ns on the screen", all.len(), app.window.len);
    row("redraw, any zoom", &all);
    press(&mut app, '0');
    let mut keys = Vec::new();
    for key in ['w', '+', '+', '>', ']', '-', 'w', '['] {
        keys.push(timed(|| {
            press(&mut app, key);
            draw(&app);
        }));
    }
    row("key and redraw", &keys);
    for view in ['2', '3'] {
        press(&mut app, view);
        row(if view == '2' { "redraw sites" } else { "redraw steps" }, &[timed(|| draw(&app))]);
    }
    press(&mut app, '1');
    for word in ["layer 7", "read_loss", "cuStreamSynchronize", "nowhere to be found"] {
        press(&mut app, 'g');
        press(&mut app, '/');
        word.chars().for_each(|c| press(&mut app, c));
        let time = timed(|| {
            app.key(KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE));
        });
        row(&format!("search '{word}' ({})", app.hits.total()), &[time]);
    }
}

fn press(app: &mut App, key: char) {
    app.key(KeyEvent::new(KeyCode::Char(key), KeyModifiers::NONE));
}

fn draw(app: &App) {
    let area = Rect::new(0, 0, SCREEN.0, SCREEN.1);
    let mut buffer = Buffer::empty(area);
    widgets::draw(app, Theme::default(), area, &mut buffer);
    std::hint::black_box(&buffer);
}

fn timed(work: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    work();
    begun.elapsed()
}

fn row(name: &str, times: &[Duration]) {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    println!(
        "{name:<36} median {:>9.2} ms   worst {:>9.2} ms",
        ms(sorted[sorted.len() / 2]),
        ms(sorted[sorted.len() - 1])
    );
}

/// Steps of 12 layers with a range, six launches and their kernels each, and three reads; two threads take turns.
fn trace(events: u64) -> (Trace, u64) {
    let mut builder = TraceBuilder::default();
    let file = builder.intern("train.py");
    let function = builder.intern("read_loss");
    let place = builder.python.intern(&[PythonFrame { file, function, line: 31 }]);
    let kernel = builder.intern("gemm");
    let launch = builder.api("cuLaunchKernel");
    let (copy, sync) = (builder.api("cuMemcpyDtoHAsync_v2"), builder.api("cuStreamSynchronize"));
    let layers: Vec<_> = (0..12).map(|layer| builder.intern(&format!("layer {layer}"))).collect();
    let none = syncaudit::model::StrId::NONE;
    let mut process = builder.process(1);
    let stream = process.stream(0x70, Some(7), 0);
    let (mut now, mut made, mut correlation, mut step) = (0u64, 0u64, 0u32, 0);
    while made < events {
        let tid = 1 + (step % 2);
        let mut thread = process.thread(1);
        thread.push(now, "step", Some(i64::try_from(step).unwrap_or(i64::MAX)));
        let first = correlation;
        let begun = now;
        let mut thread = process.thread(tid);
        for (layer, &name) in layers.iter().enumerate() {
            now += 500;
            thread.push_in(now, none, name, None);
            for _ in 0..6 {
                correlation += 1;
                now += 2_000;
                thread.call_of(
                    launch,
                    now,
                    now + 1_500,
                    CallData { correlation, stream, ..CallData::default() },
                );
            }
            if layer % 4 == 3 {
                correlation += 1;
                let data = CallData {
                    correlation,
                    stream,
                    python: place,
                    direction: CopyDirection::DeviceToHost,
                    ..CallData::default()
                };
                thread.call_of(copy, now + 2_000, now + 4_000, data.clone());
                thread.call_of(sync, now + 4_500, now + 150_000, CallData { correlation: 0, ..data });
                now += 151_000;
                made += 3;
            }
            now += 2_000;
            thread.pop_in(now, none);
            made += 13;
        }
        for (at, id) in (0..).zip(first + 1..=correlation) {
            let start_ns = begun + 3_000 + at * 8_000;
            process.device_op(DeviceOp {
                start_ns,
                end_ns: start_ns + 7_000,
                name: kernel,
                correlation: id,
                stream,
                kind: DeviceOpKind::Kernel,
                ..DeviceOp::default()
            });
        }
        now += 1_000;
        process.thread(1).pop(now);
        now += 1_000;
        made += 1;
        step += 1;
    }
    (builder.finish(), made)
}

/// What the arrays of the model take.
fn model_bytes(trace: &Trace) -> u64 {
    let mut bytes = 0;
    for process in &trace.processes {
        bytes += size_of_val(process.device_ops.as_slice());
        for thread in &process.threads {
            bytes += size_of_val(thread.calls.as_slice()) + size_of_val(thread.spans.as_slice());
        }
    }
    bytes as u64
}

/// 0 where the system doesn't say.
fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}
