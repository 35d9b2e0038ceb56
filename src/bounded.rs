//! Reads small files whole: budget files, settings, baselines.
//!
//! In: a path. Out: its bytes. Must never take all memory: what is named may be a device without an end (`/dev/zero`).

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Thirty times a baseline of 100,000 places.
const MOST_MIB: u64 = 256;

/// The bytes of a file.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_up_to(path, MOST_MIB)
}

fn read_up_to(path: &Path, mib: u64) -> io::Result<Vec<u8>> {
    let most = mib << 20;
    let mut bytes = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > most {
        true => Err(io::Error::other(format!("it is larger than {mib} MiB"))),
        false => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_an_end_is_refused_and_one_of_the_most_is_read() {
        let refused = read_up_to(Path::new("/dev/zero"), 1).unwrap_err();
        assert_eq!(refused.to_string(), "it is larger than 1 MiB");
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        assert_eq!(read_up_to(file.path(), 1).unwrap().len(), 1 << 20);
        file.as_file().set_len((1 << 20) + 1).unwrap();
        assert!(read_up_to(file.path(), 1).is_err());
    }
}
