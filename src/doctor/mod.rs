//! What works on this machine, proved rather than guessed.
//!
//! In: this machine. Out: one line per check, and exit 0 if everything that matters works, 2 otherwise. [`machine`] looks,
//! and only looks: CUPTI 13.2 without a driver crashes when it is so much as asked for its version. [`control`] causes
//! one wait and must find it; [`probe`] is the program that it traces.

mod control;
mod machine;
pub mod probe;

use crate::cli::{DoctorArgs, Format, Sink};
use crate::outputs;
use crate::run::device::{self, Chosen, Driver};
use crate::trouble::Trouble;
use anstyle::{AnsiColor, Style};
use serde_json::json;
use syncaudit::exit;
use syncaudit::report::TextStyle;

/// The answer to one question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What it is about; several answers may share one.
    name: &'static str,
    status: Status,
    found: String,
    /// What to do about it; empty when there is nothing to do.
    todo: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Ok,
    /// Worth knowing, in nobody's way.
    Note,
    /// Keeps tracing from working.
    Problem,
}

impl Status {
    fn id(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Note => "note",
            Status::Problem => "problem",
        }
    }

    fn color(self) -> AnsiColor {
        match self {
            Status::Ok => AnsiColor::Green,
            Status::Note => AnsiColor::Yellow,
            Status::Problem => AnsiColor::Red,
        }
    }
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Check {
        Check { name, status: Status::Ok, found: found.into(), todo: String::new() }
    }

    fn note(name: &'static str, found: impl Into<String>, todo: impl Into<String>) -> Check {
        Check { name, status: Status::Note, found: found.into(), todo: todo.into() }
    }

    fn problem(name: &'static str, found: impl Into<String>, todo: impl Into<String>) -> Check {
        Check { name, status: Status::Problem, found: found.into(), todo: todo.into() }
    }
}

pub fn doctor(args: DoctorArgs) -> Result<u8, Trouble> {
    if let Some(other) =
        args.output.format.iter().find(|asked| !matches!(asked.format, Format::Text | Format::Json))
    {
        return Err(Trouble::new(
            format!("write what works as {}", other.format.id()),
            "`doctor` has no findings to show in that format",
            "take --format text or --format json",
        ));
    }
    let outputs = outputs(&args.output, Sink::Stdout)?;
    let driver = Driver::look();
    let (device, _) = device::choose(args.device, &driver)?;
    let mut checks = machine::checks(device, &driver);
    let cupti = match device {
        Chosen::Cuda => machine::cupti_libraries().into_iter().next(),
        Chosen::Emulated => None,
    };
    checks.extend(control::checks(args.device, cupti.as_deref()));
    let works = checks.iter().all(|check| check.status != Status::Problem);
    outputs.write(|format, style| match format {
        Format::Json => json(&checks, device, works),
        _ => text(&checks, device, works, style),
    })?;
    Ok(if works { exit::PASS } else { exit::INCONCLUSIVE })
}

fn text(checks: &[Check], device: Chosen, works: bool, style: TextStyle) -> String {
    let paint = |status: Status, text: &str| {
        let style = if style.color {
            Style::new().fg_color(Some(status.color().into())).bold()
        } else {
            Style::new()
        };
        format!("{style}{text}{style:#}")
    };
    let mut text = String::new();
    for check in checks {
        let status = paint(check.status, &format!("{:<9}", check.status.id()));
        text += &format!("{status}{:<12}{}\n", check.name, check.found);
        if !check.todo.is_empty() {
            text += &format!("{:21}-> {}\n", "", check.todo);
        }
    }
    text += "\n";
    text += &match (works, device) {
        (true, Chosen::Cuda) => paint(Status::Ok, "Tracing works on this machine."),
        (true, Chosen::Emulated) => {
            paint(Status::Ok, "Tracing works on this machine, on the emulated device")
                + ": counts and places of waits are real, times are not."
        }
        (false, _) => {
            paint(Status::Problem, "Tracing does not work on this machine") + ": see `problem` above."
        }
    };
    text + "\n"
}

fn json(checks: &[Check], device: Chosen, works: bool) -> String {
    let checks: Vec<_> = checks
        .iter()
        .map(|check| {
            json!({"name": check.name, "status": check.status.id(), "found": check.found, "todo": check.todo})
        })
        .collect();
    let report =
        json!({"schema": "syncaudit.doctor/1", "device": device.name(), "works": works, "checks": checks});
    format!("{report:#}\n")
}
