//! The view in a real terminal: tmux types the keys and reads the screen.
//!
//! Skipped, with a message, where there is no tmux. Each test has a tmux server of its own, which ends with it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use syncaudit::view::keys::Keymap;
use syncaudit::view::state::{Part, Row};
use syncaudit::view::{App, Recording, Theme, terminal};
use syncaudit_eventlog::{
    Api, ApiDomain, Call, DomainId, EndReason, LogWriter, Options, Payload, PyStackId, RangeAttributes,
    Record, StackId, ThreadLog, meta,
};

const SYNC: Api = Api { domain: ApiDomain::Driver, cbid: 279 };
/// How long a screen may take to appear; on a machine under load everything takes its time.
const PATIENCE: Duration = Duration::from_secs(30);

/// A terminal of its own.
struct Tmux {
    socket: String,
}

impl Tmux {
    /// `None`, with a message, where there is no tmux.
    fn start(name: &str) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            println!("skipped: there is no tmux here");
            return None;
        }
        let tmux = Self { socket: format!("syncaudit-{name}-{}", std::process::id()) };
        tmux.run(&["-f", "/dev/null", "new-session", "-d", "-s", "t", "-x", "100", "-y", "30", "sh"]);
        // In two parts, so that what was typed is not taken for the prompt.
        tmux.line("PS1='rea''dy> '");
        tmux.wait_for("ready>");
        tmux.line("export LANG=C.UTF-8 LC_ALL=C.UTF-8 TERM=screen-256color; unset NO_COLOR VISUAL EDITOR");
        Some(tmux)
    }

    fn run(&self, arguments: &[&str]) -> String {
        let output = Command::new("tmux")
            .args(["-L", &self.socket])
            .args(arguments)
            .output()
            .expect("tmux can be run");
        assert!(output.status.success(), "tmux {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn keys(&self, keys: &[&str]) {
        self.run(&[&["send-keys", "-t", "t"], keys].concat());
    }

    fn line(&self, text: &str) {
        self.run(&["send-keys", "-t", "t", "-l", text]);
        self.keys(&["Enter"]);
    }

    fn screen(&self) -> String {
        self.run(&["capture-pane", "-p", "-t", "t"])
    }

    /// Until the screen is as wanted; answers it.
    fn wait_until(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let screen = self.screen();
            if wanted(&screen) {
                return screen;
            }
            assert!(begun.elapsed() < PATIENCE, "never saw {what} in\n{screen}");
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    fn wait_for(&self, text: &str) -> String {
        self.wait_until(text, |screen| screen.contains(text))
    }

    /// The terminal is as a shell needs it: what is typed is shown, lines are edited, and the picture is gone.
    fn assert_given_back(&self) {
        // What is typed before the prompt is back may reach neither program.
        self.wait_until("the prompt", |screen| screen.trim_end().ends_with("ready>"));
        self.line("echo $(stty -a | tr ' ;' '\\n\\n' | grep -cxE 'icanon|echo')-of-two");
        let screen = self.wait_for("2-of-two");
        assert!(!screen.contains("whole run"), "{screen}");
        assert_eq!(self.run(&["display-message", "-p", "-t", "t", "#{alternate_on}"]).trim(), "0");
        assert_eq!(self.run(&["display-message", "-p", "-t", "t", "#{cursor_flag}"]).trim(), "1");
        assert_eq!(self.run(&["display-message", "-p", "-t", "t", "#{mouse_any_flag}"]).trim(), "0");
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        drop(Command::new("tmux").args(["-L", &self.socket, "kill-server"]).output());
    }
}

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

fn view(path: &Path) -> String {
    format!("clear; {} view {}", env!("CARGO_BIN_EXE_syncaudit"), path.display())
}

#[test]
fn a_stranger_gets_from_the_worst_step_to_site_and_previous_step_in_ten_keys() {
    let Some(tmux) = Tmux::start("story") else { return };
    let directory = tempfile::tempdir().unwrap();
    let log = recorded(directory.path());
    tmux.line("echo before");
    tmux.line(&view(&log).replace("clear; ", ""));
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
    tmux.line(&view(&recorded(directory.path())));
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
        tmux.line(&view(&log));
        tmux.wait_for("q quit");
        tmux.keys(&["m"]);
        tmux.wait_for("mouse on");
        let pid = tmux.run(&["display-message", "-p", "-t", "t", "#{pane_pid}"]);
        let child = Command::new("pgrep").args(["-P", pid.trim()]).output().expect("pgrep");
        let child = String::from_utf8_lossy(&child.stdout).trim().to_owned();
        assert!(Command::new("kill").args([&format!("-{signal}"), &child]).status().expect("kill").success());
        tmux.wait_until("the prompt", |screen| screen.trim_end().ends_with("ready>"));
        tmux.line("echo status=$?");
        tmux.wait_for(&format!("status={status}"));
        tmux.assert_given_back();
    }
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
    drop(terminal::run(&mut app, Theme::default(), None));
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
    tmux.line(&view(writer.path()).replace(" view ", " view --follow "));
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
