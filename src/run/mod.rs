//! Runs a program with the tracer loaded into it.
//!
//! In: a program, a device, a place for the trace. Out: a trace directory and how the program ended. The program must
//! behave as it does without us: same descriptors, same process group, same working directory, and an environment to
//! which only the variables of `docs/environment.md` are added.
//!
//! [`program`] which file, [`libraries`] ours, [`device`] which GPU, [`trace_dir`] where to, [`process`] start to end,
//! [`handshake`] who loaded the tracer, [`record`] what is written down about it.

pub mod device;
pub mod handshake;
pub mod libraries;
pub mod process;
pub mod program;
pub mod record;
pub mod trace_dir;

use crate::cli::Device;
use crate::trouble::Trouble;
use device::{Chosen, Driver};
use handshake::Handshake;
use process::End;
use record::{Record, StepOptions};
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use syncaudit::model::{Problem, ProblemKind};

/// What to run and how.
pub struct Request<'a> {
    /// The program and its arguments; not empty.
    pub program: &'a [OsString],
    pub device: Device,
    pub kernel_time: Option<&'a str>,
    pub gpu_timeline: bool,
    pub trace: Option<&'a Path>,
    pub steps: StepOptions,
    /// CUPTI for a program that brings none of its own; a user's `SYNCAUDIT_CUPTI` goes first.
    pub cupti: Option<&'a Path>,
}

/// A finished run.
pub struct Recorded {
    /// Absolute.
    pub trace: PathBuf,
    pub record: Record,
    pub end: End,
    pub handshakes: Vec<Handshake>,
    /// Processes that the program left behind and that may still write into the trace, or read from it.
    pub survivors: Vec<u32>,
    /// What the audit must know that the event logs can't say.
    pub problems: Vec<Problem>,
}

/// Folder inside the trace directory that holds the emulated driver under the driver's names.
const DRIVER_FOLDER: &str = "lib";

/// Runs the program to its end. `say` prints one line of talk.
pub fn run(request: Request<'_>, say: impl Fn(&str)) -> Result<Recorded, Trouble> {
    prepare(request, &say)?.start()?.wait(say)
}

/// A run of which all is ready but the program.
pub struct Prepared {
    /// Absolute.
    pub trace: PathBuf,
    pub record: Record,
    /// What will be started.
    pub command: Command,
    device: Chosen,
    not_traceable: Option<String>,
}

/// A run whose program was started.
pub struct Running {
    pub prepared: Prepared,
    program: process::Started,
}

/// Gets everything ready for the program.
pub fn prepare(request: Request<'_>, say: impl Fn(&str)) -> Result<Prepared, Trouble> {
    let name = &request.program[0];
    let program = program::resolve(name, env::var_os("PATH").as_deref())?;
    let (device, why) = device::choose(request.device, &Driver::look())?;
    let folders = libraries::folders(&own_executable()?, env::var_os("SYNCAUDIT_LIB_DIR").as_deref());
    let tracer = libraries::find(libraries::TRACER, &folders)?;
    let emulator = match device {
        Chosen::Emulated => Some(libraries::find(libraries::EMULATOR, &folders)?),
        Chosen::Cuda => None,
    };
    if request.kernel_time.is_some() && device == Chosen::Cuda {
        return Err(Trouble::new(
            "give kernels a duration",
            "the program runs on the GPU, where they take what they take",
            "leave out --kernel-time, or run with --device emulated",
        ));
    }

    if let Some(why) = why {
        say(&why);
    }
    if let Some(reason) = &program.not_traceable {
        say(&format!("note: {}: {reason}", name.to_string_lossy()));
    }
    for variable in ["CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"] {
        if let Some(other) =
            env::var_os(variable).filter(|other| !other.is_empty() && Path::new(other) != tracer)
        {
            say(&format!(
                "note: {variable} already names {}; only one tool can be loaded that way, so this run loads ours \
                 instead",
                other.display()
            ));
        }
    }

    let trace = trace_dir::create(request.trace, name)?;
    let mut record = Record::new(request.program, device.name(), request.steps);
    record.kernel_time = request.kernel_time.map(str::to_owned);
    record.gpu_timeline = request.gpu_timeline;
    record.write(&trace).map_err(|error| not_writable(&trace, &error))?;

    let mut command = Command::new(&program.path);
    {
        use std::os::unix::process::CommandExt;
        // Programs find their own files through the name they were called by (Python environments do).
        command.arg0(name);
    }
    command.args(&request.program[1..]);
    command.env("SYNCAUDIT_TRACE_DIR", &trace);
    command.env("CUDA_INJECTION64_PATH", &tracer);
    command.env("NVTX_INJECTION64_PATH", &tracer);
    set_or_remove(&mut command, "SYNCAUDIT_GPU_TIMELINE", request.gpu_timeline.then_some(OsStr::new("1")));
    set_or_remove(&mut command, "SYNCAUDIT_EMU_KERNEL_TIME", request.kernel_time.map(OsStr::new));
    if let Some(emulator) = &emulator {
        let folder = trace.join(DRIVER_FOLDER);
        libraries::link_driver(emulator, &folder)?;
        command.env("LD_LIBRARY_PATH", first_in_path(&folder, env::var_os("LD_LIBRARY_PATH").as_deref()));
        command.env("SYNCAUDIT_CUPTI", emulator);
    } else if let Some(cupti) = request.cupti
        && env::var_os("SYNCAUDIT_CUPTI").is_none()
    {
        command.env("SYNCAUDIT_CUPTI", cupti);
    }

    // Before the start: a command that is killed at once must have said where the trace is.
    say(&format!("recording to {0} (if syncaudit itself is killed: syncaudit report {0})", shown(&trace)));
    Ok(Prepared { trace, record, command, device, not_traceable: program.not_traceable })
}

impl Prepared {
    /// Starts the program.
    pub fn start(mut self) -> Result<Running, Trouble> {
        match process::start(&mut self.command) {
            Ok(program) => Ok(Running { prepared: self, program }),
            Err(error) => {
                // Nothing ran, so there is nothing to keep.
                drop(fs::remove_dir_all(&self.trace));
                Err(Trouble::new(
                    format!("start `{}`", self.record.program[0]),
                    error.to_string(),
                    "see whether it starts without syncaudit",
                ))
            }
        }
    }
}

impl Running {
    /// Waits for the program to end. `say` prints one line of talk.
    pub fn wait(self, say: impl Fn(&str)) -> Result<Recorded, Trouble> {
        let Prepared { trace, mut record, device, not_traceable, .. } = self.prepared;
        let end = process::wait(self.program, say).map_err(|error| {
            Trouble::new(
                format!("wait for `{}`", record.program[0]),
                error.to_string(),
                format!("once it has ended: syncaudit report {}", shown(&trace)),
            )
        })?;
        record.end = Some(end.into());
        record.write(&trace).map_err(|error| not_writable(&trace, &error))?;

        let handshakes = handshake::read(&trace);
        let survivors = handshake::still_running(&handshakes, &trace);
        // The folder of the driver stays: a process that the program left behind may not have loaded it yet.
        let mut problems = Vec::new();
        if handshakes.is_empty() {
            let reason = never_loaded(not_traceable.as_deref(), device, end);
            problems.push(Problem::new(ProblemKind::TracerNotLoaded, reason));
        }
        if !survivors.is_empty() {
            let list: Vec<String> = survivors.iter().map(u32::to_string).collect();
            problems.push(Problem::counted(
                ProblemKind::Note,
                survivors.len() as u64,
                format!(
                    "{} started by the program still {} ({}); what is done there from now on is not in this report",
                    if survivors.len() == 1 { "a process" } else { "processes" },
                    if survivors.len() == 1 { "runs" } else { "run" },
                    list.join(", ")
                ),
            ));
        }
        Ok(Recorded { trace, record, end, handshakes, survivors, problems })
    }
}

fn not_writable(trace: &Path, error: &std::io::Error) -> Trouble {
    Trouble::new(
        format!("write into the trace directory {}", trace.display()),
        error.to_string(),
        "name another place with --trace PATH",
    )
}

/// Why no process said hello, as a sentence.
fn never_loaded(not_traceable: Option<&str>, device: Chosen, end: End) -> String {
    if let Some(why) = not_traceable {
        return format!("no process left an event log: as for the program, {why}");
    }
    let hint = match device {
        Chosen::Emulated => {
            "a program that brings its own driver (DT_RPATH, or a full path to libcuda) can't be given the emulated one"
        }
        Chosen::Cuda => {
            "if it does use CUDA, see whether it clears its environment (CUDA_INJECTION64_PATH) before it starts the part that does"
        }
    };
    format!(
        "no process left an event log: the program {} without having initialised CUDA or opened an NVTX range ({hint})",
        end.clause()
    )
}

pub fn own_executable() -> Result<PathBuf, Trouble> {
    env::current_exe().map_err(|error| {
        Trouble::new(
            "find the syncaudit executable",
            error.to_string(),
            "mount /proc, or name the folder of the libraries in SYNCAUDIT_LIB_DIR",
        )
    })
}

/// A variable of ours that is left over from an outer run must not leak into this one.
fn set_or_remove(command: &mut Command, name: &str, value: Option<&OsStr>) {
    match value {
        Some(value) => command.env(name, value),
        None => command.env_remove(name),
    };
}

/// The loader takes an empty entry for the working directory, so none is ever added.
fn first_in_path(folder: &Path, rest: Option<&OsStr>) -> OsString {
    let mut path = folder.as_os_str().to_os_string();
    if let Some(rest) = rest.filter(|rest| !rest.is_empty()) {
        path.push(":");
        path.push(rest);
    }
    path
}

/// The path as short as the user would type it.
pub fn shown(path: &Path) -> String {
    let relative =
        env::current_dir().ok().and_then(|here| path.strip_prefix(here).ok().map(Path::to_path_buf));
    relative.as_deref().unwrap_or(path).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_emulated_driver_comes_first_and_no_empty_entry_is_added() {
        assert_eq!(first_in_path(Path::new("/t/lib"), None), "/t/lib");
        assert_eq!(first_in_path(Path::new("/t/lib"), Some(OsStr::new(""))), "/t/lib");
        assert_eq!(first_in_path(Path::new("/t/lib"), Some(OsStr::new("/a:/b"))), "/t/lib:/a:/b");
    }
}
