//! Databases that `nsys export --type sqlite` makes of a recording of Nsight Systems.
//!
//! In: a SQLite file, plain or compressed, of any version of the exporter. Out: one process in the trace per recorded process,
//! or an error that says what the file is and which command makes a trace of it. Tables and columns are looked for, never
//! assumed. The file and what lies beside it is never changed. What can't be read is counted.

mod build;
mod database;
mod foreign;
mod links;
mod names;

use std::io::{self, Read, Write};
use std::path::Path;

use super::ImportError;
use super::input::{Input, STANDARD_INPUT};
use super::job::Imported;
use crate::audit::plural;
use crate::model::{Problem, ProblemKind, SourceKind, StrId, TraceBuilder};
use build::Build;
use database::{Database, MAGIC};
pub(super) use foreign::report_file;

/// Whether a file that begins like this is a SQLite database.
pub(super) fn looks_like(head: &[u8]) -> bool {
    head.starts_with(MAGIC)
}

/// Reads a database into the trace. `input` is the same file, unpacked.
///
/// # Errors
/// When it is no export of Nsight Systems, or holds nothing that could be audited.
pub(super) fn import(
    path: &Path,
    input: &mut Input,
    trace: &mut TraceBuilder,
    progress: &mut dyn FnMut(u64),
) -> Result<Imported, ImportError> {
    let shown = shown(path);
    let mut problems = Vec::new();
    if is_plain(path) {
        if let Some(beside) = database::unmerged(path) {
            problems.push(Problem::new(
                ProblemKind::Truncated,
                format!(
                    "{} beside {shown} holds changes that are not in the database and were not read; the program that wrote \
                     it was killed or is still running. Export it again",
                    self::shown(&beside)
                ),
            ));
        }
        let bytes = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        return read(path, path, trace, (bytes, progress), problems);
    }
    // SQLite reads files only, so what is compressed or comes through a pipe is unpacked into one.
    let cannot = |error: io::Error| {
        ImportError::new(
            path,
            format!("it can't be unpacked into the directory for temporary files: {error}"),
        )
    };
    let mut file = tempfile::NamedTempFile::new().map_err(cannot)?;
    // Unpacking is the first half of the work. Of standard input nobody knows what half is: the count just goes on.
    let counts = std::sync::Arc::clone(&input.counts);
    let unpacked = || counts.read.load(std::sync::atomic::Ordering::Relaxed);
    let parts = if path.as_os_str() == STANDARD_INPUT { 1 } else { 2 };
    let mut tell = || progress(unpacked() / parts);
    if let Some(error) = unpack(&mut input.reader, file.as_file_mut(), &mut tell).map_err(cannot)? {
        let why = super::input::unpacking_failed(&error);
        problems.push(Problem::new(
            ProblemKind::Truncated,
            format!("{shown} can't be unpacked to its end: {why}; what came before is used"),
        ));
    }
    let done = unpacked() / parts;
    let rest = if parts == 1 { unpacked() } else { unpacked() - done };
    let mut tell = |more: u64| progress(done + more);
    read(path, file.path(), trace, (rest, &mut tell), problems)
}

fn shown(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}

fn is_plain(path: &Path) -> bool {
    let mut start = [0; MAGIC.len()];
    path.as_os_str() != STANDARD_INPUT
        && std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file())
        && std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok()
        && start == *MAGIC
}

/// Copies until the end, or until reading fails: then the answer says why.
fn unpack(
    from: &mut dyn Read,
    to: &mut std::fs::File,
    tell: &mut dyn FnMut(),
) -> io::Result<Option<io::Error>> {
    let mut buffer = vec![0; 256 << 10];
    loop {
        tell();
        match from.read(&mut buffer) {
            Ok(0) => return Ok(None),
            Ok(count) => to.write_all(&buffer[..count])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Ok(Some(error)),
        }
    }
}

/// Reads the database in `file`, which the user knows as `path`. Progress is told as a part of so many bytes.
fn read(
    path: &Path,
    file: &Path,
    trace: &mut TraceBuilder,
    (bytes, progress): (u64, &mut dyn FnMut(u64)),
    mut problems: Vec<Problem>,
) -> Result<Imported, ImportError> {
    let shown = shown(path);
    let cut_off = database::cut_off(file).ok().flatten();
    let cut_text = |(has, says): (u64, u64)| {
        format!(
            "the file ends after {has} of the {says} bytes that it says it has; the copy or the export is incomplete"
        )
    };
    let database = Database::open(file).map_err(|error| {
        let why = cut_off.map_or_else(String::new, |cut| format!("{}, and ", cut_text(cut)));
        ImportError::new(
            path,
            format!("{why}its list of tables can't be read ({error}). Export the recording again with 'nsys export --type sqlite'"),
        )
    })?;
    match (cut_off, &database.damaged) {
        (Some(cut), _) => problems.push(Problem::new(
            ProblemKind::Truncated,
            format!("{shown}: {}; what can be read is used", cut_text(cut)),
        )),
        (None, Some(error)) => problems.push(Problem::new(
            ProblemKind::Corrupt,
            format!("{shown}: the list of tables is damaged ({error}); tables may be missing"),
        )),
        (None, None) => {}
    }
    if let Some(text) = foreign::other_database(path, &database) {
        return Err(ImportError::new(path, text).foreign());
    }
    // The table of calls is gone through twice.
    let tables = build::EVENT_TABLES.iter().chain([&build::RUNTIME]);
    let rows: u64 = tables.map(|table| database.row_count(table)).sum();
    let mut tell = |done: u64| {
        let share = u128::from(done.min(rows)) * u128::from(bytes) / u128::from(rows.max(1));
        progress(u64::try_from(share).unwrap_or(bytes));
    };
    let mut build = Build::new(&database, trace, &mut tell);
    // On a thread of its own: SQLite takes as long to check the tables as to read them.
    let checked = std::thread::scope(|scope| {
        let check = || Database::open(file).map(|database| build::check(&database)).unwrap_or_default();
        let checker = std::thread::Builder::new().name("check".to_owned()).spawn_scoped(scope, check);
        build.run();
        checker.ok().and_then(|checker| checker.join().ok())
    });
    let checked = checked.unwrap_or_else(|| build::check(&database));
    for damage in checked {
        if !build.damage.iter().any(|known| known.table == damage.table) {
            build.damage.push(damage);
        }
    }
    if build.calls == 0 && build.device_events == 0 && build.ranges == 0 {
        return Err(ImportError::new(path, nothing_in_it(&database, &build)));
    }
    note_damage(&shown, &build, &database, &mut problems);
    note_unused(&shown, &build, &mut problems);
    if build.calls == 0 {
        problems.push(Problem::new(ProblemKind::CuptiMissing, no_calls(&shown, &database, &build)));
    }
    diagnostics(&shown, &database, &build, &mut problems);
    let processes = build.processes();
    let rank = (processes.len() == 1)
        .then(|| {
            let by_thread = build.trace.process_at(processes.start).data().rank;
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            by_thread.or_else(|| super::kineto::rank_of_file(&name?))
        })
        .flatten();
    trace.source.kind = SourceKind::Nsys;
    trace.problems.append(&mut problems);
    for version in versions(&database) {
        if !trace.source.versions.contains(&version) {
            trace.source.versions.push(version);
        }
    }
    let host = environment(&database, "Hostname").map_or(StrId::NONE, |host| trace.intern(&host));
    for index in processes.clone() {
        let mut process = trace.process_at(index);
        let data = process.data();
        data.host = host;
        data.rank = data.rank.or(rank);
    }
    Ok(Imported {
        ranks: rank.into_iter().collect(),
        world_size: None,
        base_ns: session_start(&database),
        processes,
    })
}

fn nothing_in_it(database: &Database, build: &Build<'_>) -> String {
    if let Some(damage) = build.damage.first() {
        return format!(
            "its tables are damaged ({}: {}) and no event in them can be read. Export the recording again with 'nsys export \
             --type sqlite'",
            damage.table, damage.error
        );
    }
    let tables = if database.has(build::RUNTIME) { "holds no call" } else { "has no table of CUDA calls" };
    format!(
        "this is an export of Nsight Systems, but it {tables}, and no ranges or device work either, so there is nothing to \
         audit. Record with 'nsys profile -t cuda,nvtx', and export without leaving tables out ('nsys export --type sqlite')"
    )
}

fn no_calls(shown: &str, database: &Database, build: &Build<'_>) -> String {
    let what = if build.device_events > 0 {
        "work on a device but no calls of the CUDA runtime or driver"
    } else if database.has(build::RUNTIME) {
        "ranges, but its table of CUDA calls is empty"
    } else {
        "ranges, but no table of CUDA calls"
    };
    format!(
        "{shown} has {what}, so no wait can be seen in it: the program made no call while it was recorded, CUDA was not \
         recorded, or the table was left out of the export. Record with 'nsys profile -t cuda,nvtx' and export all tables"
    )
}

fn note_damage(shown: &str, build: &Build<'_>, database: &Database, problems: &mut Vec<Problem>) {
    for damage in &build.damage {
        let lost = match damage.lost {
            Some(1) => "1 row was lost".to_owned(),
            Some(lost) => format!("{lost} rows were lost"),
            None => "nobody knows how many rows were lost".to_owned(),
        };
        problems.push(Problem::counted(
            ProblemKind::Corrupt,
            damage.lost.unwrap_or(1).max(1),
            format!(
                "{shown} is damaged in the table {} ({}): {} rows could be read, {lost}",
                damage.table, damage.error, damage.rows
            ),
        ));
    }
    if database.wrong_types() > 0 {
        problems.push(Problem::counted(
            ProblemKind::Corrupt,
            database.wrong_types(),
            format!(
                "{shown}: {} of a type that makes no sense in the column",
                plural(database.wrong_types(), "value", "values")
            ),
        ));
    }
}

fn note_unused(shown: &str, build: &Build<'_>, problems: &mut Vec<Problem>) {
    let unused = &build.unused;
    let mut note = |kind, count: u64, (one, many): (&str, &str), text: &str| {
        if count > 0 {
            problems.push(Problem::counted(
                kind,
                count,
                format!("{shown}: {} {text}", plural(count, one, many)),
            ));
        }
    };
    let (rows, calls) = (("row", "rows"), ("call", "calls"));
    note(ProblemKind::LostRecords, unused.incomplete, rows, "without a start or a thread can't be used");
    note(ProblemKind::LostRecords, unused.negative_time, rows, "with an end before time zero can't be used");
    note(
        ProblemKind::LostRecords,
        unused.without_call,
        calls,
        "with device work in the trace, but not recorded between others that were",
    );
    note(
        ProblemKind::LostRecords,
        unused.nameless_calls,
        calls,
        "of functions whose names are not in the database, so nobody can say about waits there",
    );
    note(ProblemKind::NoDuration, unused.no_end, rows, "without an end, shown without a duration");
    note(
        ProblemKind::NoDuration,
        unused.backwards,
        ("piece", "pieces"),
        "of device work with an end before the beginning, shown without a duration",
    );
    note(ProblemKind::Symbols, unused.missing_strings, ("name", "names"), "not in the table of strings");
    note(ProblemKind::Note, unused.unknown_nvtx, ("NVTX event", "NVTX events"), "of unknown kinds not used");
}

/// What Nsight Systems itself says went wrong, for processes that are in the trace.
fn diagnostics(shown: &str, database: &Database, build: &Build<'_>, problems: &mut Vec<Problem>) {
    let mut said: Vec<(i64, String)> = Vec::new();
    database.scan("DIAGNOSTIC_EVENT", &["severity", "text", "globalPid"], None, &mut |row| {
        let severity = row.int(0).unwrap_or(0);
        let of_others = row.int(2).is_some_and(|pid| pid != 0 && !build.has_process(names::process_of(pid)));
        // 2 warning, 3 error; 1 and 4 only tell what was done.
        if !matches!(severity, 2 | 3) || of_others {
            return;
        }
        if let Some(text) = row.text(1).map(|text| text.trim().to_owned())
            && !said.iter().any(|(_, known)| *known == text)
        {
            said.push((severity, text));
        }
    });
    for (severity, text) in said {
        let (kind, more) = judge_diagnostic(severity, &text, build.unused.without_call);
        problems.push(Problem::new(kind, format!("{shown}: Nsight Systems says: {text}{more}")));
    }
}

/// Nsight Systems says in nearly every report that events "might" be missing. That is taken at its word only when the trace
/// shows that they are; what it says for certain is taken at its word always.
fn judge_diagnostic(severity: i64, text: &str, work_without_call: u64) -> (ProblemKind, &'static str) {
    let lower = text.to_ascii_lowercase();
    let about_events = ["cuda", "cupti", "nvtx", "event"].iter().any(|word| lower.contains(word));
    let might = lower.contains("might") || lower.contains("may ");
    let lost = ["dropped", "lost", "not all", "overflow", "discarded", "failed", "not started"]
        .iter()
        .any(|word| lower.contains(word));
    match (about_events && (lost || severity == 3), might) {
        (true, false) => (ProblemKind::LostRecords, ""),
        (true, true) if work_without_call == 0 => (
            ProblemKind::Note,
            " (all device work between the first and the last recorded call has its call, so nothing is known to be missing)",
        ),
        (true, true) => (ProblemKind::LostRecords, ""),
        (false, _) => (ProblemKind::Note, ""),
    }
}

/// Versions and devices, as the export names them.
fn versions(database: &Database) -> Vec<(String, String)> {
    let mut versions = Vec::new();
    let mut add = |name: &str, value: String| {
        if !value.is_empty() {
            versions.push((name.to_owned(), value));
        }
    };
    for table in ["META_DATA_EXPORT", "EXPORT_META_DATA"] {
        database.scan(table, &["name", "value"], None, &mut |row| {
            let (Some(name), Some(value)) = (row.text(0), row.text(1)) else { return };
            match &*name {
                "EXPORT_PRODUCT_VERSION" => add("nsight systems", value.into_owned()),
                "EXPORT_SCHEMA_VERSION" => add("export schema", value.into_owned()),
                _ => {}
            }
        });
    }
    if let Some(driver) = environment(database, "NvDriverVersion") {
        add("nvidia driver", driver);
    }
    if let Some(number) = environment(database, "CudaDriverVersion").and_then(|text| text.parse::<u32>().ok())
    {
        add("cuda driver", format!("{}.{}", number / 1000, number % 1000 / 10));
    }
    let mut devices: Vec<String> = Vec::new();
    database.scan("TARGET_INFO_GPU", &["name"], None, &mut |row| {
        devices.extend(row.text(0).map(std::borrow::Cow::into_owned).filter(|name| !devices.contains(name)));
    });
    devices.into_iter().for_each(|device| add("device", device));
    versions
}

/// A property of the machine that was recorded.
fn environment(database: &Database, property: &str) -> Option<String> {
    let mut found = None;
    database.scan("TARGET_INFO_SYSTEM_ENV", &["name", "value"], None, &mut |row| {
        if found.is_none() && row.text(0).is_some_and(|name| name == property) {
            found = row.text(1).map(std::borrow::Cow::into_owned).filter(|value| !value.is_empty());
        }
    });
    found
}

/// What to add to the times to have them on the clock of the world. They count from the start of the session, unless the export
/// was told to write wall-clock times.
fn session_start(database: &Database) -> i64 {
    let mut normalized = false;
    database.scan("META_DATA_EXPORT", &["name", "value"], None, &mut |row| {
        normalized |= row.text(0).is_some_and(|name| name == "EXPORT_PARAM_TIME_NORMALIZE")
            && row.text(1).is_some_and(|value| value == "true");
    });
    if normalized {
        return 0;
    }
    let mut start = 0;
    database.scan("TARGET_INFO_SESSION_START_TIME", &["utcEpochNs"], None, &mut |row| {
        start = row.int(0).filter(|&start| start > 0).unwrap_or(start);
    });
    start
}
