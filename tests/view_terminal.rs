//! The view in a real terminal. Skipped, with a message, where there is no tmux.

mod tmux;

use std::path::{Path, PathBuf};
use std::process::Command;

use syncaudit::view::keys::Keymap;
use syncaudit::view::state::{Part, Row};
use syncaudit::view::{App, Recording, Theme, terminal};
use syncaudit_eventlog::{
    Api, ApiDomain, Call, DomainId, EndReason, LogWriter, Options, Payload, PyStackId, RangeAttributes,
    Record, StackId, ThreadLog, meta,
};
use tmux::{Tmux, wait_for_end, wait_until};

const SYNC: Api = Api { domain: ApiDomain::Driver, cbid: 279 };
/// Writes steps as the tracer would: each with `waits` synchronises in a range of its own.
struct Program<'w> {
    log: ThreadLog<'w>,
    now: u64,
    step: u64,
}

impl<'w> Program<'w> {
    fn start(writer: &'w LogWriter) -> Self {
        let mut log = writer.thread();
        log.write(&Record::Meta { key: meta::PROGRAM, value: b"train\0" });
        log.write(&Record::Meta { key: meta::EMULATED, value: b"0" });
        log.api_name(SYNC, || b"cuStreamSynchronize");
        Self { log, now: 1_000_000, step: 0 }
    }

    fn step(&mut self, waits: usize) {
        let name = self.log.str(b"step");
        self.push(name, Payload::U64(self.step));
        for what in ["loss", "accuracy", "gradient norm"].iter().take(waits) {
            let range = self.log.str(format!("read {what}").as_bytes());
            self.push(range, Payload::None);
            self.now += 10_000;
            self.log.write(&Record::Call(Call {
                enter_ns: self.now,
                exit_ns: self.now + 200_000,
                api: SYNC,
                correlation: 0,
                result: 0,
                copy_kind: 0,
                stream: 7,
                bytes: 0,
                object: 0,
                stack: StackId::NONE,
                py_stack: PyStackId::NONE,
                nested_calls: 0,
                nested_cbid: 0,
            }));
            self.now += 210_000;
            self.pop();
        }
        self.now += 100_000;
        self.pop();
        self.step += 1;
    }

    fn push(&mut self, name: syncaudit_eventlog::StrId, payload: Payload) {
        let attributes = RangeAttributes { name, payload, ..Default::default() };
        self.log.write(&Record::RangePush { t_ns: self.now, attributes });
    }

    fn pop(&mut self) {
        self.log.write(&Record::RangePop { t_ns: self.now, domain: DomainId::NONE });
    }
}

/// Eight steps with two waits, one of which has three.
fn recorded(directory: &Path) -> PathBuf {
    let writer = LogWriter::create(directory, Options::default()).expect("a log");
    let mut program = Program::start(&writer);
    for step in 0..8 {
        program.step(if step == 5 { 3 } else { 2 });
    }
    program.log.end(EndReason::Exit, 0);
    drop(program);
    let path = writer.path().to_owned();
    drop(writer);
    path
}

/// A profiler's trace of four steps that read at line 3 of a file.
fn profiled(source: &Path) -> String {
    let source = source.display();
    let event = |category: &str, name: &str, start: u64, duration: u64, args: &str| {
        format!(
            r#"{{"ph": "X", "cat": "{category}", "name": "{name}", "pid": 7, "tid": 7, "ts": {start}, "dur": {duration}, "args": {{{args}}}}}"#
        )
    };
    let steps = (1..=4u64).flat_map(|step| {
        let (at, copy, sync) = (1000 * step, step * 2 + 1, step * 2 + 2);
        let stack = format!(r#""Call stack": "{source}(3): train;{source}(1): <module>""#);
        [
            event("user_annotation", &format!("ProfilerStep#{step}"), at, 900, ""),
            event("cpu_op", "aten::item", at + 100, 500, &stack),
            event(
                "cuda_runtime",
                "cudaMemcpyAsync",
                at + 110,
                80,
                &format!(r#""cbid": 41, "correlation": {copy}"#),
            ),
            event(
                "cuda_runtime",
                "cudaStreamSynchronize",
                at + 200,
                300,
                &format!(r#""correlation": {sync}"#),
            ),
            event(
                "gpu_memcpy",
                "Memcpy DtoH (Device -> Pageable)",
                at + 180,
                2,
                &format!(r#""device": 0, "stream": 7, "correlation": {copy}, "bytes": 4"#),
            ),
        ]
    });
    format!("{{\"schemaVersion\": 1, \"traceEvents\": [\n{}\n]}}\n", steps.collect::<Vec<_>>().join(",\n"))
}

fn view_of(path: &Path) -> String {
    format!("clear; {} view {}", env!("CARGO_BIN_EXE_syncaudit"), path.display())
}

#[test]
fn a_stranger_gets_from_the_worst_step_to_site_and_previous_step_in_ten_keys() {
    let Some(tmux) = Tmux::start("story") else { return };
    let directory = tempfile::tempdir().unwrap();
    let log = recorded(directory.path());
    tmux.line("echo before");
    tmux.line(&view_of(&log).replace("clear; ", ""));
    // No key: the most expensive wait of the worst step, and what to do about it.
    let screen = tmux.wait_for("fix  ");
    assert!(screen.contains("5: 3 waits (over)") && screen.contains("S stream-sync"), "{screen}");
    // One key: the step before.
    tmux.keys(&["["]);
    tmux.wait_for("4: 2 waits (over)");
    // The next ones: the wait's site, its other occurrences, the last one in the timeline.
    tmux.keys(&["Enter"]);
    tmux.wait_for("8 occurrences");
    tmux.keys(&["G", "Enter"]);
    tmux.wait_for("7: 2 waits (over)");
    tmux.keys(&["q"]);
    tmux.wait_until("the shell", |screen| screen.contains("before") && !screen.contains("whole run"));
    tmux.assert_given_back();
}

#[test]
fn the_picture_follows_the_size_of_the_terminal() {
    let Some(tmux) = Tmux::start("resize") else { return };
    let directory = tempfile::tempdir().unwrap();
    tmux.line(&view_of(&recorded(directory.path())));
    tmux.wait_for("q quit");
    for (width, height) in [(60, 16), (180, 50), (61, 17)] {
        tmux.run(&["resize-window", "-t", "t", "-x", &width.to_string(), "-y", &height.to_string()]);
        tmux.wait_until("the footer in the last line", |screen| {
            let lines: Vec<&str> = screen.lines().collect();
            let rule = lines.iter().any(|line| line.chars().filter(|&c| c == '─').count() == width);
            lines.len() == height && rule && lines[height - 1].contains("q quit")
        });
    }
    tmux.keys(&["q"]);
    tmux.wait_for("ready>");
    tmux.assert_given_back();
}

#[test]
fn a_signal_gives_the_terminal_back_and_is_passed_on() {
    let Some(tmux) = Tmux::start("kill") else { return };
    let directory = tempfile::tempdir().unwrap();
    let log = recorded(directory.path());
    for (signal, status) in [("TERM", 143), ("HUP", 129), ("INT", 130)] {
        tmux.line(&view_of(&log));
        tmux.wait_for("q quit");
        tmux.keys(&["m"]);
        tmux.wait_for("mouse on");
        let child = tmux.child();
        assert!(Command::new("kill").args([&format!("-{signal}"), &child]).status().expect("kill").success());
        assert_eq!(tmux.status(), status.to_string());
        tmux.assert_given_back();
    }
}

#[test]
fn a_terminal_that_is_closed_ends_the_view_with_or_without_a_signal() {
    let directory = tempfile::tempdir().unwrap();
    let log = recorded(directory.path());
    // In a session of its own, nothing tells a process of what becomes of the terminal.
    for session in ["", "setsid "] {
        let Some(tmux) = Tmux::start(&format!("closed{}", session.len())) else { return };
        let pid_file = directory.path().join(format!("pid{}", session.len()));
        tmux.line(&format!(
            "clear; {session}sh -c 'echo $$ > {}; exec {} view {}'",
            pid_file.display(),
            env!("CARGO_BIN_EXE_syncaudit"),
            log.display()
        ));
        tmux.wait_for("q quit");
        tmux.close();
        wait_for_end(std::fs::read_to_string(&pid_file).unwrap().trim());
    }
}

#[test]
fn where_there_is_no_terminal_it_says_so_and_prints_the_report() {
    let directory = tempfile::tempdir().unwrap();
    let log = recorded(directory.path());
    let run = |word: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_syncaudit"));
        command.current_dir(&directory).env_remove("NO_COLOR").arg(word).arg(&log).output().unwrap()
    };
    let (view, report) = (run("view"), run("report"));
    assert_eq!(String::from_utf8(view.stdout).unwrap(), String::from_utf8(report.stdout).unwrap());
    let said = String::from_utf8(view.stderr).unwrap();
    assert!(said.contains("stdout is no terminal") && said.contains("here is the report instead"), "{said}");
    assert_eq!(
        (view.status.code(), report.status.code()),
        (Some(0), Some(1)),
        "that it is shown is all that is asked"
    );
    // A terminal that can do nothing but show lines.
    let Some(tmux) = Tmux::start("dumb") else { return };
    tmux.line(&view_of(&log).replace("clear; ", "clear; TERM=dumb "));
    tmux.wait_until("the end of the report", |screen| screen.trim_end().ends_with("ready>"));
    let shown = tmux.history();
    assert!(shown.contains("here is the report instead") && shown.contains("totals"), "{shown}");
}

#[test]
fn a_site_is_copied_through_the_terminal_and_the_visible_part_is_saved_beside_it() {
    let Some(tmux) = Tmux::start("copy") else { return };
    let directory = tempfile::tempdir().unwrap();
    let log = recorded(directory.path());
    tmux.run(&["set-option", "-s", "set-clipboard", "on"]);
    tmux.line(&format!("cd {}", directory.path().display()));
    tmux.line(&view_of(&log));
    tmux.wait_for("q quit");
    tmux.keys(&["y", "a"]);
    tmux.wait_for("fill in its reason");
    wait_until(|| !tmux.run(&["list-buffers"]).is_empty()).expect("it is on the clipboard");
    let copied = tmux.run(&["show-buffer"]);
    assert!(copied.contains("[[allow]]\nfingerprint = \"") && copied.contains("reason = \"\""), "{copied}");
    for (key, ending) in [("s", "svg"), ("t", "txt"), ("p", "perfetto-trace")] {
        tmux.keys(&["s", key]);
        tmux.wait_for(&format!("saved syncaudit-view-1.{ending}"));
        let saved = std::fs::read(directory.path().join(format!("syncaudit-view-1.{ending}"))).unwrap();
        let wait = b"stream-sync";
        assert!(saved.windows(wait.len()).any(|part| part == wait), "{ending}");
    }
    tmux.keys(&["q"]);
    tmux.assert_given_back();
}

#[test]
fn the_editor_opens_at_the_line_and_gives_the_screen_back() {
    let Some(tmux) = Tmux::start("editor") else { return };
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("train.py");
    std::fs::write(&source, "line 1\nline 2\nloss.item()\n").unwrap();
    let trace = directory.path().join("trace.json");
    std::fs::write(&trace, profiled(&source)).unwrap();
    let editor = directory.path().join("editor");
    std::fs::write(&editor, "#!/bin/sh\necho edits: \"$@\"\nread key\n").unwrap();
    std::fs::set_permissions(&editor, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    tmux.line(&format!("export EDITOR={}", editor.display()));
    tmux.line(&view_of(&trace));
    tmux.wait_for("q quit");
    tmux.keys(&["e"]);
    tmux.wait_for(&format!("edits: +3 {}", source.display()));
    tmux.keys(&["Enter"]);
    tmux.wait_for("q quit");
    tmux.keys(&["q"]);
    tmux.assert_given_back();
}

/// The other half of the next test: in its terminal, this panics while drawing.
#[test]
fn helper_that_panics_while_drawing() {
    if std::env::var_os("SYNCAUDIT_TEST_PANIC").is_none() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let trace = syncaudit::load_path(&[recorded(directory.path())]).unwrap();
    let audit = syncaudit::audit::audit(&trace, &syncaudit::AuditOptions::default());
    let mut app = App::new(Recording::new(trace, audit), Keymap::default(), terminal::screen().unwrap());
    app.rows = vec![Row { lane: 9999, part: Part::Waits }];
    drop(terminal::run(app, Theme::default(), None));
}

#[test]
fn a_panic_gives_the_terminal_back_and_is_told() {
    let Some(tmux) = Tmux::start("panic") else { return };
    let this = std::env::current_exe().unwrap();
    tmux.line(&format!(
        "clear; SYNCAUDIT_TEST_PANIC=1 {} --exact helper_that_panics_while_drawing --nocapture 2>&1 | cat; echo done",
        this.display()
    ));
    // Its stdout is a pipe here, so that what it says can be read; the escapes go the same way.
    tmux.wait_for("index out of bounds");
    tmux.wait_for("done");
    tmux.assert_given_back();
}

#[test]
fn a_log_that_grows_is_followed() {
    let Some(tmux) = Tmux::start("follow") else { return };
    let directory = tempfile::tempdir().unwrap();
    let writer = LogWriter::create(directory.path(), Options::default()).expect("a log");
    let mut program = Program::start(&writer);
    (0..4).for_each(|_| program.step(2));
    tmux.line(&view_of(writer.path()).replace(" view ", " view --follow "));
    let screen = tmux.wait_for("q quit");
    assert!(screen.contains("live"), "{screen}");
    tmux.keys(&["3"]);
    tmux.wait_for("4 steps");
    (0..5).for_each(|_| program.step(3));
    tmux.wait_for("9 steps");
    tmux.keys(&["q"]);
    tmux.wait_for("ready>");
    tmux.assert_given_back();
}
