//! The trace directory that `syncaudit run` made: is it ours alone, and the handshake file in it.
//!
//! In: `SYNCAUDIT_TRACE_DIR`. Out: a directory that only this user can write to, or why it is refused. Must never
//! follow a symbolic link or write where somebody else could read or interfere.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Environment variable with the directory's absolute path.
pub const VARIABLE: &str = "SYNCAUDIT_TRACE_DIR";

/// Whether the traces may go to `path`: an existing directory of this user, closed to others.
///
/// # Errors
/// The reason as a sentence for the user.
pub fn check(path: &Path) -> Result<(), String> {
    let refuse = |why: String| Err(format!("not tracing: {VARIABLE}={} {why}", path.display()));
    if !path.is_absolute() {
        return refuse("is not an absolute path; give one".to_owned());
    }
    let metadata = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) => return refuse(format!("can't be read ({error}); create it with mode 0700")),
    };
    if metadata.file_type().is_symlink() {
        return refuse("is a symbolic link; name the directory itself".to_owned());
    }
    if !metadata.is_dir() {
        return refuse("is not a directory; name one".to_owned());
    }
    let user = effective_user();
    if metadata.uid() != user {
        return refuse(format!(
            "belongs to user {}, but the program runs as user {user}; use a directory of your own",
            metadata.uid()
        ));
    }
    if metadata.mode() & 0o077 != 0 {
        return refuse(format!(
            "is open to others (mode {:04o}); make it private with chmod 700",
            metadata.mode() & 0o7777
        ));
    }
    Ok(())
}

#[allow(unsafe_code)]
fn effective_user() -> u32 {
    // SAFETY: has no precondition and can't fail.
    unsafe { libc::geteuid() }
}

/// The `alive-PID-N` file beside `PID-N.salog`: `key=value` lines that tell the command what came up.
///
/// Opened anew for each line: programs close descriptors that they never opened, and the number would be another file's.
#[derive(Debug)]
pub struct Handshake(PathBuf);

impl Handshake {
    /// Creates the file for a log.
    ///
    /// # Errors
    /// When it exists already or the directory can't be written.
    pub fn create(log: &Path) -> io::Result<Self> {
        let stem = log.file_stem().unwrap_or(OsStr::new("unknown"));
        let mut name = std::ffi::OsString::from("alive-");
        name.push(stem);
        let path = log.with_file_name(name);
        Self::options().create_new(true).mode(0o600).open(&path)?;
        Ok(Self(path))
    }

    /// Adds a line. Failing is harmless: the log says the same.
    pub fn add(&self, key: &str, value: &str) {
        let line = format!("{key}={}\n", value.replace('\n', " "));
        let _ = Self::options().open(&self.0).and_then(|mut file| file.write_all(line.as_bytes()));
    }

    fn options() -> OpenOptions {
        let mut options = OpenOptions::new();
        options.append(true).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC);
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn private() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        std::fs::set_permissions(directory.path(), Permissions::from_mode(0o700)).unwrap();
        directory
    }

    #[test]
    fn a_private_directory_is_taken() {
        assert_eq!(check(private().path()), Ok(()));
    }

    #[test]
    fn everything_else_is_refused_with_the_reason() {
        let directory = private();
        let link = directory.path().join("link");
        symlink(directory.path(), &link).unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        let open = directory.path().join("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, Permissions::from_mode(0o750)).unwrap();
        for (path, reason) in [
            (link.as_path(), "symbolic link"),
            (file.as_path(), "not a directory"),
            (open.as_path(), "open to others (mode 0750)"),
            (&directory.path().join("missing"), "can't be read"),
            (Path::new("relative"), "not an absolute path"),
        ] {
            let error = check(path).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn a_directory_of_another_user_is_refused() {
        let directory = private();
        let other = 12345;
        if std::os::unix::fs::chown(directory.path(), Some(other), None).is_err() {
            eprintln!("skipped: only root can give a directory away");
            return;
        }
        let error = check(directory.path()).unwrap_err();
        assert!(error.contains("belongs to user 12345"), "{error}");
    }

    #[test]
    fn the_handshake_lies_beside_its_log_and_is_never_shared() {
        let directory = private();
        let log = directory.path().join("17-0.salog");
        let handshake = Handshake::create(&log).unwrap();
        handshake.add("nvtx", "1");
        handshake.add("problem", "two\nlines");
        let text = std::fs::read_to_string(directory.path().join("alive-17-0")).unwrap();
        assert_eq!(text, "nvtx=1\nproblem=two lines\n");
        assert!(Handshake::create(&log).is_err());
    }
}
