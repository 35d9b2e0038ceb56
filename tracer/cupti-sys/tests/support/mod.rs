//! Where the tests find NVIDIA's own files: `target/vendor`, filled by `scripts/fetch-vendor-libs.sh`, or the folder named
//! in `SYNCAUDIT_VENDOR`.

use std::path::{Path, PathBuf};

pub fn vendor() -> PathBuf {
    std::env::var_os("SYNCAUDIT_VENDOR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/vendor"), PathBuf::from)
}

/// The folders `cupti-VERSION`, by version; says so when there are none.
pub fn cupti_folders() -> Vec<(String, PathBuf)> {
    let mut folders: Vec<_> = std::fs::read_dir(vendor())
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let version = path.file_name()?.to_str()?.strip_prefix("cupti-")?.to_owned();
            Some((version, path))
        })
        .collect();
    folders.sort();
    if folders.is_empty() {
        eprintln!("skipped: no CUPTI in {}; run scripts/fetch-vendor-libs.sh", vendor().display());
    }
    folders
}
