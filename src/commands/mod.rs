//! The commands of the gate and `explain`, one file each. They read files and write reports; the rules are the library's.

mod baseline;
mod check;
mod diff;
mod explain;
mod init;
mod what_if;

pub use baseline::baseline;
pub use check::check;
pub use diff::diff;
pub use explain::explain;
pub use init::init;
pub use what_if::what_if_command as what_if;

use crate::staged::Staged;
use crate::trouble::Trouble;
use std::path::Path;

/// Puts a text in the place of a file; `-` is stdout.
fn write_whole(path: &Path, text: &str) -> Result<(), Trouble> {
    if path.as_os_str() == "-" {
        return crate::judge::to_stdout(text);
    }
    Staged::open(path).and_then(|file| file.write(text)).map_err(|error| {
        Trouble::new(
            format!("write {}", path.display()),
            error.to_string(),
            "name a place that can be written",
        )
    })
}
