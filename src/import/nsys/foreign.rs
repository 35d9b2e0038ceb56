//! What a file is that belongs to Nsight Systems but is no database, or a database but not one of Nsight Systems.
//!
//! In: a path or the names of tables. Out: what it is and which command makes a trace of it. Every answer is a full sentence.

use std::path::Path;

use super::database::Database;

/// The command that makes a database of a report, and what it needs.
fn export_command(report: &Path) -> String {
    let name = report.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let stem = name.rsplit_once('.').map_or(name.as_str(), |(stem, _)| stem);
    format!("nsys export --type sqlite --output {stem}.sqlite {name}")
}

/// A report of Nsight Systems in its own format, by its name.
pub(in crate::import) fn report_file(path: &Path) -> Option<String> {
    let extension = path.extension()?.to_string_lossy().to_ascii_lowercase();
    match extension.as_str() {
        "nsys-rep" | "qdrep" => Some(format!(
            "this is a report of Nsight Systems in its own format, which only Nsight Systems reads. Make a database of it \
             with '{}' and give that",
            export_command(path)
        )),
        "qdstrm" => Some(
            "this is a raw recording of Nsight Systems that was not made into a report yet. Do that with 'QdstrmImporter -i \
             FILE.qdstrm' of the same version, then 'nsys export --type sqlite FILE.nsys-rep', and give the database"
                .to_owned(),
        ),
        _ => None,
    }
}

/// Tables that only exports of Nsight Systems have.
const OURS: [&str; 6] = [
    "META_DATA_EXPORT",
    "EXPORT_META_DATA",
    "META_DATA_CAPTURE",
    "TARGET_INFO_SYSTEM_ENV",
    "NVTX_EVENTS",
    "ANALYSIS_DETAILS",
];

/// Says what a database is that is no export of Nsight Systems; `None` for one that is.
pub(super) fn other_database(path: &Path, database: &Database) -> Option<String> {
    let tables = database.tables();
    let calls_by_name = database.has_column("CUPTI_ACTIVITY_KIND_RUNTIME", "nameId");
    if OURS.iter().any(|table| database.has(table)) || calls_by_name {
        return None;
    }
    let any = |part: &str| tables.iter().any(|table| table.to_ascii_lowercase().contains(part));
    let name = path.file_name().map(|name| name.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
    if name.contains("dlprof") || name.contains("dldb") || any("dlprof") || any("view_op_nodes") {
        return Some(
            "this is a database of DLProf, which holds sums per operator and no single calls. DLProf leaves the recording of \
             Nsight Systems beside it (nsys_profile.sqlite, or nsys_profile.qdrep for 'nsys export --type sqlite'): give that"
                .to_owned(),
        );
    }
    if database.has_column("CUPTI_ACTIVITY_KIND_RUNTIME", "cbid") {
        return Some(
            "this is a database of nvprof or the Visual Profiler, which say nothing of memory kinds and ranges that could be \
             relied on. Record with 'nsys profile -t cuda,nvtx' and export with 'nsys export --type sqlite'"
                .to_owned(),
        );
    }
    if any("rocpd_") {
        return Some(
            "this is a database of AMD's rocprof. Record with torch.profiler instead and give its JSON trace"
                .to_owned(),
        );
    }
    let list = match tables.as_slice() {
        [] => "it has no tables at all".to_owned(),
        names if names.len() <= 5 => format!("its tables are {}", names.join(", ")),
        names => format!("its tables are {} and {} more", names[..5].join(", "), names.len() - 5),
    };
    Some(format!(
        "this is a SQLite database, but none that Nsight Systems exported: {list}. Record with 'nsys profile -t cuda,nvtx' \
         and export with 'nsys export --type sqlite'"
    ))
}
