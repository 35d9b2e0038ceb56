//! The ledger: which samples have been trained on, durable.
//!
//! In: the ids of finished steps. Out: one line per step, `STEP: ID ID ...`, on disk when [`Ledger::commit`] has returned.
//! A crash can cut the last line short; it is then not counted, and removed by the next open.

use crate::error::{Error, Result};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// A finished step and its samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepSamples {
    /// The step's number, from 1.
    pub step: u32,
    /// Ids of the samples it was trained on.
    pub samples: Vec<u64>,
}

/// An append-only file of acknowledged samples; without a file, a ledger that keeps nothing.
pub struct Ledger {
    file: Option<(PathBuf, File)>,
}

impl Ledger {
    /// A ledger that keeps nothing, for a run without checkpoints.
    pub fn none() -> Self {
        Ledger { file: None }
    }

    /// Opens or makes the ledger at `path`, keeping the lines of steps up to `last_step`: what was trained behind the
    /// restored weights is trained again, so its acknowledgements no longer hold.
    pub fn open(path: &Path, last_step: u32) -> Result<Self> {
        let fail = |what: &str, error: std::io::Error| {
            Error::new(format!("cannot {what} the ledger {}: {error}", path.display()))
        };
        let kept: String = read(path)?.iter().filter(|entry| entry.step <= last_step).map(line).collect();
        let rewritten = path.with_extension("new");
        let mut file = File::create(&rewritten).map_err(|error| fail("write", error))?;
        file.write_all(kept.as_bytes())
            .and_then(|()| file.sync_all())
            .map_err(|error| fail("write", error))?;
        std::fs::rename(&rewritten, path).map_err(|error| fail("replace", error))?;
        Ok(Ledger { file: Some((path.to_owned(), file)) })
    }

    /// Appends the steps and returns when they are on disk.
    pub fn commit(&mut self, steps: &[StepSamples]) -> Result<()> {
        let Some((path, file)) = &mut self.file else { return Ok(()) };
        let lines: String = steps.iter().map(line).collect();
        file.write_all(lines.as_bytes())
            .and_then(|()| file.sync_data())
            .map_err(|error| Error::new(format!("cannot write the ledger {}: {error}", path.display())))
    }
}

fn line(entry: &StepSamples) -> String {
    let ids: String = entry.samples.iter().map(|id| format!(" {id}")).collect();
    format!("{}:{ids}\n", entry.step)
}

/// All whole lines of the ledger at `path`; none when there is no file.
pub fn read(path: &Path) -> Result<Vec<StepSamples>> {
    let mut text = String::new();
    match File::open(path).and_then(|mut file| file.read_to_string(&mut text)) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::new(format!("cannot read the ledger {}: {error}", path.display()))),
    }
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole
        .lines()
        .enumerate()
        .map(|(index, line)| {
            parse(line).ok_or_else(|| {
                Error::new(format!(
                    "the ledger {} is damaged at line {}: `{line}`; restore it, or remove it to start over",
                    path.display(),
                    index + 1
                ))
            })
        })
        .collect()
}

fn parse(line: &str) -> Option<StepSamples> {
    let (step, ids) = line.split_once(':')?;
    let samples = ids.split_whitespace().map(|id| id.parse().ok()).collect::<Option<_>>()?;
    Some(StepSamples { step: step.parse().ok()?, samples })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(range: std::ops::RangeInclusive<u32>) -> Vec<StepSamples> {
        range
            .map(|step| StepSamples { step, samples: vec![u64::from(step) * 2, u64::from(step) * 2 + 1] })
            .collect()
    }

    #[test]
    fn what_was_committed_is_read_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("acks");
        let mut ledger = Ledger::open(&path, 0).unwrap();
        ledger.commit(&steps(1..=2)).unwrap();
        ledger.commit(&steps(3..=3)).unwrap();
        assert_eq!(read(&path).unwrap(), steps(1..=3));
    }

    #[test]
    fn a_line_cut_short_by_a_crash_is_not_counted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("acks");
        Ledger::open(&path, 0).unwrap().commit(&steps(1..=3)).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let lines = whole[..length].iter().filter(|&&byte| byte == b'\n').count() as u32;
            assert_eq!(read(&path).unwrap(), steps(1..=lines));
        }
    }

    #[test]
    fn acknowledgements_behind_the_restored_step_no_longer_hold() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("acks");
        Ledger::open(&path, 0).unwrap().commit(&steps(1..=5)).unwrap();
        let mut ledger = Ledger::open(&path, 3).unwrap();
        ledger.commit(&steps(4..=4)).unwrap();
        assert_eq!(read(&path).unwrap(), steps(1..=4));
    }

    #[test]
    fn a_damaged_line_is_reported_by_number() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("acks");
        std::fs::write(&path, "1: 2 3\n2: x\n").unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("damaged at line 2"));
    }
}
