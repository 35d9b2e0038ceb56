//! `syncaudit run --live` in a real terminal: the view while the program runs, what becomes of its output, and every way to end it.
//!
//! Skipped, with a message, where there is no tmux.

use crate::support::{Place, built, json, program};
use crate::tmux::{Tmux, wait_for_end, wait_until};
use std::fs;
use std::path::Path;

/// A terminal in which `syncaudit run --live` has begun to run a program.
fn live(name: &str, place: &Place, program: &str) -> Option<Tmux> {
    let tmux = Tmux::start(name)?;
    tmux.line(&format!("cd {}", place.path().display()));
    tmux.line(&format!(
        "clear; {} run --device emulated --live -- {program}",
        built().join("syncaudit").display()
    ));
    let screen = tmux.wait_for("q quit");
    assert!(screen.contains(" live emulated "), "{screen}");
    Some(tmux)
}

fn output(place: &Place) -> String {
    fs::read_to_string(place.trace().join("output.txt")).expect("the output was kept")
}

fn open_for_a_moment(fifo: &Path) {
    fs::write(fifo, "x").expect("somebody reads");
}

#[test]
fn the_view_follows_the_program_and_then_come_its_output_its_report_and_its_status() {
    let place = Place::new();
    let fifo = place.fifo("pause");
    let up = place.fifo("pause.up");
    place.file(
        "train.sh",
        format!(
            "echo begun; echo trouble >&2; read line || echo no input; {} 8 3 pause={}; echo done; exit 3",
            program("steps").display(),
            fifo.display()
        ),
    );
    let Some(tmux) = live("live-story", &place, "sh train.sh") else { return };
    fs::read(&up).expect("seven steps are done");
    tmux.keys(&["3"]);
    tmux.wait_for("7 steps");
    open_for_a_moment(&fifo);
    let screen = tmux.wait_for("the program ended with exit status 3; q leaves");
    assert!(!screen.contains("begun") && !screen.contains(" live "), "{screen}");
    tmux.wait_for("8 steps");
    tmux.keys(&["q"]);
    assert_eq!(tmux.status(), "3");
    let shown = tmux.history();
    let at = |text: &str| shown.find(text).unwrap_or_else(|| panic!("no '{text}' in\n{shown}"));
    let order = ["begun", "trouble", "no input", "done", "FAIL", "trace kept: syncaudit report"].map(at);
    assert!(order.is_sorted(), "{shown}");
    assert_eq!(output(&place), "begun\ntrouble\nno input\ndone\n");
    tmux.assert_given_back();
}

#[test]
fn leaving_lets_the_program_go_on_with_its_output_on_the_terminal() {
    let place = Place::new();
    let fifo = place.fifo("fifo");
    place.file("train.sh", format!("echo one; cat {}; echo two; exit 4", fifo.display()));
    let Some(tmux) = live("live-leave", &place, "sh train.sh") else { return };
    tmux.keys(&["q"]);
    tmux.wait_until("the output", |screen| screen.contains("one\n") && !screen.contains("q quit"));
    fs::write(&fifo, "in between\n").expect("the program reads");
    assert_eq!(tmux.status(), "4");
    let shown = tmux.history();
    for text in ["one\nin between\ntwo\n", "INCONCLUSIVE"] {
        assert!(shown.contains(text), "{shown}");
    }
    tmux.assert_given_back();
}

#[test]
fn ctrl_c_interrupts_the_program_and_the_third_one_kills_it() {
    let place = Place::new();
    let signals = program("signals").display().to_string();
    let Some(tmux) = live("live-interrupt", &place, &signals) else { return };
    wait_until(|| output(&place) == "ready\n").expect("the program is there");
    tmux.keys(&["C-c"]);
    tmux.wait_for("the program ended with exit status 42");
    tmux.keys(&["q"]);
    assert_eq!(tmux.status(), "42");
    tmux.assert_given_back();

    let place = Place::new();
    let Some(tmux) = live("live-kill", &place, &format!("{signals} stubborn")) else { return };
    wait_until(|| output(&place) == "ready\n").expect("the program is there");
    for times in 1..=2 {
        tmux.keys(&["C-c"]);
        tmux.wait_for(&format!("{} more will kill it", 3 - times));
        // Once each: what the view sends to all is not passed on a second time.
        wait_until(|| output(&place) == format!("ready\n{}", "again\n".repeat(times))).expect("an interrupt");
    }
    tmux.keys(&["C-c"]);
    tmux.wait_for("the program was killed by SIGKILL");
    tmux.keys(&["q"]);
    assert_eq!(tmux.status(), "137");
    assert!(output(&place).starts_with("ready\nagain\nagain\n"));
    tmux.assert_given_back();
}

#[test]
fn a_signal_leaves_the_view_reaches_the_program_and_the_report_comes() {
    let place = Place::new();
    let Some(tmux) = live("live-signal", &place, &program("signals").display().to_string()) else { return };
    wait_until(|| output(&place) == "ready\n").expect("the program is there");
    let command = std::process::Command::new("kill").args(["-TERM", &tmux.child()]).status();
    assert!(command.expect("kill").success());
    assert_eq!(tmux.status(), "55");
    let shown = tmux.history();
    assert!(shown.contains("ready") && shown.contains("INCONCLUSIVE"), "{shown}");
    tmux.assert_given_back();
}

#[test]
fn a_killed_command_loses_neither_trace_nor_output() {
    let place = Place::new();
    let (fifo, up) = (place.fifo("pause"), place.fifo("pause.up"));
    place.file(
        "train.sh",
        format!("echo $$ > pid; {} 6 2 pause={}; echo done", program("steps").display(), fifo.display()),
    );
    let Some(tmux) = live("live-killed", &place, "sh train.sh") else { return };
    fs::read(&up).expect("five steps are done");
    let command = std::process::Command::new("kill").args(["-KILL", &tmux.child()]).status();
    assert!(command.expect("kill").success());
    open_for_a_moment(&fifo);
    wait_for_end(fs::read_to_string(place.path().join("pid")).unwrap().trim());
    assert_eq!(output(&place), "done\n");
    let trace = place.trace();
    let outcome = place.syncaudit([
        "report".as_ref(),
        "--format".as_ref(),
        "json=report.json".as_ref(),
        trace.as_os_str(),
    ]);
    assert_eq!(outcome.status, 1, "{}", outcome.stderr);
    assert_eq!(json(&place.path().join("report.json"))["steps"]["total"], 6);
}

#[test]
fn a_terminal_that_is_closed_ends_the_program_as_ever_and_its_end_is_recorded() {
    let place = Place::new();
    let Some(tmux) = live("live-closed", &place, &program("signals").display().to_string()) else { return };
    wait_until(|| output(&place) == "ready\n").expect("the program is there");
    let command = tmux.child();
    tmux.close();
    wait_for_end(&command);
    // 40 and SIGHUP, which a terminal that is closed sends.
    assert_eq!(json(&place.trace().join("run.json"))["end"]["exit"], 41);
}

#[test]
fn where_stdout_is_no_terminal_the_program_runs_without_the_view() {
    let place = Place::new();
    let steps = program("steps");
    let words = ["run", "--device", "emulated", "--live", "--"].map(std::ffi::OsStr::new);
    let outcome = place.syncaudit(words.into_iter().chain([
        steps.as_os_str(),
        "4".as_ref(),
        "1".as_ref(),
        "stdout=3".as_ref(),
    ]));
    assert_eq!((outcome.status, outcome.stdout.as_slice()), (1, &[0, 1, 2][..]), "{}", outcome.stderr);
    assert!(
        outcome.stderr.contains(
            "stdout is no terminal that the timeline could be drawn on; the program runs without it"
        )
    );
    assert!(outcome.stderr.contains("FAIL"), "{}", outcome.stderr);
    assert!(!place.trace().join("output.txt").exists());
}
