//! The ledger: which samples have been trained on, in which step and by which trainer. Durable, an SQLite database.
//!
//! In: the samples of finished steps. Out: a row per sample, on disk when [`Ledger::commit`] has returned. A sample is there once
//! at most: its number is the key. Opening it for a run that resumes makes it agree with the checkpoint, or fails.

use crate::error::{Error, Result};
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The ledger's file in a checkpoint directory.
pub fn path(directory: &Path) -> PathBuf {
    directory.join("ledger.sqlite")
}

/// What one trainer did in a finished step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepSamples {
    /// The step's number, from 1.
    pub step: u32,
    /// Which trainer.
    pub rank: usize,
    /// Numbers of the samples it was trained on.
    pub samples: Vec<u64>,
}

/// A row of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Number of the sample.
    pub sample: u64,
    /// The step that trained on it, from 1.
    pub step: u32,
    /// The trainer.
    pub rank: usize,
}

const TABLES: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;
    CREATE TABLE IF NOT EXISTS trained (sample INTEGER PRIMARY KEY, step INTEGER NOT NULL, rank INTEGER NOT NULL);
    CREATE INDEX IF NOT EXISTS trained_by_step ON trained (step);
";

/// An open ledger; without a directory, one that keeps nothing.
pub struct Ledger {
    database: Option<(PathBuf, Connection)>,
}

impl Ledger {
    /// A ledger that keeps nothing, for a run without checkpoints.
    pub fn none() -> Self {
        Ledger { database: None }
    }

    /// Opens or makes the ledger of `directory` for a run that goes on behind step `step` with sample `next_sample`: removes
    /// what was trained behind that step, because it is trained again, and checks that the rest is exactly what the
    /// checkpoint was trained on.
    pub fn open(directory: &Path, step: u32, next_sample: u64) -> Result<Self> {
        let path = path(directory);
        let fail = |error: rusqlite::Error| {
            Error::new(format!("cannot open the ledger {}: {error}", path.display()))
        };
        let mut connection = Connection::open(&path).map_err(fail)?;
        // Somebody who looks into it may hold it for a while; the producer is held meanwhile, and says so.
        connection.busy_handler(Some(wait_for_others)).map_err(fail)?;
        connection.execute_batch(TABLES).map_err(fail)?;
        let transaction =
            connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fail)?;
        transaction.execute("DELETE FROM trained WHERE step > ?1", [step]).map_err(fail)?;
        let (count, below): (i64, i64) = transaction
            .query_row("SELECT COUNT(*), COALESCE(MAX(sample) + 1, 0) FROM trained", [], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .map_err(fail)?;
        if (count, below) != (next_sample as i64, next_sample as i64) {
            return Err(Error::new(format!(
                "the ledger {} does not belong to the checkpoint beside it: the checkpoint was trained on samples 0 to {} \
                 in {step} steps, the ledger has {count} samples up to {} in those; restore both from one backup, or give \
                 another --checkpoint directory",
                path.display(),
                next_sample.wrapping_sub(1) as i64,
                below - 1
            )));
        }
        transaction.commit().map_err(fail)?;
        Ok(Ledger { database: Some((path, connection)) })
    }

    /// Adds the parts of whole steps in one transaction, and returns when they are on disk.
    pub fn commit(&mut self, parts: &[StepSamples]) -> Result<()> {
        let Some((path, connection)) = &mut self.database else { return Ok(()) };
        let mut insert = || {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            {
                let mut row = transaction
                    .prepare_cached("INSERT INTO trained (sample, step, rank) VALUES (?1, ?2, ?3)")?;
                for part in parts {
                    for &sample in &part.samples {
                        row.execute((sample as i64, part.step, part.rank as i64))?;
                    }
                }
            }
            transaction.commit()
        };
        insert().map_err(|error| {
            let why = match error.sqlite_error_code() {
                Some(rusqlite::ErrorCode::ConstraintViolation) => {
                    "a sample was acknowledged that is in it already, so it was trained on twice".to_owned()
                }
                _ => error.to_string(),
            };
            Error::new(format!("cannot write the ledger {}: {why}", path.display()))
        })
    }
}

/// SQLite asks whether to try again: always, a little later.
fn wait_for_others(_attempts: i32) -> bool {
    std::thread::sleep(Duration::from_millis(20));
    true
}

/// All rows of the ledger of `directory`, by sample.
pub fn read(directory: &Path) -> Result<Vec<Row>> {
    let path = path(directory);
    let rows = || {
        let connection = Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        let mut query = connection.prepare("SELECT sample, step, rank FROM trained ORDER BY sample")?;
        query
            .query_map([], |row| {
                let (sample, rank): (i64, i64) = (row.get(0)?, row.get(2)?);
                Ok(Row { sample: sample as u64, step: row.get(1)?, rank: rank as usize })
            })?
            .collect::<rusqlite::Result<Vec<_>>>()
    };
    rows().map_err(|error| Error::new(format!("cannot read the ledger {}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two samples a step.
    fn steps(range: std::ops::RangeInclusive<u32>) -> Vec<StepSamples> {
        let part = |step| {
            let first = u64::from(step - 1) * 2;
            [(0, first), (1, first + 1)].map(|(rank, sample)| StepSamples {
                step,
                rank,
                samples: vec![sample],
            })
        };
        range.flat_map(part).collect()
    }

    fn rows(parts: &[StepSamples]) -> Vec<Row> {
        parts
            .iter()
            .flat_map(|part| {
                part.samples.iter().map(|&sample| Row { sample, step: part.step, rank: part.rank })
            })
            .collect()
    }

    #[test]
    fn what_was_committed_is_read_back() {
        let directory = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(directory.path(), 0, 0).unwrap();
        ledger.commit(&steps(1..=2)).unwrap();
        ledger.commit(&steps(3..=3)).unwrap();
        assert_eq!(read(directory.path()).unwrap(), rows(&steps(1..=3)));
    }

    #[test]
    fn acknowledgements_behind_the_restored_step_no_longer_hold() {
        let directory = tempfile::tempdir().unwrap();
        Ledger::open(directory.path(), 0, 0).unwrap().commit(&steps(1..=5)).unwrap();
        let mut ledger = Ledger::open(directory.path(), 3, 6).unwrap();
        ledger.commit(&steps(4..=4)).unwrap();
        assert_eq!(read(directory.path()).unwrap(), rows(&steps(1..=4)));
    }

    #[test]
    fn a_sample_is_acknowledged_once_and_a_refused_commit_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(directory.path(), 0, 0).unwrap();
        ledger.commit(&steps(1..=1)).unwrap();
        let again = StepSamples { step: 2, rank: 0, samples: vec![2, 1] };
        assert!(ledger.commit(&[again]).unwrap_err().to_string().contains("trained on twice"));
        assert_eq!(read(directory.path()).unwrap(), rows(&steps(1..=1)));
    }

    #[test]
    fn a_ledger_of_another_run_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        Ledger::open(directory.path(), 0, 0).unwrap().commit(&steps(1..=2)).unwrap();
        for (step, next_sample) in [(3, 6), (2, 5), (1, 4)] {
            let refused = Ledger::open(directory.path(), step, next_sample).err().unwrap().to_string();
            assert!(refused.contains("does not belong to the checkpoint"), "{refused}");
        }
        // Refusing has changed nothing.
        assert_eq!(read(directory.path()).unwrap(), rows(&steps(1..=2)));
    }
}
