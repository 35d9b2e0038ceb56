//! Opens a file, or standard input, as the plain text or database that it stands for.
//!
//! In: a path. Out: a reader of what is inside, with its first bytes at hand to tell what it is. Compression is found by
//! content, never by name: gzip (one or more members, padding after them) and zstd (one or more frames), also one in the
//! other. It must never unpack more than it is asked for.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::ImportError;

/// How many of the first bytes are at hand.
const HEAD: usize = 4096;
/// A file compressed more often than this is no accident.
const LAYERS: usize = 4;
const BLOCK: usize = 256 << 10;

/// A file that was opened.
pub(super) struct Input {
    /// The first bytes of what is inside, up to 4096.
    pub head: Vec<u8>,
    pub reader: Box<dyn Read + Send>,
    pub counts: Arc<Counts>,
}

/// What became known of a file while it was read.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Bytes read of the file itself.
    pub read: AtomicU64,
    /// Bytes after the compressed data that belong to nothing, padding with NUL bytes left out.
    pub foreign: AtomicU64,
}

/// The path that stands for standard input.
pub(super) const STANDARD_INPUT: &str = "-";

/// Opens the file at `path`.
pub(super) fn open(path: &Path) -> Result<Input, ImportError> {
    let counts = Arc::new(Counts::default());
    let file: Box<dyn Read + Send> = if path.as_os_str() == STANDARD_INPUT {
        Box::new(io::stdin())
    } else {
        Box::new(File::open(path).map_err(|error| ImportError::new(path, cannot_open(&error)))?)
    };
    let counted = Counted { reader: file, counts: Arc::clone(&counts) };
    let unreadable = |error: io::Error| ImportError::new(path, format!("reading failed: {error}"));
    let (mut head, mut reader) = with_head(Box::new(counted)).map_err(unreadable)?;
    let mut compressed = false;
    for _ in 0..LAYERS {
        reader = match head.get(..4) {
            Some([0x1f, 0x8b, ..]) => Box::new(Gzip::new(reader, Arc::clone(&counts))),
            Some([0x28, 0xb5, 0x2f, 0xfd]) => Box::new(Zstd::new(reader, Arc::clone(&counts))),
            _ => break,
        };
        compressed = true;
        (head, reader) = with_head(reader).map_err(|error| {
            ImportError::new(
                path,
                format!("{}, so that nothing of it can be unpacked", unpacking_failed(&error)),
            )
        })?;
    }
    if compressed {
        reader = Box::new(Ahead::new(reader));
    }
    Ok(Input { head, reader, counts })
}

/// Why unpacking failed.
pub(super) fn unpacking_failed(error: &io::Error) -> String {
    // The end of the file may lie under what the decoder says about it.
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        let io_error = error.downcast_ref::<io::Error>();
        if io_error.is_some_and(|error| error.kind() == io::ErrorKind::UnexpectedEof) {
            return "the compressed file is cut off".to_owned();
        }
        // A wrapped error is no source of the one that wraps it.
        let inner =
            io_error.and_then(io::Error::get_ref).map(|inner| inner as &(dyn std::error::Error + 'static));
        cause = inner.or_else(|| error.source());
    }
    format!("the compressed file is damaged ({error})")
}

fn cannot_open(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is nothing of that name".to_owned(),
        io::ErrorKind::PermissionDenied => "you may not read it".to_owned(),
        _ => format!("it can't be opened: {error}"),
    }
}

/// Reads the first bytes, and gives them back to the reader.
fn with_head(mut reader: Box<dyn Read + Send>) -> io::Result<(Vec<u8>, Box<dyn Read + Send>)> {
    let mut head = Vec::new();
    // A compressed file that breaks off within its first bytes still has those.
    let error = reader.by_ref().take(HEAD as u64).read_to_end(&mut head).err();
    match error {
        Some(error) if head.is_empty() => Err(error),
        Some(error) => {
            let rest = Broken(Some(error));
            Ok((head.clone(), Box::new(io::Cursor::new(head).chain(rest))))
        }
        None => Ok((head.clone(), Box::new(io::Cursor::new(head).chain(reader)))),
    }
}

/// A reader of which nothing is left but its error.
struct Broken(Option<io::Error>);

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

struct Counted {
    reader: Box<dyn Read + Send>,
    counts: Arc<Counts>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.counts.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

type Packed = BufReader<Box<dyn Read + Send>>;

/// Members of a gzip file one after the other, until something else follows.
struct Gzip {
    /// `None` after the last member.
    member: Option<flate2::bufread::GzDecoder<Packed>>,
    counts: Arc<Counts>,
}

impl Gzip {
    fn new(reader: Box<dyn Read + Send>, counts: Arc<Counts>) -> Self {
        let packed = BufReader::with_capacity(BLOCK, reader);
        Self { member: Some(flate2::bufread::GzDecoder::new(packed)), counts }
    }
}

impl Read for Gzip {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(member) = &mut self.member else { return Ok(0) };
            let count = member.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            let Some(member) = self.member.take() else { return Ok(0) };
            let mut packed = member.into_inner();
            if starts_with(&mut packed, &[0x1f, 0x8b])? {
                self.member = Some(flate2::bufread::GzDecoder::new(packed));
            } else {
                count_foreign(packed, &self.counts)?;
            }
        }
    }
}

/// Frames of a zstd file one after the other.
struct Zstd {
    frame: Option<Frame>,
    counts: Arc<Counts>,
}

type Frame = ruzstd::decoding::StreamingDecoder<Packed, ruzstd::decoding::FrameDecoder>;

impl Zstd {
    fn new(reader: Box<dyn Read + Send>, counts: Arc<Counts>) -> Self {
        let packed = BufReader::with_capacity(BLOCK, reader);
        Self { frame: Frame::new(packed).ok(), counts }
    }
}

impl Read for Zstd {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(frame) = &mut self.frame else { return Ok(0) };
            let count = frame.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            let Some(frame) = self.frame.take() else { return Ok(0) };
            let mut packed = frame.into_inner();
            if starts_with(&mut packed, &[0x28, 0xb5, 0x2f, 0xfd])? {
                let next =
                    Frame::new(packed).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                self.frame = Some(next);
            } else {
                count_foreign(packed, &self.counts)?;
            }
        }
    }
}

fn starts_with(packed: &mut Packed, magic: &[u8]) -> io::Result<bool> {
    Ok(packed.fill_buf()?.starts_with(magic))
}

/// Counts what follows compressed data. NUL bytes are the padding of tapes and block devices, and no loss.
fn count_foreign(mut packed: Packed, counts: &Counts) -> io::Result<()> {
    loop {
        let bytes = packed.fill_buf()?;
        if bytes.is_empty() {
            return Ok(());
        }
        let foreign = bytes.iter().filter(|&&byte| byte != 0).count();
        counts.foreign.fetch_add(foreign as u64, Ordering::Relaxed);
        let length = bytes.len();
        packed.consume(length);
    }
}

/// Unpacks on another thread, a few blocks ahead, so that reading the text costs no time beyond unpacking it.
struct Ahead {
    blocks: Receiver<io::Result<Vec<u8>>>,
    block: Vec<u8>,
    at: usize,
}

impl Ahead {
    fn new(reader: Box<dyn Read + Send>) -> Self {
        let (sender, blocks) = sync_channel(4);
        // Without a thread of its own (none can be had), the sender is gone and so is the text: say so.
        let spawned =
            std::thread::Builder::new().name("unpack".to_owned()).spawn(move || unpack(reader, &sender));
        let broken = spawned.err().map(|error| {
            let (sender, blocks) = sync_channel(1);
            let _ = sender.send(Err(error));
            blocks
        });
        Self { blocks: broken.unwrap_or(blocks), block: Vec::new(), at: 0 }
    }
}

/// Sends blocks until the text ends or nobody wants more.
fn unpack(mut reader: Box<dyn Read + Send>, blocks: &SyncSender<io::Result<Vec<u8>>>) {
    loop {
        let mut block = Vec::with_capacity(BLOCK);
        let outcome = reader.by_ref().take(BLOCK as u64).read_to_end(&mut block);
        let ended = block.is_empty();
        if !ended && blocks.send(Ok(block)).is_err() {
            return;
        }
        match outcome {
            Ok(_) if ended => return,
            Ok(_) => {}
            Err(error) => {
                let _ = blocks.send(Err(error));
                return;
            }
        }
    }
}

impl Read for Ahead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.block.len() {
            match self.blocks.recv() {
                Ok(block) => (self.block, self.at) = (block?, 0),
                Err(_) => return Ok(0),
            }
        }
        let rest = &self.block[self.at..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.at += count;
        Ok(count)
    }
}
