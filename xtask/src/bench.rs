//! What tracing and auditing cost, measured here and now.
//!
//! In: the built workspace. Out: one table. Every figure is a difference or a ratio of two sides that are measured in turn within
//! this run, so that a busy machine hurts both alike; medians count. Nothing is judged: numbers of a shared machine are no
//! test. The device is the emulated one: it stands for no GPU's speed, but the host's part of a call (callback, clock, log,
//! stack) is the same code as on a GPU.

mod probe;

pub use probe::main as probe;

use crate::build;
use probe::Costs;
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

pub fn bench(rounds: u32) -> Result<(), String> {
    build::workspace()?;
    let place = Place::new()?;
    println!("{:<58} {:>12}   target", "what", "measured");

    let (mut traced, mut untraced) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        untraced.push(place.costs(false)?);
        traced.push(place.costs(true)?);
    }
    let cost = |of: fn(&Costs) -> f64| {
        median(traced.iter().map(of).collect()) - median(untraced.iter().map(of).collect())
    };
    row(
        "a call that is no wait, emulated CUPTI included",
        format!("{:.0} ns", cost(|c| c.call_ns)),
        "<= 250 ns",
    );
    row("an NVTX push and pop", format!("{:.0} ns", cost(|c| c.range_ns)), "<= 150 ns");
    row("a wait with its native stack", format!("{:.2} us", cost(|c| c.wait_ns) / 1e3), "<= 10 us");

    let log = place.log_of_a_million_events()?;
    row("event log, bytes per event", format!("{:.1}", log.bytes_per_event), "<= 64");
    row("reading the log of a million events", format!("{:.2} s", log.load_s), "");
    row("audit of a million events once loaded", format!("{:.3} s", log.audit_s), "<= 0.3 s");

    for waits in ["none", "legacy"] {
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            without.push(place.training(waits, false)?);
            with.push(place.training(waits, true)?);
        }
        let ratio = median(with) / median(without);
        row(
            &format!("reference trainer, --waits {waits}, traced / untraced"),
            format!("{ratio:.3}x"),
            "<= 1.02x",
        );
    }
    Ok(())
}

fn row(what: &str, measured: String, target: &str) {
    println!("{what:<58} {measured:>12}   {target}");
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The log of a million events and what the command makes of it.
struct Log {
    bytes_per_event: f64,
    load_s: f64,
    audit_s: f64,
}

/// The built programs, and a folder to work in.
struct Place {
    folder: PathBuf,
}

impl Place {
    fn new() -> Result<Place, String> {
        let folder = build::release().parent().expect("target directory").join("bench");
        drop(fs::remove_dir_all(&folder));
        let driver = folder.join("driver");
        fs::create_dir_all(&driver).map_err(|error| format!("{}: {error}", driver.display()))?;
        for name in ["libcuda.so.1", "libcuda.so"] {
            let emulator = build::release().join("libsyncaudit_emulator.so");
            std::os::unix::fs::symlink(emulator, driver.join(name)).map_err(|error| error.to_string())?;
        }
        Ok(Place { folder })
    }

    /// `words` on the emulated device, with the tracer if there is a directory for its trace. Started as `syncaudit run`
    /// starts programs, but without the report, which is no cost of tracing.
    fn command(&self, trace: Option<&Path>, words: &[OsString]) -> Result<Command, String> {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env("LD_LIBRARY_PATH", self.folder.join("driver"));
        if let Some(trace) = trace {
            drop(fs::remove_dir_all(trace));
            let made = DirBuilder::new().mode(0o700).create(trace);
            made.map_err(|error| format!("{}: {error}", trace.display()))?;
            let tracer = build::release().join("libsyncaudit_tracer.so");
            command.env("SYNCAUDIT_TRACE_DIR", trace);
            command.env("SYNCAUDIT_CUPTI", build::release().join("libsyncaudit_emulator.so"));
            command.env("CUDA_INJECTION64_PATH", &tracer).env("NVTX_INJECTION64_PATH", tracer);
        }
        Ok(command)
    }

    /// Where a trace goes that is only there to be written.
    fn trace(&self, traced: bool) -> Option<PathBuf> {
        traced.then(|| self.folder.join("trace"))
    }

    fn costs(&self, traced: bool) -> Result<Costs, String> {
        let words = [own(), "bench-probe".into(), "costs".into()];
        let output = self.command(self.trace(traced).as_deref(), &words)?.output();
        let output = output.map_err(|error| error.to_string())?;
        serde_json::from_slice::<serde_json::Value>(&output.stdout)
            .ok()
            .and_then(|value| Costs::from_json(&value))
            .ok_or_else(|| format!("the probe ended with {} and printed no costs", output.status))
    }

    fn log_of_a_million_events(&self) -> Result<Log, String> {
        let trace = self.folder.join("million");
        let words = [own(), "bench-probe".into(), "million".into()];
        build::succeed(&mut self.command(Some(&trace), &words)?)?;
        let bytes: u64 = fs::read_dir(&trace)
            .map_err(|error| error.to_string())?
            .flatten()
            .filter(|entry| entry.path().extension().is_some_and(|extension| extension == "salog"))
            .filter_map(|entry| entry.metadata().ok())
            .map(|meta| meta.len())
            .sum();
        let start = Instant::now();
        let loaded = syncaudit::load_path(&[trace]).map_err(|error| error.to_string())?;
        let load_s = start.elapsed().as_secs_f64();
        let spans: usize = loaded
            .processes
            .iter()
            .flat_map(|process| &process.threads)
            .map(|thread| thread.spans.len())
            .sum();
        // A range is two events, its push and its pop.
        let events = loaded.call_count() + 2 * spans;
        let audit_s = median(
            (0..5)
                .map(|_| {
                    let start = Instant::now();
                    std::hint::black_box(syncaudit::audit::audit(
                        &loaded,
                        &syncaudit::AuditOptions::default(),
                    ));
                    start.elapsed().as_secs_f64()
                })
                .collect(),
        );
        if events < 1_000_000 {
            return Err(format!("the log holds {events} events, not a million"));
        }
        Ok(Log {
            bytes_per_event: bytes as f64 / events as f64,
            load_s,
            audit_s: audit_s * 1e6 / events as f64,
        })
    }

    /// Seconds of forty steps: what a long training takes longer than a short one, so that start and end drop out.
    fn training(&self, waits: &str, traced: bool) -> Result<f64, String> {
        let seconds = |steps: &str| {
            let trainer = build::release().join("dflash-train").into_os_string();
            let mut words = vec![trainer];
            words.extend(["--steps", steps, "--log-every", "10", "--waits", waits].map(OsString::from));
            let mut command = self.command(self.trace(traced).as_deref(), &words)?;
            let start = Instant::now();
            build::succeed(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
            Ok::<f64, String>(start.elapsed().as_secs_f64())
        };
        let short = seconds("10")?;
        Ok(seconds("50")? - short)
    }
}

/// This program. Not by `current_exe`: building the workspace may have put a new file in the place of the running one.
fn own() -> OsString {
    build::release().join("xtask").into_os_string()
}
