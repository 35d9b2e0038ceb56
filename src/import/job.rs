//! Several recordings as one job: which files there are, which ranks they are of, which are missing.
//!
//! In: paths as the user gave them; a directory of profiler traces stands for the traces in it. Out: one [`TraceBuilder`]
//! with the processes of all of them, on one clock. A recording that can't be read is named and makes the verdict
//! inconclusive, the others are reported; only when none can be read there is nothing to report.

use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::{ImportError, Progress, eventlog, input, kineto, nsys};
use crate::model::{OPEN, Problem, ProblemKind, TraceBuilder, runs};

/// One recording that was read, as far as the job is concerned.
#[derive(Clone, Debug, Default)]
pub(super) struct Imported {
    /// Ranks that it is of, ascending: one for a profiler's trace, all of a host for a trace directory of ours.
    pub ranks: Vec<u32>,
    /// Number of ranks in the job, where the recording says so.
    pub world_size: Option<u32>,
    /// What has to be added to the recording's times to have them on a clock that it shares with others; 0 where unknown.
    pub base_ns: i64,
    /// Its processes in the trace.
    pub processes: Range<usize>,
}

/// Reads all of `paths` into `trace`, and answers how many recordings that were.
pub(super) fn load(
    paths: &[PathBuf],
    trace: &mut TraceBuilder,
    progress: &mut dyn FnMut(Progress),
) -> Result<usize, ImportError> {
    let mut files = Vec::new();
    for path in paths {
        expand(path, &mut files)?;
    }
    let sizes: Vec<Option<u64>> = files.iter().map(|file| size(file)).collect();
    let total_bytes = sizes.iter().copied().sum::<Option<u64>>();
    let mut before = 0;
    let mut read: Vec<(&Path, Imported)> = Vec::new();
    let mut broken: Vec<ImportError> = Vec::new();
    let mut logs = eventlog::Seen::default();
    let mut devices = Devices::default();
    for (path, size) in files.iter().zip(sizes) {
        if let Some((first, _)) = read.iter().find(|(first, _)| is_copy(first, path)) {
            trace.problem(eventlog::given_twice(first));
            continue;
        }
        // What comes through a pipe has no size, but it was read.
        let mut read_bytes = 0;
        let mut of_file = |done_bytes| {
            read_bytes = done_bytes;
            progress(Progress { done_bytes: before + done_bytes, total_bytes });
        };
        let emulated = std::mem::take(&mut trace.source.emulated);
        match super::load_file(path, trace, &mut logs, &mut of_file) {
            Ok(imported) => {
                if !imported.processes.is_empty() {
                    devices.note(path, trace.source.emulated);
                }
                read.push((path, imported));
            }
            Err(error) => broken.push(error),
        }
        trace.source.emulated |= emulated;
        before += size.unwrap_or(read_bytes);
        progress(Progress { done_bytes: before, total_bytes });
    }
    if read.is_empty() {
        return Err(broken.into_iter().next().unwrap_or_else(|| ImportError::new("", "no trace was named")));
    }
    for error in broken {
        // Configurations and results lie beside traces; only a file that was named, or says that it is of a rank, is missed.
        let named = paths.contains(&error.path) || rank_of(&error.path).is_some();
        if error.foreign && !named {
            trace.problem(Problem::new(
                ProblemKind::ForeignFile,
                format!("{} is no trace and was passed over", error.path.display()),
            ));
            continue;
        }
        trace.problem(Problem::new(
            ProblemKind::MissingRank,
            format!("{error}. The other ranks are reported"),
        ));
    }
    devices.say(trace);
    note_ranks(&read, trace);
    align(&read, trace);
    Ok(read.len())
}

/// Whether two files hold the same bytes. Event logs know each other by themselves, whatever the paths.
fn is_copy(a: &Path, b: &Path) -> bool {
    let open = |path: &Path| -> Option<(u64, std::fs::File)> {
        // A pipe can be opened once.
        let metadata = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
        Some((metadata.len(), std::fs::File::open(path).ok()?))
    };
    if eventlog::is_mine(a) || eventlog::is_mine(b) || [a, b].contains(&Path::new(input::STANDARD_INPUT)) {
        return false;
    }
    match (open(a), open(b)) {
        (Some((a_len, a)), Some((b_len, b))) if a_len == b_len => same_bytes(a, b).unwrap_or(false),
        _ => false,
    }
}

fn same_bytes(a: std::fs::File, b: std::fs::File) -> std::io::Result<bool> {
    let (mut a, mut b) = (BufReader::with_capacity(1 << 16, a), BufReader::with_capacity(1 << 16, b));
    loop {
        let (left, right) = (a.fill_buf()?, b.fill_buf()?);
        let length = left.len().min(right.len());
        if left[..length] != right[..length] || (left.is_empty() != right.is_empty()) {
            return Ok(false);
        }
        if length == 0 {
            return Ok(true);
        }
        a.consume(length);
        b.consume(length);
    }
}

/// One recording of each kind of device, by name.
#[derive(Default)]
struct Devices {
    emulated: Option<String>,
    measured: Option<String>,
}

impl Devices {
    fn note(&mut self, path: &Path, emulated: bool) {
        let of = if emulated { &mut self.emulated } else { &mut self.measured };
        of.get_or_insert_with(|| path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned());
    }

    fn say(self, trace: &mut TraceBuilder) {
        let (Some(emulated), Some(measured)) = (self.emulated, self.measured) else { return };
        trace.problem(Problem::new(
            ProblemKind::Note,
            format!(
                "{emulated} is of the emulated device and {measured} of a GPU: taken together as one job they show no time, and waits that only a \
                 real driver causes are in one part only. Two runs are compared with 'syncaudit diff'"
            ),
        ));
    }
}

/// The rank that a file's name says.
fn rank_of(path: &Path) -> Option<u32> {
    path.file_name().and_then(|name| kineto::rank_of_file(&name.to_string_lossy()))
}

/// The recordings that a path stands for: itself, or for a directory of profiler traces the traces in it, by name.
fn expand(path: &Path, files: &mut Vec<PathBuf>) -> Result<(), ImportError> {
    if !path.is_dir() || eventlog::is_mine(path) {
        files.push(path.to_owned());
        return Ok(());
    }
    let cannot =
        |error: std::io::Error| ImportError::new(path, format!("the directory can't be listed: {error}"));
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).map_err(cannot)? {
        let file = entry.map_err(cannot)?.path();
        if file.is_file() && has_trace_name(&file) {
            found.push(file);
        }
    }
    // A report of Nsight Systems can't be read, but unless its database is there too, one of the job is missing.
    let stem = |file: &Path| {
        file.file_name().and_then(|name| Some(name.to_string_lossy().split_once('.')?.0.to_owned()))
    };
    let exported: Vec<_> =
        found.iter().filter(|file| nsys::report_file(file).is_none()).map(|file| stem(file)).collect();
    found.retain(|file| nsys::report_file(file).is_none() || !exported.contains(&stem(file)));
    if found.is_empty() {
        return Err(ImportError::new(
            path,
            "the directory holds no event log (PID-N.salog), was not made by 'syncaudit run', and holds no profiler \
             traces (.json, .json.gz, .json.zst, .sqlite) either",
        ));
    }
    found.sort_by_key(|file| natural(file));
    files.append(&mut found);
    Ok(())
}

/// Directories hold other things besides traces, so here the name decides what is looked at; the content decides what it is.
fn has_trace_name(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
    let stem = name.strip_suffix(".gz").or_else(|| name.strip_suffix(".zst")).unwrap_or(&name);
    !name.starts_with('.')
        && ([".json", ".sqlite", ".trace"].iter().any(|ending| stem.ends_with(ending))
            || nsys::report_file(path).is_some())
}

/// A name with its numbers as numbers, so that `rank10` comes after `rank9`.
fn natural(path: &Path) -> Vec<(String, u64)> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut parts = Vec::new();
    let mut rest = name.as_str();
    while !rest.is_empty() {
        let word = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let digits = rest[word..].find(|c: char| !c.is_ascii_digit()).map_or(rest.len(), |end| word + end);
        parts.push((rest[..word].to_owned(), rest[word..digits].parse().unwrap_or(u64::MAX)));
        rest = &rest[digits..];
    }
    parts
}

fn size(path: &Path) -> Option<u64> {
    if path.as_os_str() == input::STANDARD_INPUT {
        return None;
    }
    let metadata = std::fs::metadata(path).ok()?;
    // A directory of event logs is read by a reader of its own, which is fast; it counts as nothing. A pipe has no size.
    let no_size = !metadata.is_file() && !metadata.is_dir();
    (!no_size).then(|| if metadata.is_file() { metadata.len() } else { 0 })
}

/// Says which ranks are missing, and which came twice.
fn note_ranks(read: &[(&Path, Imported)], trace: &mut TraceBuilder) {
    let mut known: Vec<(u32, &Path)> =
        read.iter().flat_map(|(path, imported)| imported.ranks.iter().map(|&rank| (rank, *path))).collect();
    known.sort();
    let world_size = read.iter().filter_map(|(_, imported)| imported.world_size).max();
    if let ([(rank, _)], [_], Some(world_size)) = (known.as_slice(), read, world_size)
        && world_size > 1
    {
        trace.problem(Problem::new(
            ProblemKind::Note,
            format!("this is rank {rank} of {world_size}; give the traces of all ranks to have the whole job judged"),
        ));
        return;
    }
    for pair in known.windows(2) {
        if pair[0].0 == pair[1].0 {
            trace.problem(Problem::new(
                ProblemKind::Note,
                format!(
                    "{} and {} both say that they are of rank {}: they are taken for two processes of one job",
                    pair[0].1.display(),
                    pair[1].1.display(),
                    pair[0].0
                ),
            ));
        }
    }
    if known.is_empty() || (read.len() < 2 && known.len() < 2) {
        return;
    }
    let until = world_size.unwrap_or(0).max(known.last().map_or(0, |(rank, _)| rank.saturating_add(1)));
    let there = |rank: u32| known.binary_search_by_key(&rank, |(rank, _)| *rank).is_ok();
    let missing: Vec<u32> = (0..until.min(1 << 20)).filter(|&rank| !there(rank)).collect();
    if !missing.is_empty() {
        trace.problem(Problem::counted(
            ProblemKind::MissingRank,
            missing.len() as u64,
            format!(
                "of {until} ranks there is no trace of {} {}",
                if missing.len() == 1 { "rank" } else { "ranks" },
                runs(&missing)
            ),
        ));
    }
}

/// Puts recordings with different zero points on one clock. The earliest stays where it is.
fn align(read: &[(&Path, Imported)], trace: &mut TraceBuilder) {
    let bases = || read.iter().map(|(_, imported)| imported.base_ns);
    let Some(first) = bases().min() else { return };
    if bases().any(|base| base == 0) {
        return;
    }
    for (_, imported) in read {
        let shift_ns = imported.base_ns.abs_diff(first);
        if shift_ns == 0 {
            continue;
        }
        let shift = |time_ns: &mut u64| {
            if *time_ns != OPEN {
                *time_ns = time_ns.saturating_add(shift_ns).min(OPEN - 1);
            }
        };
        for index in imported.processes.clone() {
            let mut process = trace.process_at(index);
            let process = process.data();
            for thread in &mut process.threads {
                thread.spans.iter_mut().for_each(|span| {
                    shift(&mut span.start_ns);
                    shift(&mut span.end_ns);
                });
                thread.recorder_from_ns.iter_mut().for_each(shift);
                thread.calls.iter_mut().for_each(|call| {
                    shift(&mut call.start_ns);
                    shift(&mut call.end_ns);
                });
            }
            process.device_ops.iter_mut().for_each(|op| {
                shift(&mut op.start_ns);
                shift(&mut op.end_ns);
            });
            process.overheads.iter_mut().for_each(|overhead| {
                shift(&mut overhead.start_ns);
                shift(&mut overhead.end_ns);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_sort_as_numbers() {
        let mut names: Vec<PathBuf> =
            ["rank10.json", "rank9.json", "rank1.json"].iter().map(PathBuf::from).collect();
        names.sort_by_key(|name| natural(name));
        assert_eq!(names, ["rank1.json", "rank9.json", "rank10.json"].map(PathBuf::from));
    }
}
