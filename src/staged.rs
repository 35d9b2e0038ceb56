//! A file that is written as a whole or not at all.
//!
//! In: where it goes, long before there is anything to write. Out: the file with all of its text, put in place in one step, so that nobody ever
//! reads half of it. That the place can be written is found out at once; what was there stays until the new text is complete.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file that is about to be written.
#[derive(Debug)]
pub struct Staged {
    /// Where it goes, links followed: a link stays one.
    target: PathBuf,
    file: File,
    /// The file beside the target that holds the text until it is complete; `None` where the target is no regular file (a pipe, a terminal) and
    /// is written directly.
    beside: Option<PathBuf>,
}

impl Staged {
    /// Makes sure that the file can be written.
    ///
    /// # Errors
    /// When it can't: no such folder, no permission, a folder in its place.
    pub fn open(path: &Path) -> io::Result<Self> {
        let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        match std::fs::metadata(&target) {
            Ok(metadata) if metadata.is_dir() => Err(io::Error::from(io::ErrorKind::IsADirectory)),
            Ok(metadata) if !metadata.is_file() => {
                Ok(Self { file: OpenOptions::new().write(true).open(&target)?, target, beside: None })
            }
            there => {
                // What must not be written must not be replaced either.
                if there.is_ok() {
                    OpenOptions::new().write(true).open(&target)?;
                }
                let mut name = target.file_name().unwrap_or_default().to_owned();
                name.push(format!(".{}.new", std::process::id()));
                let beside = target.with_file_name(name);
                let file = OpenOptions::new().write(true).create_new(true).open(&beside)?;
                if let Ok(metadata) = there {
                    file.set_permissions(metadata.permissions())?;
                }
                Ok(Self { target, file, beside: Some(beside) })
            }
        }
    }

    /// Writes the text and puts it in place.
    ///
    /// # Errors
    /// When the disk is full, or the place was taken away meanwhile; what was there is there still.
    pub fn write(mut self, text: &str) -> io::Result<()> {
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.flush());
        let Some(beside) = &self.beside else {
            // A reader of a pipe that went away has seen what it wanted.
            return written.or_else(|error| match error.kind() {
                io::ErrorKind::BrokenPipe => Ok(()),
                _ => Err(error),
            });
        };
        written?;
        self.file.sync_all()?;
        std::fs::rename(beside, &self.target)?;
        self.beside = None;
        Ok(())
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if let Some(beside) = &self.beside {
            drop(std::fs::remove_file(beside));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn the_old_text_stays_until_the_new_one_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report");
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let staged = Staged::open(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        staged.write("new").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(names(folder.path()), ["report"]);
    }

    #[test]
    fn what_is_not_written_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        drop(Staged::open(&folder.path().join("report")).unwrap());
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn a_link_stays_one_and_a_folder_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("real"), folder.path().join("link"));
        std::fs::write(&real, "old").unwrap();
        symlink(&real, &link).unwrap();
        Staged::open(&link).unwrap().write("new").unwrap();
        assert_eq!(std::fs::read_to_string(&real).unwrap(), "new");
        assert!(link.is_symlink());
        assert!(Staged::open(folder.path()).is_err());
        assert!(Staged::open(Path::new("/no/such/folder/report")).is_err());
    }

    #[test]
    fn what_is_no_file_is_written_directly() {
        Staged::open(Path::new("/dev/null")).unwrap().write("text").unwrap();
        assert!(!Path::new("/dev/null").is_file());
    }
}
