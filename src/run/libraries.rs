//! Where our shared objects are, and how the emulated device is put in the place of the driver.
//!
//! In: `SYNCAUDIT_LIB_DIR` and the place of this executable. Out: paths. Looks for files, loads none of them.

use crate::trouble::Trouble;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

pub const TRACER: &str = "libsyncaudit_tracer.so";
pub const EMULATOR: &str = "libsyncaudit_emulator.so";

/// The names under which programs open what the emulator stands in for, the driver and NCCL: the runtime and most launchers
/// use the first of each, some loaders (cudarc, ctypes scripts) try the second.
const EMULATED_NAMES: [&str; 4] = ["libcuda.so.1", "libcuda.so", "libnccl.so.2", "libnccl.so"];

/// Folders in which the shared objects are looked for, in this order. A folder named by the user is the only one: a
/// stale copy elsewhere must not be taken in its place.
pub fn folders(executable: &Path, lib_dir: Option<&OsStr>) -> Vec<PathBuf> {
    if let Some(folder) = lib_dir.filter(|folder| !folder.is_empty()) {
        return vec![PathBuf::from(folder)];
    }
    let Some(beside) = executable.parent() else { return Vec::new() };
    let mut folders = vec![beside.to_path_buf()];
    if let Some(prefix) = beside.parent() {
        folders.push(prefix.join("lib/syncaudit"));
    }
    folders
}

/// The absolute path of one of our shared objects.
pub fn find(name: &str, folders: &[PathBuf]) -> Result<PathBuf, Trouble> {
    for folder in folders {
        let candidate = folder.join(name);
        if candidate.is_file() {
            return candidate.canonicalize().map_err(|error| {
                Trouble::new(
                    format!("use {}", candidate.display()),
                    error.to_string(),
                    "check its permissions",
                )
            });
        }
    }
    let looked: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
    Err(Trouble::new(
        format!("find {name}"),
        format!("it is in none of: {}", looked.join(", ")),
        "keep it beside the syncaudit executable or in ../lib/syncaudit, or name its folder in SYNCAUDIT_LIB_DIR (from \
         a source checkout: cargo build --workspace)",
    ))
}

/// Makes `folder` with links that give the emulator the names of the driver and of NCCL.
pub fn link_driver(emulator: &Path, folder: &Path) -> Result<(), Trouble> {
    let failed = |error: std::io::Error| {
        Trouble::new(
            format!("put the emulated driver into {}", folder.display()),
            error.to_string(),
            "name another place for the trace with --trace PATH",
        )
    };
    if folder.as_os_str().as_encoded_bytes().iter().any(|byte| b":;".contains(byte)) {
        return Err(Trouble::new(
            format!("put the emulated driver into {}", folder.display()),
            "the path holds a `:` or `;`, which separate entries of LD_LIBRARY_PATH",
            "name another place for the trace with --trace PATH",
        ));
    }
    fs::create_dir(folder).map_err(failed)?;
    for name in EMULATED_NAMES {
        std::os::unix::fs::symlink(emulator, folder.join(name)).map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_the_user_is_the_only_one() {
        let executable = Path::new("/opt/x/bin/syncaudit");
        assert_eq!(folders(executable, Some(OsStr::new("/mine"))), [Path::new("/mine")]);
        assert_eq!(folders(executable, None), [Path::new("/opt/x/bin"), Path::new("/opt/x/lib/syncaudit")]);
        assert_eq!(folders(executable, Some(OsStr::new(""))).len(), 2);
    }

    #[test]
    fn a_missing_library_says_where_it_was_looked_for() {
        let dir = tempfile::tempdir().unwrap();
        let folders = [dir.path().join("a"), dir.path().join("b")];
        let text = find(TRACER, &folders).unwrap_err().to_string();
        for word in [
            TRACER,
            "SYNCAUDIT_LIB_DIR",
            &folders[0].display().to_string(),
            &folders[1].display().to_string(),
        ] {
            assert!(text.contains(word), "{word} in {text}");
        }
        fs::create_dir(&folders[1]).unwrap();
        fs::write(folders[1].join(TRACER), b"").unwrap();
        assert_eq!(find(TRACER, &folders).unwrap(), folders[1].canonicalize().unwrap().join(TRACER));
    }

    #[test]
    fn every_name_of_driver_and_nccl_leads_to_the_emulator() {
        let dir = tempfile::tempdir().unwrap();
        let emulator = dir.path().join(EMULATOR);
        fs::write(&emulator, b"x").unwrap();
        link_driver(&emulator, &dir.path().join("lib")).unwrap();
        for name in EMULATED_NAMES {
            assert_eq!(fs::read(dir.path().join("lib").join(name)).unwrap(), b"x");
        }
        assert!(link_driver(&emulator, &dir.path().join("lib")).is_err());
    }
}
