//! The commands of the gate, one file each. They read files and write reports; the rules are the library's.

mod baseline;
mod check;
mod diff;
mod init;

pub use baseline::baseline;
pub use check::check;
pub use diff::diff;
pub use init::init;

use crate::trouble::Trouble;
use std::io::Write;
use std::path::Path;

/// Puts a text in the place of a file as a whole, so that nobody ever reads half of it; `-` is stdout.
fn write_whole(path: &Path, text: &str) -> Result<(), Trouble> {
    if path.as_os_str() == "-" {
        return crate::judge::to_stream(&mut std::io::stdout().lock(), text);
    }
    let written = || -> std::io::Result<()> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.new", std::process::id()));
        let beside = path.with_file_name(name);
        let mut file = std::fs::File::create(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&beside, path)
    };
    written().map_err(|error| {
        Trouble::new(
            format!("write {}", path.display()),
            error.to_string(),
            "name a place that can be written",
        )
    })
}
