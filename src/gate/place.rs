//! A place that waits, as baselines name it: without paths, lines and times.
//!
//! In: sites of an audit, or lines of a baseline. Out: [`Place`]s and how often each waits in one judged step. The fingerprint is always that
//! of the words, so that a place can be checked against itself.

use std::fmt;

use crate::Audit;
use crate::audit::{Site, StepKind, WaitKind, canonical, fingerprint};

/// What a fingerprint is made of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    pub kind: WaitKind,
    /// From the outermost inwards.
    pub range: Vec<String>,
    /// The user's, innermost first.
    pub functions: Vec<String>,
    pub op: Option<String>,
    pub calls: Vec<String>,
}

impl Place {
    #[must_use]
    pub fn of(site: &Site) -> Self {
        Self {
            kind: site.kind,
            range: site.range.clone(),
            functions: site.functions.clone(),
            op: site.op.clone(),
            calls: site.api_bases.clone(),
        }
    }

    /// The fingerprint of the site with that ordinal.
    #[must_use]
    pub fn fingerprint(&self, ordinal: u32) -> String {
        let text = canonical(self.kind, &self.calls, self.op.as_deref(), &self.range, &self.functions);
        fingerprint(&text, ordinal)
    }
}

/// `device-to-host-read in read_loss < train, range step > forward`.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.id())?;
        if !self.functions.is_empty() {
            let most = self.functions.len().min(4);
            write!(f, " in {}", self.functions[..most].join(" < "))?;
        }
        if let Some(op) = &self.op {
            write!(f, ", op {op}")?;
        }
        if !self.range.is_empty() {
            write!(f, ", range {}", self.range.join(" > "))?;
        }
        Ok(())
    }
}

/// A place and how often it waits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    pub place: Place,
    /// Tells places apart that differ only in their lines, in the order of their lines.
    pub ordinal: u32,
    /// Most waits in one judged step.
    pub per_step: u64,
    /// It waited in every ordinary step, and not only in some.
    pub every_step: bool,
    /// Why it was accepted, where somebody said so.
    pub reason: Option<String>,
    /// Line in the baseline, from 1; 0 for what was not read from one.
    pub line: usize,
}

impl Entry {
    /// A site of an audit that waits so often in one judged step.
    #[must_use]
    pub fn of(audit: &Audit, site: &Site, per_step: u64) -> Self {
        Self {
            place: Place::of(site),
            ordinal: site.ordinal,
            per_step,
            every_step: site.steps_with_waits > 0
                && site.steps_with_waits == audit.step_counts.ordinary as u64,
            reason: None,
            line: 0,
        }
    }

    /// Its name in reports.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        self.place.fingerprint(self.ordinal)
    }
}

/// For each site of the audit the most waits in one ordinary step, or in one that had not ended. Waits of log steps, of warm-up and outside
/// of steps are no business of the gate and count as none.
#[must_use]
pub fn judged_per_step(audit: &Audit) -> Vec<u64> {
    let mut in_steps: Vec<(u32, u32)> =
        audit.waits.iter().filter_map(|wait| Some((wait.site, wait.step?))).collect();
    in_steps.sort_unstable();
    let mut most = vec![0u64; audit.sites.len()];
    for waits in in_steps.chunk_by(|a, b| a == b) {
        let (site, step) = waits[0];
        if matches!(audit.steps[step as usize].kind, StepKind::Ordinary | StepKind::Unfinished) {
            let most = &mut most[site as usize];
            *most = (*most).max(waits.len() as u64);
        }
    }
    most
}
