//! The timeline of a real run: the reference trainer on the emulated device, two ranks of it.

use crate::snapshots::assert_snapshot;
use crate::support::{Place, built};
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Rect;
use std::ffi::OsStr;
use syncaudit::audit::{AuditOptions, audit};
use syncaudit::model::{Span, Trace};
use syncaudit::view::keys::Keymap;
use syncaudit::view::{App, Recording, Theme, save, widgets};

fn trained() -> Trace {
    let place = Place::new();
    let trainer = built().join("dflash-train");
    let rank = |rank: u32| {
        format!(
            "RANK={rank} WORLD_SIZE=2 {} --waits legacy --steps 6 --log-every 4 --metrics {rank}",
            trainer.display()
        )
    };
    // One after the other: two at once would take turns in another order each time.
    let script = format!("{} && {}", rank(0), rank(1));
    let (outcome, _) = place.run(&[], &[OsStr::new("sh"), OsStr::new("-c"), OsStr::new(&script)]);
    assert_eq!(outcome.status, 1, "{}", outcome.stderr);
    let mut trace = syncaudit::load_path(&[place.trace()]).expect("a trace");
    // As typed, it has the path of this machine in it.
    trace.source.program = vec!["dflash-train".to_owned()];
    trace.processes.sort_by_key(|process| process.rank);
    // When the other threads and the device do their work depends on the machine: what is theirs is left out.
    for process in &mut trace.processes {
        process.threads.retain(|thread| thread.tid == process.pid);
        process.device_ops.clear();
    }
    // So is what it does before its first step, which each new kernel makes longer.
    let is_step = |span: &&Span| trace.strings.get(span.name) == "step";
    for process in &mut trace.processes {
        for thread in &mut process.threads {
            let first = thread.spans.iter().find(is_step).expect("steps").start_ns;
            thread.calls.retain(|call| call.start_ns > first);
        }
    }
    trace
}

/// Lines of the trainer's source move with every change to it, and are other tests' business.
fn without_lines(text: &str) -> String {
    let mut parts = text.split(".rs:");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out += ".rs:_";
        out += part.trim_start_matches(|c: char| c.is_ascii_digit());
    }
    out
}

#[test]
fn every_view_of_the_trainer_looks_as_it_did() {
    let trace = trained();
    let found = audit(&trace, &AuditOptions::default());
    found.reconcile().expect("sums agree");
    let mut app = App::new(Recording::new(trace, found), Keymap::default(), (110, 32));
    let mut all = String::new();
    for keys in ["", "[", "0", "\u{1b}w\n", "2", "3", "4", "5", "?"] {
        for key in keys.chars() {
            let code = match key {
                '\n' => KeyCode::Enter,
                '\u{1b}' => KeyCode::Esc,
                key => KeyCode::Char(key),
            };
            app.key(KeyEvent::new(code, KeyModifiers::NONE));
        }
        let area = Rect::new(0, 0, 110, 32);
        let mut buffer = Buffer::empty(area);
        widgets::draw(&app, Theme::default(), area, &mut buffer);
        all += &format!("=== {}\n{}", keys.escape_debug(), without_lines(&save::text(&buffer)));
    }
    assert_snapshot("view-trainer", &all);
}
