//! Writes the pages of the rules into a folder: `cargo xtask docs`.

use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let folder = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("docs/rules"), PathBuf::from);
    std::fs::create_dir_all(&folder)?;
    for entry in std::fs::read_dir(&folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            std::fs::remove_file(path)?;
        }
    }
    for (name, text) in syncaudit::rules::pages() {
        std::fs::write(folder.join(name), text)?;
    }
    Ok(())
}
