//! How much a log holds at the moment, for whoever follows one that is being written.
//!
//! In: a path. Out: a number that grows with every record. The file's length doesn't tell: it grows ahead of the records. Only the
//! counters of the chunks are read, a few bytes in 64 KiB.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use crate::format::{AT_CHUNK_COMMITTED, AT_STATE, SLOT_BYTES};

/// Bytes of complete records in all chunks, plus one once the log is sealed.
///
/// # Errors
/// When the file can't be read. A file that is no log yields a number without meaning.
pub fn committed_bytes(path: &Path) -> io::Result<u64> {
    let mut file = File::open(path)?;
    let slots = file.metadata()?.len() / SLOT_BYTES as u64;
    let mut total = u64::from(field(&mut file, AT_STATE as u64)?);
    for slot in 1..slots {
        total += u64::from(field(&mut file, slot * SLOT_BYTES as u64 + AT_CHUNK_COMMITTED as u64)?);
    }
    Ok(total)
}

/// A number of the file; 0 where the file ends before it.
fn field(file: &mut File, at: u64) -> io::Result<u32> {
    let mut bytes = [0; 4];
    file.seek(SeekFrom::Start(at))?;
    match file.read_exact(&mut bytes) {
        Ok(()) => Ok(u32::from_le_bytes(bytes)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
        Err(error) => Err(error),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::{DomainId, EndReason, LogWriter, Options, Record};

    #[test]
    fn every_record_and_the_end_make_it_grow() {
        let directory = std::env::temp_dir().join(format!("syncaudit-growth-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let writer = LogWriter::create(&directory, Options::default()).unwrap();
        let mut log = writer.thread();
        let mut before = committed_bytes(writer.path()).unwrap();
        for t_ns in 0..5_000 {
            log.write(&Record::RangePop { t_ns, domain: DomainId::NONE });
            if t_ns % 500 == 0 {
                let now = committed_bytes(writer.path()).unwrap();
                assert!(now > before, "{now} after {before}");
                before = now;
            }
        }
        log.end(EndReason::Exit, 0);
        drop(log);
        writer.seal();
        assert!(committed_bytes(writer.path()).unwrap() > before);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
