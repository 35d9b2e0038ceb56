//! The baseline: the waits that a team has accepted, as a file in its repository.
//!
//! In: an audit, or the text of a file. Out: a [`Baseline`], or its text: one place a line, sorted, tab-separated, without paths, times and line
//! numbers, so that two branches that change different places merge by themselves. Every line carries its fingerprint, and a line whose
//! words don't have that fingerprint is refused: a baseline that was damaged must not let a wait pass.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use super::compare::{Change, compare};
use super::place::{Entry, Place, judged_per_step};
use crate::Audit;
use crate::audit::WaitKind;
use crate::model::Source;

/// First word of the first line.
const MAGIC: &str = "syncaudit-baseline";
/// The version that is written, and the only one that is read.
const VERSION: &str = "1";
const COLUMNS: &str = "# kind\trange\tfunctions\top\tcalls\tfingerprint\tordinal\tper-step\tsteps\treason";

/// Accepted waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Baseline {
    /// Name of the program without its folder; empty if unknown.
    pub program: String,
    /// Sorted by place and ordinal; each once.
    pub entries: Vec<Entry>,
}

/// A baseline that can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaselineError {
    pub path: PathBuf,
    /// Counted from 1; 0 when it is about the file as a whole.
    pub line: usize,
    /// What is wrong, as a clause.
    pub text: String,
    /// What to do.
    pub help: String,
}

impl fmt::Display for BaselineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path.display(), self.text),
            line => write!(f, "{}:{line}: {}", self.path.display(), self.text),
        }
    }
}

impl std::error::Error for BaselineError {}

/// What [`Baseline::updated`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Update {
    /// Taken out: the run came by and did not wait.
    pub removed: Vec<Entry>,
    /// Lowered, as (before, after).
    pub lowered: Vec<(Entry, Entry)>,
    /// Written down at their new place, as (before, after).
    pub moved: Vec<(Entry, Entry)>,
    /// New or grown; in the baseline only if they were accepted.
    pub added: Vec<Entry>,
    /// Kept although the run did not get there.
    pub not_reached: Vec<Entry>,
}

impl Baseline {
    /// The judged waits of an audit. `keep` says which sites (by index) belong in a baseline: those that nothing else accepts.
    #[must_use]
    pub fn of(audit: &Audit, keep: impl Fn(usize) -> bool) -> Self {
        let most = judged_per_step(audit);
        let entries = audit
            .sites
            .iter()
            .zip(most)
            .enumerate()
            .filter(|(index, (site, most))| *most > 0 && !site.by_recorder && keep(*index))
            .map(|(_, (site, per_step))| Entry::of(audit, site, per_step))
            .collect();
        Self { program: program_name(&audit.source), entries }.sorted()
    }

    fn sorted(mut self) -> Self {
        self.entries.sort_by(|a, b| (&a.place, a.ordinal).cmp(&(&b.place, b.ordinal)));
        // Two sides of a merge may both have kept a line: the tighter one counts.
        self.entries.dedup_by(|next, kept| {
            let same = (&next.place, next.ordinal) == (&kept.place, kept.ordinal);
            if same {
                kept.per_step = kept.per_step.min(next.per_step);
                kept.every_step &= next.every_step;
                kept.reason = kept.reason.take().or_else(|| next.reason.take());
            }
            same
        });
        self
    }

    /// This baseline after a run: tightened, and with `accept` also widened by what is new, for that reason.
    #[must_use]
    pub fn updated(&self, current: &Self, audit: &Audit, accept: Option<&str>) -> (Self, Update) {
        let comparison = compare(&self.entries, &current.entries, audit);
        let mut update = Update::default();
        let mut entries = Vec::new();
        for (now, change) in current.entries.iter().zip(&comparison.changes) {
            let before = change.old().map(|old| &self.entries[old]);
            let mut after = Entry { reason: before.and_then(|before| before.reason.clone()), ..now.clone() };
            match (change, before) {
                (Change::Known(_), Some(before)) => {
                    // As it stands there: what differs from run to run must not change the file.
                    after.every_step = before.every_step;
                }
                (Change::Shrunk(_), Some(before)) => update.lowered.push((before.clone(), after.clone())),
                (Change::Moved(_), Some(before)) => update.moved.push((before.clone(), after.clone())),
                (Change::Grown(_) | Change::New, _) => {
                    after.reason = accept.map(str::to_owned);
                    update.added.push(after.clone());
                    match (accept, before) {
                        (Some(_), _) => {}
                        (None, Some(before)) => after = Entry { line: 0, ..before.clone() },
                        (None, None) => continue,
                    }
                }
                _ => {}
            }
            entries.push(after);
        }
        for gone in comparison.gone {
            let before = Entry { line: 0, ..self.entries[gone.old].clone() };
            if gone.reached {
                update.removed.push(before);
            } else {
                update.not_reached.push(before.clone());
                entries.push(before);
            }
        }
        renumber(&mut entries);
        (Self { program: current.program.clone(), entries }.sorted(), update)
    }

    /// Reads a baseline.
    ///
    /// # Errors
    /// When the file can't be read, is no baseline, is one of another version, or any line of it is damaged.
    pub fn load(path: &Path) -> Result<Self, BaselineError> {
        let bytes = crate::bounded::read(path).map_err(|error| BaselineError {
            path: path.to_owned(),
            line: 0,
            text: format!("it can't be read: {error}"),
            help: "make one with 'syncaudit baseline TRACE -o FILE', or name the right file".to_owned(),
        })?;
        Self::parse(path, &String::from_utf8_lossy(&bytes))
    }

    /// Validates the text of a baseline; `path` is for messages only.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn parse(path: &Path, text: &str) -> Result<Self, BaselineError> {
        let fault = |line: usize, text: String, help: &str| BaselineError {
            path: path.to_owned(),
            line,
            text,
            help: help.to_owned(),
        };
        const AGAIN: &str = "restore the file, or make it again with 'syncaudit baseline TRACE -o FILE'";
        let mut lines = text.lines().zip(1usize..);
        let first = lines.next().map_or("", |(line, _)| line);
        match first.split_once(' ') {
            Some((MAGIC, VERSION)) => {}
            Some((MAGIC, other)) => {
                return Err(fault(
                    1,
                    format!("it is a baseline of version {other}; this command reads version {VERSION}"),
                    "use the version of syncaudit that wrote it, or make it again with 'syncaudit baseline TRACE -o FILE'",
                ));
            }
            _ => {
                return Err(fault(
                    1,
                    format!("it is no baseline: the first line is not '{MAGIC} {VERSION}'"),
                    AGAIN,
                ));
            }
        }
        let mut baseline = Self::default();
        for (text, line) in lines {
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            if ["<<<<<<<", "=======", ">>>>>>>", "|||||||"].iter().any(|mark| text.starts_with(mark)) {
                return Err(fault(
                    line,
                    "a merge conflict was left in it".to_owned(),
                    "keep the lines that both sides have (a wait that one side removed is fixed), or run 'syncaudit baseline \
                     TRACE --update'",
                ));
            }
            if let Some(program) = text.strip_prefix("program\t") {
                if !baseline.program.is_empty() && baseline.program != program {
                    return Err(fault(line, "it names two programs".to_owned(), AGAIN));
                }
                program.clone_into(&mut baseline.program);
                continue;
            }
            let entry = entry(text, line).map_err(|what| fault(line, what, AGAIN))?;
            baseline.entries.push(entry);
        }
        Ok(baseline.sorted())
    }

    /// Whether this is a baseline of the program that was audited; where either is unknown it is taken to be.
    ///
    /// # Errors
    /// Names both programs.
    pub fn fits(&self, path: &Path, audit: &Audit) -> Result<(), BaselineError> {
        let program = program_name(&audit.source);
        if self.program.is_empty() || program.is_empty() || self.program == program {
            return Ok(());
        }
        Err(BaselineError {
            path: path.to_owned(),
            line: 0,
            text: format!("it is a baseline of '{}', and the trace is one of '{program}'", self.program),
            help: format!(
                "name the baseline of '{program}'; if the program was renamed, correct the line 'program' in the file"
            ),
        })
    }
}

/// The text of the file; the same entries always give the same bytes.
impl fmt::Display for Baseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{MAGIC} {VERSION}")?;
        writeln!(
            f,
            "# Waits in ordinary steps that are accepted. 'syncaudit baseline TRACE --update' takes out what is fixed."
        )?;
        writeln!(f, "{COLUMNS}")?;
        if !self.program.is_empty() {
            writeln!(f, "program\t{}", self.program)?;
        }
        for entry in &self.entries {
            let place = &entry.place;
            write!(
                f,
                "{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}",
                place.kind.id(),
                list(&place.range, '>'),
                list(&place.functions, '<'),
                place.op.as_ref().map_or_else(|| "-".to_owned(), |op| list(std::slice::from_ref(op), '>')),
                list(&place.calls, '+'),
                entry.fingerprint(),
                entry.ordinal,
                entry.per_step,
                if entry.every_step { "all" } else { "some" }
            )?;
            match &entry.reason {
                Some(reason) => writeln!(f, "\t{}", escaped(reason, '\t'))?,
                None => writeln!(f)?,
            }
        }
        Ok(())
    }
}

/// Places of the same functions are numbered anew after some of them went, so that the next comparison starts from the same numbers as a run.
fn renumber(entries: &mut [Entry]) {
    entries.sort_by(|a, b| (&a.place, a.ordinal).cmp(&(&b.place, b.ordinal)));
    for group in entries.chunk_by_mut(|a, b| a.place == b.place) {
        for (entry, ordinal) in group.iter_mut().zip(0..) {
            entry.ordinal = ordinal;
        }
    }
}

/// Items joined by the separator with blanks around it; `-` for none.
fn list(items: &[String], separator: char) -> String {
    if items.is_empty() {
        return "-".to_owned();
    }
    let items: Vec<String> = items.iter().map(|item| escaped(item, separator)).collect();
    items.join(&format!(" {separator} "))
}

fn escaped(item: &str, separator: char) -> String {
    if item == "-" {
        return "\\-".to_owned();
    }
    let mut text = String::with_capacity(item.len());
    for c in item.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '\t' => text.push_str("\\t"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            c if c == separator => text.extend(['\\', c]),
            c => text.push(c),
        }
    }
    text
}

/// The items of a [`list`].
fn items(text: &str, separator: char) -> Vec<String> {
    if text == "-" {
        return Vec::new();
    }
    text.split(&format!(" {separator} ")).map(plain).collect()
}

/// Undoes [`escaped`].
fn plain(text: &str) -> String {
    let mut item = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('t') => item.push('\t'),
                Some('n') => item.push('\n'),
                Some('r') => item.push('\r'),
                Some(c) => item.push(c),
                None => item.push('\\'),
            },
            c => item.push(c),
        }
    }
    item
}

fn entry(text: &str, line: usize) -> Result<Entry, String> {
    let columns: Vec<&str> = text.split('\t').collect();
    let (&[kind, range, functions, op, calls, fingerprint, ordinal, per_step, steps], rest) =
        columns.split_first_chunk().ok_or_else(|| {
            format!("the line is cut short: it has {} of 9 columns, separated by tabs", columns.len())
        })?;
    let reason = match rest {
        [] => None,
        [reason] => Some(plain(reason)),
        _ => return Err(format!("the line has {} columns, and 10 is the most there can be", columns.len())),
    };
    let place = Place {
        kind: WaitKind::from_id(kind).ok_or_else(|| format!("'{kind}' is no kind of wait"))?,
        range: items(range, '>'),
        functions: items(functions, '<'),
        op: items(op, '>').pop(),
        calls: items(calls, '+'),
    };
    let ordinal = ordinal.parse().map_err(|_| format!("'{ordinal}' is no ordinal"))?;
    let per_step = match per_step.parse() {
        Ok(0) | Err(_) => return Err(format!("'{per_step}' is no number of waits from 1 up")),
        Ok(number) => number,
    };
    let every_step = match steps {
        "all" => true,
        "some" => false,
        _ => return Err(format!("'{steps}' is neither 'all' nor 'some' steps")),
    };
    let found = place.fingerprint(ordinal);
    if found != fingerprint {
        return Err(format!(
            "the fingerprint {fingerprint} is not that of the words in its line ({found}): the line was changed"
        ));
    }
    Ok(Entry { place, ordinal, per_step, every_step, reason, line })
}

/// The program's name without its folder: for an interpreter or a launcher that of the script, behind a shell, `env`, `timeout` or a
/// script that starts it, that of what called CUDA. So a baseline holds however the program is started.
#[must_use]
pub fn program_name(source: &Source) -> String {
    let (typed, is_script) = named(&source.program);
    let mut traced: BTreeMap<String, usize> = BTreeMap::new();
    for command in &source.commands {
        let (name, is_script) = named(command);
        // A bare interpreter (`python -c ...`) is nobody's name.
        if is_script || name == typed || !is_interpreter(&name) {
            *traced.entry(name).or_default() += 1;
        }
    }
    if is_script || traced.contains_key(&typed) {
        return typed;
    }
    // Of several the most frequent, of equals the first by name: process ids differ from run to run.
    traced.into_iter().rev().max_by_key(|&(_, count)| count).map_or(typed, |(name, _)| name)
}

fn is_interpreter(name: &str) -> bool {
    ["python", "torchrun", "accelerate", "deepspeed", "pypy"].iter().any(|word| name.starts_with(word))
}

/// The name of a command, and whether it is that of a script that an interpreter or a launcher runs.
fn named(command: &[String]) -> (String, bool) {
    let name = |word: &String| word.rsplit('/').next().unwrap_or_default().to_owned();
    let Some((first, words)) = command.split_first() else { return (String::new(), false) };
    let interpreter = name(first);
    if !is_interpreter(&interpreter) {
        return (interpreter, false);
    }
    let script = || words.iter().find(|word| word.ends_with(".py")).map(name);
    let module = || {
        let at = words.iter().position(|word| word == "-m")?;
        words.get(at + 1).cloned()
    };
    // What a package installed has no ending.
    let installed = || words.first().filter(|word| !word.starts_with('-')).map(name);
    match script().or_else(module).or_else(installed) {
        Some(script) => (script, true),
        None => (interpreter, false),
    }
}
