//! All processes of a job started at once on this host, and watched.
//!
//! In: the arguments of this process. Out: one process per rank with the same arguments and the rank variables, and the job's exit status.
//! One that ends badly ends the job. Must leave no process behind: the kernel kills the others if this one dies.

use super::{Layout, PEER_LOST};
use crate::error::{Error, Result};
use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};
use signal_hook::consts::{SIGCHLD, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// The option that tells a process whose child it must stay.
pub const SUPERVISED_BY: &str = "--supervised-by";

/// What rank 0 prints before the port that it chose.
pub const PORT_LINE: &str = "MASTER_PORT=";

/// How long the process that another one has lost may take to be found dead.
const GRACE: Duration = Duration::from_secs(2);

/// In a started process: asks the kernel to be killed when the parent dies, and ends at once if it has died already.
pub fn stay_with(parent: u32) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| Error::new(format!("cannot follow the process that started this one: {error}")))?;
    if getppid().is_none_or(|pid| pid.as_raw_nonzero().get() as u32 != parent) {
        std::process::exit(PEER_LOST);
    }
    Ok(())
}

/// The processes of the job, by rank; none where it has ended.
struct Family {
    layout: Layout,
    children: Vec<Option<Child>>,
    ends: Vec<(usize, ExitStatus)>,
    /// Ctrl-C was passed on.
    asked: bool,
}

/// Runs the job to its end; its exit status.
pub fn run(layout: Layout, arguments: Vec<OsString>) -> Result<i32> {
    // Before the first child, so that no end of one is missed.
    let mut signals = Signals::new([SIGCHLD, SIGINT, SIGTERM])
        .map_err(|error| Error::new(format!("cannot listen for signals: {error}")))?;
    let mut family = Family { layout, children: Vec::new(), ends: Vec::new(), asked: false };
    let mut first = family.start(0, 0, &arguments, Stdio::piped())?;
    let output = first.stdout.take().ok_or_else(|| Error::new("rank 0 has no output"))?;
    family.children.push(Some(first));
    let port = port_of(output)?;
    while !family.is_over() {
        match signals.forever().next() {
            Some(SIGINT) if !family.asked => {
                family.asked = true;
                family.interrupt();
            }
            Some(signal @ (SIGINT | SIGTERM)) => {
                family.kill();
                return Ok(128 + signal);
            }
            _ => family.reap(false),
        }
        // The others are started when rank 0 can be reached: what is wrong with the options is then said once, by rank 0.
        if let Ok(port) = port.try_recv() {
            for rank in 1..layout.world() {
                let child = family.start(rank, port, &arguments, Stdio::null())?;
                family.children.push(Some(child));
            }
        }
    }
    Ok(family.end())
}

/// The port that rank 0 will say on its output. Whoever waits for signals hears one when it has.
fn port_of(output: ChildStdout) -> Result<Receiver<u16>> {
    let (tell, port) = channel();
    let read = move || {
        // To the end: rank 0 must not fail in printing.
        for line in BufReader::new(output).lines().map_while(std::io::Result::ok) {
            let said = line.strip_prefix(PORT_LINE).and_then(|port| port.parse().ok());
            if said.is_some_and(|port| tell.send(port).is_ok()) {
                drop(signal_hook::low_level::raise(SIGCHLD));
            }
        }
    };
    std::thread::Builder::new()
        .name("port".to_owned())
        .spawn(read)
        .map_err(|error| Error::new(format!("cannot start a thread: {error}")))?;
    Ok(port)
}

impl Family {
    fn start(&self, rank: usize, port: u16, arguments: &[OsString], stdout: Stdio) -> Result<Child> {
        let layout = self.layout;
        let fail = |error: std::io::Error| Error::new(format!("cannot start {}: {error}", layout.who(rank)));
        let local_rank = if rank < layout.trainers { rank } else { rank - layout.trainers };
        Command::new(std::env::current_exe().map_err(fail)?)
            .args(arguments)
            .args(["--role", "by-rank", SUPERVISED_BY, &std::process::id().to_string()])
            .env("RANK", rank.to_string())
            .env("LOCAL_RANK", local_rank.to_string())
            .env("WORLD_SIZE", layout.world().to_string())
            .env("MASTER_ADDR", "127.0.0.1")
            .env("MASTER_PORT", port.to_string())
            .stdin(Stdio::null())
            .stdout(stdout)
            // Ctrl-C of a terminal reaches this process alone, which passes it on once.
            .process_group(0)
            .spawn()
            .map_err(fail)
    }

    /// Notes the processes that have ended; with `wait`, waits for each.
    fn reap(&mut self, wait: bool) {
        for (rank, place) in self.children.iter_mut().enumerate() {
            let Some(child) = place else { continue };
            let ended = if wait { child.wait().map(Some) } else { child.try_wait() };
            if let Ok(Some(status)) = ended {
                self.ends.push((rank, status));
                *place = None;
            }
        }
    }

    fn is_bad(status: ExitStatus) -> bool {
        !matches!(status.code(), Some(0 | 130))
    }

    fn is_over(&self) -> bool {
        self.children.iter().all(Option::is_none) || self.ends.iter().any(|(_, status)| Self::is_bad(*status))
    }

    fn interrupt(&self) {
        for child in self.children.iter().flatten() {
            // One that has just ended hears nothing.
            let _ = kill_process(Pid::from_child(child), Signal::INT);
        }
    }

    fn kill(&mut self) {
        for child in self.children.iter_mut().flatten() {
            drop(child.kill());
        }
        self.reap(true);
    }

    /// The job's status once it is over.
    fn end(&mut self) -> i32 {
        if self.ends.iter().any(|(_, status)| Self::is_bad(*status)) {
            return self.end_badly();
        }
        self.ends.iter().filter_map(|(_, status)| status.code()).max().unwrap_or(0)
    }

    /// Ends the others and says which process ended first, and how.
    fn end_badly(&mut self) -> i32 {
        let deadline = Instant::now() + GRACE;
        // One that was killed brings others to fail, in whatever order they are found.
        let cause = |ends: &[(usize, ExitStatus)]| {
            let bad = || ends.iter().copied().filter(|(_, status)| Self::is_bad(*status));
            let killed = bad().find(|(_, status)| status.signal().is_some());
            killed.or_else(|| bad().find(|(_, status)| status.code() != Some(PEER_LOST)))
        };
        // Those that lost a peer may be found before the peer is.
        while cause(&self.ends).is_none()
            && Instant::now() < deadline
            && !self.children.iter().all(Option::is_none)
        {
            std::thread::sleep(Duration::from_millis(5));
            self.reap(false);
        }
        let first = cause(&self.ends).or_else(|| self.ends.first().copied());
        self.kill();
        let Some((rank, status)) = first else { return 1 };
        if self.asked && status.signal() == Some(SIGINT) {
            return 128 + SIGINT; // it had not come so far that it could end in order
        }
        let who = self.layout.who(rank);
        match (status.signal(), status.code()) {
            (Some(signal), _) => eprintln!(
                "dflash-train: {who} was killed by signal {signal}, so the job was ended; with --checkpoint the same command \
                 goes on from the last checkpoint"
            ),
            (None, Some(PEER_LOST)) => eprintln!("dflash-train: {who} lost the others, so the job was ended"),
            // It has said why.
            (None, _) => eprintln!("dflash-train: that was {who}; the job was ended"),
        }
        status.signal().map_or_else(|| status.code().unwrap_or(1), |signal| 128 + signal)
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        self.kill();
    }
}
