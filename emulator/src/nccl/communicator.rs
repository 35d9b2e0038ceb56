//! Communicators: how the ranks of a job find each other, and the sockets between them.
//!
//! The unique id is a random name. Rank 0 listens under it (in the abstract namespace, so nothing is left in the file system),
//! the others connect to it. Whoever does not come in time is an error that says who.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::{Code, Failure, Result};
use crate::handles::{self, lock};
use crate::worker::Ticket;

/// How long ranks wait for each other in `ncclCommInitRank`.
const PATIENCE: Duration = Duration::from_secs(60);

/// `ncclUniqueId`: 128 bytes, passed by value.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct UniqueId {
    bytes: [u8; 128],
}

const MAGIC: &[u8; 16] = b"syncaudit-nccl-1";
const RANDOM: usize = 16;

impl UniqueId {
    /// An id that nobody else has.
    pub fn new() -> Result<Self> {
        let mut bytes = [0; 128];
        bytes[..MAGIC.len()].copy_from_slice(MAGIC);
        let random = &mut bytes[MAGIC.len()..MAGIC.len() + RANDOM];
        File::open("/dev/urandom")
            .and_then(|mut file| file.read_exact(random))
            .map_err(|error| system(format!("no random numbers: {error}")))?;
        Ok(Self { bytes })
    }

    fn address(&self) -> Result<SocketAddr> {
        if !self.bytes.starts_with(MAGIC) {
            return Err(Failure::new(
                Code::InvalidArgument,
                "the unique id is not from the emulated NCCL: take it from ncclGetUniqueId on rank 0",
            ));
        }
        let random: String =
            self.bytes[MAGIC.len()..MAGIC.len() + RANDOM].iter().map(|b| format!("{b:02x}")).collect();
        SocketAddr::from_abstract_name(format!("syncaudit-nccl-{random}"))
            .map_err(|error| system(format!("no socket name: {error}")))
    }
}

fn system(why: String) -> Failure {
    Failure::new(Code::SystemError, why)
}

/// One rank's part of a group of ranks.
pub struct Communicator {
    pub handle: usize,
    pub rank: usize,
    pub ranks: usize,
    /// Behind the last collective that was issued.
    pub last: Mutex<Option<Ticket>>,
    /// On rank 0 to every other rank, by rank; elsewhere to rank 0. Empty once something failed.
    links: Mutex<Vec<(usize, UnixStream)>>,
    /// Second handles of the same sockets, for an abort while a worker holds `links`.
    aborts: Vec<UnixStream>,
    error: AtomicU32,
}

impl Communicator {
    /// Meets the other ranks; comes back when all of them are there.
    pub fn join(id: &UniqueId, rank: usize, ranks: usize) -> Result<Arc<Self>> {
        let address = id.address()?;
        let until = Instant::now() + PATIENCE;
        let links =
            if rank == 0 { gather(&address, ranks, until)? } else { connect(&address, rank, ranks, until)? };
        let aborts = links
            .iter()
            .map(|(_, link)| link.try_clone())
            .collect::<std::io::Result<_>>()
            .map_err(|error| system(format!("no second handle of a socket: {error}")))?;
        Ok(Arc::new(Self {
            handle: handles::fresh(),
            rank,
            ranks,
            last: Mutex::new(None),
            links: Mutex::new(links),
            aborts,
            error: AtomicU32::new(0),
        }))
    }

    /// The sockets, for one collective.
    pub fn links(&self) -> Result<MutexGuard<'_, Vec<(usize, UnixStream)>>> {
        let links = lock(&self.links);
        if links.is_empty() && self.ranks > 1 {
            return Err(Failure::new(Code::RemoteError, "the communicator has failed before"));
        }
        Ok(links)
    }

    /// Remembers the first failure.
    pub fn fail(&self, code: Code) {
        let _ = self.error.compare_exchange(0, code as u32, Ordering::AcqRel, Ordering::Acquire);
        self.abort();
    }

    /// `ncclResult_t` of what went wrong on a stream; 0 if nothing did.
    pub fn asynchronous_error(&self) -> u32 {
        self.error.load(Ordering::Acquire)
    }

    /// Ends the sockets, also under a collective that is running.
    pub fn abort(&self) {
        for link in &self.aborts {
            // It may be closed already.
            let _ = link.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// Rank 0: one connection from every other rank.
fn gather(address: &SocketAddr, ranks: usize, until: Instant) -> Result<Vec<(usize, UnixStream)>> {
    let failed = |error: std::io::Error| system(format!("cannot listen for the other ranks: {error}"));
    let listener = UnixListener::bind_addr(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let mut links: Vec<(usize, UnixStream)> = Vec::new();
    while links.len() + 1 < ranks {
        wait_readable(&listener, until).map_err(|error| {
            let missing: Vec<String> = (1..ranks)
                .filter(|rank| links.iter().all(|(known, _)| known != rank))
                .map(|rank| rank.to_string())
                .collect();
            let found = format!("rank(s) {} of {ranks} did not come", missing.join(", "));
            Failure::new(Code::RemoteError, format!("{found} within {} s ({error})", PATIENCE.as_secs()))
        })?;
        let mut link = match listener.accept() {
            Ok((link, _)) => link,
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(error) => return Err(failed(error)),
        };
        link.set_nonblocking(false).map_err(failed)?;
        link.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        let mut hello = [0; 8];
        if link.read_exact(&mut hello).is_err() {
            continue; // it died right after it had connected; somebody is missing, or it comes again
        }
        link.set_read_timeout(None).map_err(failed)?;
        let [rank, size] = [0, 4]
            .map(|at| u32::from_le_bytes([hello[at], hello[at + 1], hello[at + 2], hello[at + 3]]) as usize);
        let known = links.iter().any(|(known, _)| *known == rank);
        if size != ranks || rank == 0 || rank >= ranks || known {
            return Err(Failure::new(
                Code::InvalidUsage,
                format!(
                    "rank 0 of {ranks} was joined by a rank {rank} of {size}{}",
                    if known { " for a second time" } else { "" }
                ),
            ));
        }
        links.push((rank, link));
    }
    links.sort_by_key(|(rank, _)| *rank);
    for (rank, link) in &mut links {
        link.write_all(&[1]).map_err(|_| Failure::new(Code::RemoteError, format!("rank {rank} is gone")))?;
    }
    Ok(links)
}

/// Another rank: a connection to rank 0, which may not listen yet.
fn connect(
    address: &SocketAddr,
    rank: usize,
    ranks: usize,
    until: Instant,
) -> Result<Vec<(usize, UnixStream)>> {
    let gone = || Failure::new(Code::RemoteError, "rank 0 refused, or is gone");
    let mut link = loop {
        match UnixStream::connect_addr(address) {
            Ok(link) => break link,
            Err(error) if Instant::now() > until => {
                return Err(Failure::new(
                    Code::RemoteError,
                    format!("rank 0 did not come within {} s ({error})", PATIENCE.as_secs()),
                ));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let hello = [rank as u32, ranks as u32].map(u32::to_le_bytes).concat();
    link.write_all(&hello).map_err(|_| gone())?;
    link.set_read_timeout(Some(PATIENCE)).map_err(|_| gone())?;
    link.read_exact(&mut [0]).map_err(|_| gone())?;
    link.set_read_timeout(None).map_err(|_| gone())?;
    Ok(vec![(0, link)])
}

fn wait_readable(listener: &UnixListener, until: Instant) -> std::io::Result<()> {
    let rest = until.saturating_duration_since(Instant::now()).as_millis().min(i32::MAX as u128) as i32;
    let mut poll = libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd, which lives here; the descriptor is the listener's.
    match unsafe { libc::poll(&raw mut poll, 1, rest) } {
        0 => Err(ErrorKind::TimedOut.into()),
        n if n < 0 => {
            let error = std::io::Error::last_os_error();
            if error.kind() == ErrorKind::Interrupted { Ok(()) } else { Err(error) }
        }
        _ => Ok(()),
    }
}
