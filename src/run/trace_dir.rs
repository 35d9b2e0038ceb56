//! The private directory into which the traced processes write.
//!
//! In: the place asked for. Out: an absolute path of a directory that is ours alone (mode 0700). The tracer refuses
//! anything else, so nothing else is ever handed to it.

use crate::trouble::Trouble;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Where traces go unless `--trace` says otherwise, relative to the working directory.
pub const DEFAULT_PARENT: &str = ".syncaudit";

/// Makes the directory. `program` only helps a person to recognise it later.
pub fn create(asked: Option<&Path>, program: &OsStr) -> Result<PathBuf, Trouble> {
    let path = match asked {
        Some(path) => {
            claim(path)?;
            path.to_path_buf()
        }
        None => fresh(program)?,
    };
    path.canonicalize().map_err(|error| failed(&path, &error))
}

fn failed(path: &Path, error: &io::Error) -> Trouble {
    Trouble::new(
        format!("make the trace directory {}", path.display()),
        error.to_string(),
        "name a place that can be written with --trace PATH",
    )
}

/// A directory with an unpredictable name under [`DEFAULT_PARENT`].
fn fresh(program: &OsStr) -> Result<PathBuf, Trouble> {
    let parent = Path::new(DEFAULT_PARENT);
    match DirBuilder::new().mode(0o700).create(parent) {
        // Traces are no source: keep them out of the user's `git status`. Not worth an error.
        Ok(()) => drop(fs::write(parent.join(".gitignore"), "*\n")),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed(parent, &error)),
    }
    let stem = Path::new(program).file_name().unwrap_or(OsStr::new("program")).to_string_lossy().into_owned();
    let path = parent.join(format!("{stem}-{}", random_name().map_err(|error| failed(parent, &error))?));
    DirBuilder::new().mode(0o700).create(&path).map_err(|error| failed(&path, &error))?;
    Ok(path)
}

/// Sixteen hex digits that nobody can guess.
pub fn random_name() -> io::Result<String> {
    let mut bytes = [0u8; 8];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Takes a directory that the user named: makes it, or accepts an empty one of their own.
fn claim(path: &Path) -> Result<(), Trouble> {
    let refused = |found: &str| {
        Trouble::new(
            format!("use {} for the trace", path.display()),
            found,
            "name a directory that is not there yet, or an empty one of yours",
        )
    };
    let meta = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                fs::create_dir_all(parent).map_err(|error| failed(parent, &error))?;
            }
            return DirBuilder::new().mode(0o700).create(path).map_err(|error| failed(path, &error));
        }
        Err(error) => return Err(failed(path, &error)),
        Ok(meta) => meta,
    };
    if meta.is_symlink() {
        return Err(refused("it is a symbolic link"));
    }
    if !meta.is_dir() {
        return Err(refused("it is not a directory"));
    }
    if meta.uid() != rustix::process::geteuid().as_raw() {
        return Err(refused("it belongs to another user"));
    }
    if fs::read_dir(path).map_err(|error| failed(path, &error))?.next().is_some() {
        return Err(refused("it is not empty"));
    }
    // Empty and ours: closing it to others takes nothing from anybody.
    fs::set_permissions(path, fs::Permissions::from_mode(0o700)).map_err(|error| failed(path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    fn complaint(path: &Path) -> String {
        create(Some(path), OsStr::new("p")).expect_err("refused").to_string()
    }

    #[test]
    fn a_new_directory_is_made_with_its_parents_and_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let made = create(Some(&dir.path().join("a/b")), OsStr::new("p")).unwrap();
        assert!(made.is_absolute());
        assert_eq!(mode(&made), 0o700);
    }

    #[test]
    fn an_empty_directory_of_ours_is_closed_to_others() {
        let dir = tempfile::tempdir().unwrap();
        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(mode(&create(Some(&open), OsStr::new("p")).unwrap()), 0o700);
    }

    #[test]
    fn what_is_used_already_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let full = dir.path().join("full");
        fs::create_dir(&full).unwrap();
        fs::write(full.join("x"), b"x").unwrap();
        assert!(complaint(&full).contains("not empty"));
        assert!(complaint(&full.join("x")).contains("not a directory"));
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        assert!(complaint(&link).contains("symbolic link"));
    }

    #[test]
    fn names_do_not_repeat() {
        assert_ne!(random_name().unwrap(), random_name().unwrap());
        assert_eq!(random_name().unwrap().len(), 16);
    }
}
