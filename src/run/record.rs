//! `run.json` in the trace directory: what was run, for whoever reads the trace later.
//!
//! Written before the program starts (so that a command killed half-way leaves it) and again at the end. It holds the
//! program's words, the device and the options that matter to the report; nothing of the environment.

use super::process::End;
use crate::cli::AuditArgs;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;

pub const FILE: &str = "run.json";
const SCHEMA: &str = "syncaudit.run/1";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub schema: String,
    /// The program and its arguments as typed.
    pub program: Vec<String>,
    /// `cuda` or `emulated`.
    pub device: String,
    /// `--kernel-time`, on the emulated device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_time: Option<String>,
    pub gpu_timeline: bool,
    /// What was said about steps on the command line of `run`; a later `report` starts from it.
    #[serde(default)]
    pub steps: StepOptions,
    /// How the program ended; absent while it runs and if the command was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Ended>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepOptions {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warmup: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_every: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_range: Option<String>,
}

impl StepOptions {
    pub fn of(args: &AuditArgs) -> StepOptions {
        StepOptions {
            pattern: args.steps.as_ref().map(ToString::to_string),
            warmup: args.warmup,
            log_every: args.log_every.map(|every| every.to_string()),
            log_range: args.log_range.as_ref().map(ToString::to_string),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ended {
    Exit(i32),
    Signal(i32),
}

impl From<End> for Ended {
    fn from(end: End) -> Ended {
        match end {
            End::Exit(code) => Ended::Exit(code),
            End::Signal(signal) => Ended::Signal(signal),
        }
    }
}

impl From<Ended> for End {
    fn from(ended: Ended) -> End {
        match ended {
            Ended::Exit(code) => End::Exit(code),
            Ended::Signal(signal) => End::Signal(signal),
        }
    }
}

impl Record {
    pub fn new(program: &[OsString], device: &str, steps: StepOptions) -> Record {
        Record {
            schema: SCHEMA.to_owned(),
            program: program.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            device: device.to_owned(),
            kernel_time: None,
            gpu_timeline: false,
            steps,
            end: None,
        }
    }

    /// Replaces the file as a whole, so that a reader never sees half of it.
    pub fn write(&self, trace: &Path) -> io::Result<()> {
        let beside = trace.join("run.json.new");
        fs::write(&beside, format!("{:#}\n", serde_json::json!(self)))?;
        fs::rename(beside, trace.join(FILE))
    }

    /// The record of a trace directory; `None` where there is none that this version can read.
    pub fn read(trace: &Path) -> Option<Record> {
        let record: Record = serde_json::from_slice(&fs::read(trace.join(FILE)).ok()?).ok()?;
        (record.schema == SCHEMA).then_some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut record = Record::new(&["prog".into(), "--x".into()], "emulated", StepOptions::default());
        record.write(dir.path()).unwrap();
        assert_eq!(Record::read(dir.path()), Some(record.clone()));
        record.end = Some(End::Signal(9).into());
        record.write(dir.path()).unwrap();
        assert_eq!(Record::read(dir.path()), Some(record));
    }

    #[test]
    fn a_foreign_file_is_no_record() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Record::read(dir.path()), None);
        for text in ["", "{}", r#"{"schema":"other/1","program":[],"device":"cuda","gpu_timeline":false}"#] {
            fs::write(dir.path().join(FILE), text).unwrap();
            assert_eq!(Record::read(dir.path()), None, "{text}");
        }
    }
}
