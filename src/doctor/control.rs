//! The positive control: causes one known wait under trace and must find exactly that wait.
//!
//! In: a device. Out: checks on what the tracer and the audit made of [`super::probe`]. It goes the way of a user's
//! program: same start, same tracer, same audit. Leaves no trace behind.

use super::{Check, probe};
use crate::cli::Device;
use crate::run::{self, record::StepOptions, trace_dir};
use crate::trouble::Trouble;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use syncaudit::audit::{self, Audit, AuditOptions, WaitKind};
use syncaudit::load_path;

/// `cupti` is handed to the probe, which brings none of its own.
pub fn checks(device: Device, cupti: Option<&Path>) -> Vec<Check> {
    let place = match trace_dir::random_name() {
        Ok(name) => std::env::temp_dir().join(format!("syncaudit-doctor-{name}")),
        Err(error) => {
            return vec![Check::problem("control", error.to_string(), "make /dev/urandom readable")];
        }
    };
    let checks = traced(device, cupti, &place)
        .unwrap_or_else(|trouble| vec![Check::problem("control", trouble.to_string(), "see above")]);
    drop(fs::remove_dir_all(&place));
    checks
}

fn traced(device: Device, cupti: Option<&Path>, place: &Path) -> Result<Vec<Check>, Trouble> {
    let program: [OsString; 2] = [run::own_executable()?.into(), "doctor-probe".into()];
    let recorded = run::run(
        run::Request {
            program: &program,
            device,
            kernel_time: None,
            gpu_timeline: false,
            trace: Some(place),
            steps: StepOptions::default(),
            cupti,
        },
        |_| {},
    )?;
    let todo = "the lines above may say why; if not, report this with the output of `syncaudit --version`";
    let mut checks = Vec::new();
    for problem in recorded.handshakes.iter().flat_map(|handshake| &handshake.problems) {
        checks.push(Check::problem(
            "tracer",
            problem.clone(),
            "docs/environment.md says what the tracer needs",
        ));
    }
    if let Some(handshake) = recorded.handshakes.first() {
        let version = |name: &str, version: &Option<String>| match version {
            Some(version) => format!("{name} {version}"),
            None => format!("no {name}"),
        };
        let (cuda, cupti) = (version("CUDA", &handshake.cuda), version("CUPTI", &handshake.cupti));
        checks.push(Check::ok("tracer", format!("loaded into the probe; {cuda}, {cupti}")));
    }
    for problem in &recorded.problems {
        checks.push(Check::problem("tracer", problem.text.clone(), todo));
    }
    if !recorded.end.succeeded() {
        checks.push(Check::problem("control", format!("the probe {}", recorded.end.clause()), todo));
        return Ok(checks);
    }
    let trace = load_path(std::slice::from_ref(&recorded.trace))
        .map_err(|error| Trouble::new("read the trace of the probe", error.to_string(), todo))?;
    checks.extend(judged(&audit::audit(&trace, &AuditOptions::default())));
    Ok(checks)
}

/// What the audit of the probe must say.
fn judged(audit: &Audit) -> Vec<Check> {
    let mut checks = Vec::new();
    let steps = audit.step_counts.total;
    let found = format!("{steps} of {} ranges named `step` were seen", probe::STEPS);
    checks.push(if steps == probe::STEPS as usize {
        Check::ok("nvtx", found)
    } else {
        Check::problem("nvtx", found, "see whether NVTX_INJECTION64_PATH is cleared or set by another tool")
    });

    let in_steps: Vec<_> = audit.sites.iter().filter(|site| site.waits > site.outside_waits).collect();
    let control = match in_steps[..] {
        [site] if site.kind == WaitKind::DeviceToHostRead && site.waits == 1 && site.ordinary_waits == 1 => {
            let frames = site.native.len();
            checks.push(if site.native.iter().any(|frame| frame.function.contains(probe::WAITING_FUNCTION)) {
                Check::ok("stacks", format!("{frames} native frames, through the function that waits; no ptrace"))
            } else {
                Check::problem(
                    "stacks",
                    format!("none of the {frames} native frames of the wait is the function that made it"),
                    "waits will have ranges but no lines; report this with the output of `syncaudit --version`",
                )
            });
            let apis = site.apis.join(" + ");
            Check::ok("control", format!("one wait was caused and found: {} made of {apis}", site.kind.id()))
        }
        [] => Check::problem(
            "control",
            "one wait was caused and none was found",
            "trust nothing that is recorded on this machine until that is solved; the lines above may say why",
        ),
        _ => {
            let found: Vec<String> =
                in_steps.iter().map(|site| format!("{} x {}", site.waits, site.kind.id())).collect();
            Check::problem(
                "control",
                format!("one wait was caused and something else was found: {}", found.join(", ")),
                "report this with the versions above and the output of `syncaudit --version`",
            )
        }
    };
    checks.push(control);
    checks
}
