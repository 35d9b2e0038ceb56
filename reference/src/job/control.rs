//! The control links: everybody's connection to rank 0, from the first word to the last.
//!
//! In: a place in the job. Out: the welcome (who is where, where the run stands), and then, while the run lasts, finished steps
//! to rank 0, word of commits to the rollouts, and the end. A link that breaks before rank 0 has said that all is done
//! means that a process is gone: this process then ends with status [`PEER_LOST`], whatever it is doing.

use super::link::{Hello, Link, Message, Welcome, connect};
use super::shares::Shares;
use super::{Layout, PEER_LOST, Place, Role};
use crate::error::{Error, Result};
use crate::rollout::window::Window;
use crate::train::acks::AckSender;
use crate::train::ledger::StepSamples;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long rank 0 stays, when all is done, for the others to hear of it.
const FAREWELL: Duration = Duration::from_secs(10);

/// Ends this process because `who` is gone. The supervisor, where there is one, says it better.
fn lost(own: &str, who: &str, supervised: bool) -> ! {
    if !supervised {
        eprintln!(
            "dflash-train: {own}: {who} is gone, so this process ends too; start the job again to go on from the checkpoint"
        );
    }
    std::process::exit(PEER_LOST)
}

/// A listener that the ranks of this job can reach: only this host's if rank 0 is found under a loopback address.
pub fn listener(master: &str, port: u16) -> Result<TcpListener> {
    let fail = |error: std::io::Error| Error::new(format!("cannot listen on {master}:{port}: {error}"));
    let addresses: Vec<SocketAddr> = (master, port).to_socket_addrs().map_err(fail)?.collect();
    let local = addresses.iter().find(|address| address.ip().is_loopback());
    let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port);
    TcpListener::bind(local.copied().unwrap_or(any)).map_err(fail)
}

/// What everybody hands in, and how patient it is.
pub struct Entry {
    /// Who and how started.
    pub hello: Hello,
    /// How long all of them have to come.
    pub patience: Duration,
    /// A parent watches over this process.
    pub supervised: bool,
}

/// Rank 0's end of all links.
pub struct Coordinator {
    links: BTreeMap<usize, Link>,
    layout: Layout,
    shares: Shares,
    own: String,
    supervised: bool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// All is done: links may end.
    finishing: bool,
    ended: usize,
    stopping: bool,
    /// How far each rollout is, since a stop was asked for.
    next: BTreeMap<usize, u64>,
}

/// The others, as they came.
pub struct Gathered {
    links: BTreeMap<usize, (Link, u16)>,
    place: Place,
    entry: Entry,
}

impl Gathered {
    /// Rank 0: waits until every other rank has come.
    pub fn wait(listener: &TcpListener, place: &Place, entry: Entry) -> Result<Self> {
        let fail = |error: std::io::Error| Error::new(format!("cannot take connections: {error}"));
        let deadline = Instant::now() + entry.patience;
        let mut links: BTreeMap<usize, (Link, u16)> = BTreeMap::new();
        while links.len() + 1 < place.layout.world() {
            if !readable(listener, deadline)? {
                let missing: Vec<String> = (1..place.layout.world())
                    .filter(|rank| !links.contains_key(rank))
                    .map(|rank| place.layout.who(rank))
                    .collect();
                return Err(Error::new(format!(
                    "{} did not come within {} s; start all {} processes of the job (--join-timeout sets the patience)",
                    missing.join(", "),
                    entry.patience.as_secs(),
                    place.layout.world()
                )));
            }
            let link = Link::over(listener.accept().map_err(fail)?.0)?;
            // A stranger that says nothing is not waited for.
            link.set_patience(Some(Duration::from_secs(5))).map_err(fail)?;
            let Ok(Message::Hello(hello)) = link.receive() else { continue };
            link.set_patience(None).map_err(fail)?;
            if let Some(why) = unfit(&hello, &entry.hello, place.layout, &links) {
                drop(link.send(&Message::Refused(why.clone())));
                return Err(Error::new(why));
            }
            links.insert(hello.rank, (link, hello.features_port));
        }
        Ok(Gathered { links, place: place.clone(), entry })
    }

    /// Tells everybody where the run stands, and starts to listen to them. Finished steps go to `acks`.
    pub fn welcome(
        self,
        step: u32,
        shares: Shares,
        unique_id: Vec<u8>,
        acks: AckSender,
    ) -> Result<(Arc<Coordinator>, Welcome)> {
        let Gathered { links, place, entry } = self;
        let host = |link: &Link| link.stream().peer_addr().ok().map(|address| address.ip().to_string());
        let own = (None, entry.hello.features_port);
        let of_others = links.range(..place.layout.trainers).map(|(_, (link, port))| (host(link), *port));
        let welcome =
            Welcome { step, shares, unique_id, trainers: std::iter::once(own).chain(of_others).collect() };
        let coordinator = Arc::new(Coordinator {
            links: links.into_iter().map(|(rank, (link, _))| (rank, link)).collect(),
            layout: place.layout,
            shares,
            own: place.layout.who(0),
            supervised: entry.supervised,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        coordinator.tell(|_| true, &Message::Welcome(welcome.clone()));
        for rank in coordinator.links.keys().copied() {
            let (coordinator, acks) = (coordinator.clone(), acks.clone());
            std::thread::Builder::new()
                .name(format!("link-{rank}"))
                .spawn(move || coordinator.listen(rank, &acks))
                .map_err(|error| Error::new(format!("cannot start a thread: {error}")))?;
        }
        Ok((coordinator, welcome))
    }
}

/// Why a process can't take part.
fn unfit(hello: &Hello, own: &Hello, layout: Layout, known: &BTreeMap<usize, (Link, u16)>) -> Option<String> {
    let rank = hello.rank;
    if hello.version != own.version {
        return Some(format!("rank {rank} is version {}, rank 0 is {}", hello.version, own.version));
    }
    if rank == 0 || rank >= layout.world() || known.contains_key(&rank) {
        return Some(format!("a second process says that it is rank {rank}; give each its own RANK"));
    }
    let differing = own.options.iter().zip(&hello.options).find(|(own, other)| own != other)?;
    let ((name, own), (_, other)) = differing;
    Some(format!(
        "rank {rank} was started with another {name} ({other}) than rank 0 ({own}); give all processes the same options"
    ))
}

fn readable(listener: &TcpListener, deadline: Instant) -> Result<bool> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    loop {
        let rest = deadline.saturating_duration_since(Instant::now());
        let rest = Timespec { tv_sec: rest.as_secs() as i64, tv_nsec: i64::from(rest.subsec_nanos()) };
        match poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&rest)) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Error::new(format!("cannot wait for connections: {error}"))),
        }
    }
}

impl Coordinator {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends to every rank that is meant. One that can't be reached is noticed by the thread that listens to it.
    fn tell(&self, to: impl Fn(usize) -> bool, message: &Message) {
        for (_, link) in self.links.iter().filter(|(rank, _)| to(**rank)) {
            drop(link.send(message));
        }
    }

    fn is_rollout(&self, rank: usize) -> bool {
        self.layout.role(rank) == Role::Rollout
    }

    fn listen(&self, rank: usize, acks: &AckSender) {
        loop {
            match self.links[&rank].receive() {
                Ok(Message::Trained(part)) => acks.send(part),
                Ok(Message::Stop) => self.stop(),
                Ok(Message::Next(next)) => self.rollout_is_at(rank, next),
                Ok(_) => {}
                Err(_) if self.lock().finishing => {
                    self.lock().ended += 1;
                    self.changed.notify_all();
                    return;
                }
                Err(_) => {
                    self.tell(|other| other != rank, &Message::Lost(rank));
                    lost(&self.own, &self.layout.who(rank), self.supervised)
                }
            }
        }
    }

    /// All samples below `below` are in the ledger.
    pub fn committed(&self, below: u64) {
        self.tell(|rank| self.is_rollout(rank), &Message::Committed(below));
    }

    /// Ends the run behind a step that no rollout has begun.
    pub fn stop(&self) {
        let mut state = self.lock();
        if std::mem::replace(&mut state.stopping, true) || state.finishing {
            return;
        }
        drop(state);
        self.tell(|rank| self.is_rollout(rank), &Message::HowFar);
    }

    fn rollout_is_at(&self, rank: usize, next: u64) {
        let mut state = self.lock();
        state.next.insert(rank, next);
        if state.next.len() < self.layout.rollouts {
            return;
        }
        let furthest = state.next.values().copied().max().unwrap_or(0);
        drop(state);
        let (last, end) = self.shares.end_behind(furthest);
        self.tell(|rank| self.is_rollout(rank), &Message::End(last, end));
    }

    /// Tells everybody that all is done and saved, and stays until they have heard it.
    pub fn finish(&self, stopped: bool) {
        self.lock().finishing = true;
        self.tell(|_| true, &Message::Finished(stopped));
        let everybody = self.links.len();
        drop(self.changed.wait_timeout_while(self.lock(), FAREWELL, |state| state.ended < everybody));
    }
}

/// Another rank's end of its link.
pub struct Member {
    link: Link,
    place: Place,
    supervised: bool,
    /// Whether the run was stopped, once it is over.
    finished: Mutex<Option<bool>>,
    changed: Condvar,
}

impl Member {
    /// Connects to rank 0 and waits for the welcome.
    pub fn join(place: &Place, entry: Entry) -> Result<(Arc<Self>, Welcome)> {
        let (host, port) = (&place.master.0, place.master.1);
        let deadline = Instant::now() + entry.patience;
        let stream = connect(host, port, deadline)
            .map_err(|error| Error::new(format!("rank 0 does not answer: {error}")))?;
        let link = Link::over(stream)?;
        let member = Member {
            link,
            place: place.clone(),
            supervised: entry.supervised,
            finished: Mutex::new(None),
            changed: Condvar::new(),
        };
        if member.link.send(&Message::Hello(entry.hello)).is_err() {
            member.lost(0);
        }
        match member.link.receive() {
            Ok(Message::Welcome(welcome)) => Ok((Arc::new(member), welcome)),
            Ok(Message::Refused(why)) => Err(Error::new(why)),
            _ => member.lost(0),
        }
    }

    /// Starts to listen to rank 0; a rollout's window hears what is committed and when to end.
    pub fn listen(self: &Arc<Self>, window: Option<Arc<Window>>) -> Result<()> {
        let member = self.clone();
        std::thread::Builder::new()
            .name("link-0".to_owned())
            .spawn(move || member.run(window.as_deref()))
            .map_err(|error| Error::new(format!("cannot start a thread: {error}")))?;
        Ok(())
    }

    fn run(&self, window: Option<&Window>) {
        loop {
            match (self.link.receive(), window) {
                (Ok(Message::Committed(below)), Some(window)) => window.committed(below),
                // A broken link is noticed by the next receive.
                (Ok(Message::HowFar), Some(window)) => drop(self.link.send(&Message::Next(window.hold()))),
                (Ok(Message::End(last, end)), Some(window)) => window.end(last, end),
                (Ok(Message::Lost(rank)), _) => self.lost(rank),
                (Ok(Message::Finished(stopped)), _) => {
                    *self.lock() = Some(stopped);
                    self.changed.notify_all();
                    return;
                }
                (Ok(_), _) => {}
                (Err(_), _) => self.lost(0),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<bool>> {
        self.finished.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends this process because rank `rank` is gone.
    pub fn lost(&self, rank: usize) -> ! {
        let layout = self.place.layout;
        lost(&layout.who(self.place.rank), &layout.who(rank), self.supervised)
    }

    /// A trainer: what its device has passed.
    pub fn trained(&self, part: StepSamples) -> Result<()> {
        if self.link.send(&Message::Trained(part)).is_err() {
            self.lost(0);
        }
        Ok(())
    }

    /// Asks rank 0 to end the run.
    pub fn stop(&self) {
        drop(self.link.send(&Message::Stop));
    }

    /// Waits until rank 0 says that all is done; whether the run was stopped.
    pub fn wait(&self) -> bool {
        let mut finished = self.lock();
        loop {
            if let Some(stopped) = *finished {
                return stopped;
            }
            finished = self.changed.wait(finished).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
