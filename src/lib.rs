//! The audit engine behind the `syncaudit` command.
//!
//! Data flows one way: traces on disk -> [`import`] -> [`model::Trace`] -> [`audit`], [`price`] -> [`audit::Audit`] -> [`report`].
//! Nothing in here touches CUDA, starts a program or changes a trace; nothing behind [`import`] knows where a trace
//! came from; no report and no view holds a rule.

pub mod audit;
mod bounded;
pub mod config;
pub mod exit;
pub mod export;
pub mod gate;
pub mod import;
pub mod model;
pub mod price;
pub mod report;
pub mod rules;
pub mod symbols;
pub mod view;

use std::path::PathBuf;

pub use audit::{Audit, AuditOptions};
pub use import::ImportError;

/// Reads the traces at `paths` (files or trace directories) as one job.
///
/// # Errors
/// When nothing can be read at one of the paths; a damaged but partly readable trace is no error, it carries
/// [`model::Problem`]s.
pub fn load_path(paths: &[PathBuf]) -> Result<model::Trace, ImportError> {
    import::load(paths)
}

/// Audits a trace and prices its waits.
#[must_use]
pub fn assess(trace: &model::Trace, options: &AuditOptions, effort: price::Effort) -> Audit {
    let mut audit = audit::audit(trace, options);
    audit.price(trace, effort);
    audit
}

/// Reads the traces at `paths` as one job and judges them.
///
/// # Errors
/// As [`load_path`].
pub fn audit_path(paths: &[PathBuf], options: &AuditOptions) -> Result<Audit, ImportError> {
    Ok(audit::audit(&load_path(paths)?, options))
}
