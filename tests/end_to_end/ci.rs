//! The examples in `ci/` do what they say: their own shell steps are run, without the hosts they are for.

use crate::support::{Outcome, Place, built};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("ci")
}

fn read(name: &str) -> String {
    fs::read_to_string(folder().join(name)).unwrap_or_else(|error| panic!("ci/{name}: {error}"))
}

/// The scripts of the `run: |` blocks of an action, in order.
fn scripts(action: &str) -> Vec<String> {
    let mut scripts = Vec::new();
    let mut lines = action.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(indent) = line.find("run: |") else { continue };
        let mut script = String::new();
        let is_inside = |line: &&str| line.trim().is_empty() || line.len() - line.trim_start().len() > indent;
        while let Some(line) = lines.next_if(is_inside) {
            script.push_str(line.trim());
            script.push('\n');
        }
        scripts.push(script);
    }
    scripts
}

/// The items of `script:` of the job.
fn gitlab_scripts(text: &str) -> Vec<String> {
    let inside = text.lines().skip_while(|line| line.trim() != "script:").skip(1);
    inside.map_while(|line| line.trim().strip_prefix("- ").map(str::to_owned)).collect()
}

/// A project that trains with these waits: its checkout, with a baseline of the default.
fn project() -> Place {
    let place = Place::new();
    let outcome = Outcome::of(
        shell(&place, &format!("sh '{}'", folder().join("gate.sh").display()), "none").output().unwrap(),
    );
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    let words = ["baseline", ".syncaudit/ci/run-1", "-o", "syncaudit.baseline"];
    assert_eq!(place.syncaudit(words).status, 0);
    place
}

fn training(waits: &str) -> String {
    format!("'{}' --steps 8 --log-every 4 --waits {waits}", built().join("dflash-train").display())
}

/// A shell as a CI host starts it: the command on PATH, what to train in the environment.
fn shell(place: &Place, script: &str, waits: &str) -> Command {
    let mut command = place.clean("sh");
    let path = std::env::var("PATH").unwrap_or_default();
    command.args(["-e", "-c", script]).env("PATH", format!("{}:{path}", built().display()));
    command.env_remove("GITHUB_ACTIONS").env_remove("GITHUB_STEP_SUMMARY");
    command.env("SYNCAUDIT_COMMAND", training(waits)).env("SYNCAUDIT_DEVICE", "emulated");
    command
}

#[test]
fn the_github_action_annotates_what_is_new_and_passes_what_is_known() {
    let place = project();
    let [_, check] = &scripts(&read("github/action.yml"))[..] else { panic!("two steps") };
    let run = |waits: &str| {
        let mut command = shell(&place, check, waits);
        command.env("GITHUB_ACTION_PATH", folder().join("github")).env("GITHUB_ACTIONS", "true");
        command.env("GITHUB_STEP_SUMMARY", place.path().join("summary.md"));
        command.env("SYNCAUDIT_BASELINE", "syncaudit.baseline").env("SYNCAUDIT_RUNS", "2");
        Outcome::of(command.output().unwrap())
    };
    let outcome = run("none");
    assert_eq!(outcome.status, 0, "{}{}", outcome.text(), outcome.stderr);
    let outcome = run("anchors");
    assert_eq!(outcome.status, 1, "{}{}", outcome.text(), outcome.stderr);
    let text = outcome.text();
    let annotation =
        text.lines().find(|line| line.starts_with("::error file=")).unwrap_or_else(|| panic!("{text}"));
    assert!(
        annotation.contains("reference/src/waits/anchors.rs") && annotation.contains("line="),
        "{annotation}"
    );
    let summary = fs::read_to_string(place.path().join("summary.md")).unwrap();
    assert!(summary.contains("anchors.rs"), "{summary}");
}

/// What a newcomer does by hand, and what may be typed in a shell: with variables, after `cd`.
#[test]
fn the_gate_takes_a_baseline_made_by_hand_and_a_command_as_typed_in_a_shell() {
    let place = Place::new();
    let trainer = built().join("dflash-train");
    let words = ["run", "--device", "emulated", "--trace", "by-hand", "--"].map(std::ffi::OsStr::new);
    let training_words = ["--steps", "8", "--log-every", "4"].map(std::ffi::OsStr::new);
    let outcome = place.syncaudit(words.iter().chain(&[trainer.as_os_str()]).chain(&training_words));
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    assert_eq!(place.syncaudit(["baseline", "by-hand", "-o", "syncaudit.baseline"]).status, 0);
    let gate = format!("sh '{}'", folder().join("gate.sh").display());
    let run = |program: String| {
        let mut command = shell(&place, &gate, "none");
        command.env("SYNCAUDIT_COMMAND", program).env("SYNCAUDIT_BASELINE", "syncaudit.baseline");
        Outcome::of(command.output().unwrap())
    };
    for (program, status) in [
        (training("none"), 0),
        (training("anchors"), 1),
        (format!("A=1 {}", training("none")), 0),
        (format!("cd / && {}", training("anchors")), 1),
    ] {
        let outcome = run(program.clone());
        assert_eq!(outcome.status, status, "{program}: {}{}", outcome.text(), outcome.stderr);
    }
    assert!(place.path().join(".syncaudit/ci/check.json").exists());
    assert_eq!(run("false".to_owned()).status, 2);
    assert!(!place.path().join(".syncaudit/ci/check.json").exists(), "that was the check before");
}

#[test]
fn the_github_action_passes_all_of_its_inputs_on_and_builds_what_it_needs() {
    let action = read("github/action.yml");
    let (declared, used) = action.split_once("\nruns:\n").expect("inputs, then steps");
    for input in declared.split_once("\ninputs:\n").expect("inputs").1.lines() {
        let name = input
            .strip_prefix("  ")
            .filter(|name| !name.starts_with(' '))
            .and_then(|name| name.strip_suffix(':'));
        if let Some(name) = name {
            assert!(used.contains(&format!("inputs.{name}")), "{name} does something");
        }
    }
    // A cargo that says what it is asked for: the build itself is what all other tests are made of.
    let place = Place::new();
    fs::create_dir(place.path().join("bin")).unwrap();
    let cargo = place.file("bin/cargo", "#!/bin/sh\necho \"$@\" > asked\n");
    let mut permissions = fs::metadata(&cargo).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o755);
    fs::set_permissions(&cargo, permissions).unwrap();
    let mut command = shell(&place, &scripts(&action)[0], "none");
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", place.path().join("bin").display()));
    command.env("GITHUB_ACTION_PATH", folder().join("github")).env("GITHUB_PATH", place.path().join("path"));
    let outcome = Outcome::of(command.output().unwrap());
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    let asked = fs::read_to_string(place.path().join("asked")).unwrap();
    for package in ["syncaudit", "syncaudit-tracer", "syncaudit-emulator"] {
        assert!(asked.contains(&format!("-p {package}")), "{asked}");
    }
    let on_path = fs::read_to_string(place.path().join("path")).unwrap();
    assert_eq!(on_path.trim(), format!("{}/target/release", env!("CARGO_MANIFEST_DIR")));
}

#[test]
fn the_gitlab_job_leaves_a_junit_report_and_the_exit_status() {
    let place = project();
    let text = read("gitlab.yml");
    let scripts = gitlab_scripts(&text);
    assert_eq!(scripts.len(), 1, "{text}");
    for (waits, status) in [("none", 0), ("metrics", 1)] {
        let mut command = shell(&place, &scripts[0], waits);
        command.env("SYNCAUDIT_SOURCES", env!("CARGO_MANIFEST_DIR")).env("SYNCAUDIT_OUT", "syncaudit-report");
        command.env("SYNCAUDIT_BASELINE", "syncaudit.baseline");
        let outcome = Outcome::of(command.output().unwrap());
        assert_eq!(outcome.status, status, "{}{}", outcome.text(), outcome.stderr);
        assert!(place.path().join("syncaudit-report/check.xml").exists());
    }
}

#[test]
fn the_hook_stops_a_push_that_adds_a_wait_and_a_program_that_fails_is_no_pass() {
    let place = project();
    place.file("syncaudit.toml", "[check]\nbaseline = \"syncaudit.baseline\"\n");
    let git =
        |words: &[&str]| assert!(place.clean("git").args(words).status().unwrap().success(), "{words:?}");
    git(&["init", "--quiet"]);
    let hook = format!("sh '{}'", folder().join("pre-push").display());
    let push =
        || Outcome::of(shell(&place, &hook, "ignored").env_remove("SYNCAUDIT_COMMAND").output().unwrap());
    let outcome = push();
    assert_eq!(outcome.status, 0);
    assert!(outcome.stderr.contains("nothing was checked"), "{}", outcome.stderr);
    git(&["config", "syncaudit.gate", &folder().join("gate.sh").to_string_lossy()]);
    for (program, status, said) in [
        (training("none"), 0, ""),
        (training("anchors"), 1, "nobody accepted"),
        ("false".to_owned(), 2, "the run itself failed"),
    ] {
        git(&["config", "syncaudit.command", &program]);
        let outcome = push();
        assert_eq!(outcome.status, status, "{}", outcome.stderr);
        assert!(outcome.stderr.contains(said), "{}", outcome.stderr);
    }
}
