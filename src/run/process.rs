//! Starts the program, passes signals on, waits for its end.
//!
//! In: a prepared command. Out: how the program ended. The program stays in our process group and keeps our
//! descriptors, so the terminal, job control and pipes work as they do without us. Whatever kills the program must not
//! keep us from reporting, and whatever is sent to us must reach the program:
//!
//! - a signal from the terminal (Ctrl-C, Ctrl-\, hang-up) reaches the program by itself: we only survive it;
//! - a signal sent to us by a process (`kill`, a scheduler) is passed on; what we send to our process group ourselves (Ctrl-C in the
//!   view of `--live`) has reached it too;
//! - a program that does not end by the third request is killed, so that the report comes.
//!
//! Signals ignored when we were started (`nohup`, background jobs) stay ignored. SIGTSTP and SIGCONT are left to the shell.

use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;
use signal_hook::low_level::siginfo::Cause;
use signal_hook::low_level::signal_name;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use syncaudit::exit;

/// How the program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Exit(i32),
    Signal(i32),
}

impl End {
    fn of(status: ExitStatus) -> End {
        match (status.code(), status.signal()) {
            (Some(code), _) => End::Exit(code),
            (None, Some(signal)) => End::Signal(signal),
            (None, None) => End::Exit(status.into_raw()),
        }
    }

    /// The exit status to pass on, as a shell would show it; `None` for success.
    pub fn failure(self) -> Option<u8> {
        match self {
            End::Exit(code) => exit::of_program(Some(code), None),
            End::Signal(signal) => exit::of_program(None, Some(signal)),
        }
    }

    pub fn succeeded(self) -> bool {
        self.failure().is_none()
    }

    /// As a clause behind "the program".
    pub fn clause(self) -> String {
        match self {
            End::Exit(code) => format!("ended with exit status {code}"),
            End::Signal(signal) => format!("was killed by {}", name_of(signal)),
        }
    }
}

fn name_of(signal: i32) -> String {
    signal_name(signal).map_or_else(|| format!("signal {signal}"), str::to_owned)
}

const PASSED_ON: [i32; 6] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2];
const REQUESTS_TO_END: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];
const REQUESTS_BEFORE_KILL: u32 = 3;

/// A program that was started.
pub struct Started {
    child: Child,
    signals: SignalsInfo<WithOrigin>,
}

/// Starts `command`.
pub fn start(command: &mut Command) -> io::Result<Started> {
    let ignored = ignored_signals();
    let handled = PASSED_ON.into_iter().filter(|&signal| ignored & (1 << (signal - 1)) == 0);
    // Before the start: an end that comes at once must not be missed.
    let signals = SignalsInfo::new(handled.chain([SIGCHLD]))?;
    Ok(Started { child: command.spawn()?, signals })
}

/// Waits for its end. `say` is called with what the user should know.
pub fn wait(Started { mut child, mut signals }: Started, say: impl Fn(&str)) -> io::Result<End> {
    let mut requests = 0;
    loop {
        // Only this thread reaps, so the process id stays the program's own until `try_wait` says that it has ended.
        if let Some(status) = child.try_wait()? {
            return Ok(End::of(status));
        }
        for origin in signals.wait() {
            let signal = origin.signal;
            if signal == SIGCHLD {
                continue;
            }
            let sender = origin.process.and_then(|process| u32::try_from(process.pid).ok());
            let by_a_process = matches!(origin.cause, Cause::Sent(_)) && sender != Some(std::process::id());
            if REQUESTS_TO_END.contains(&signal) {
                requests += 1;
            }
            if let Some(status) = child.try_wait()? {
                return Ok(End::of(status));
            }
            if requests >= REQUESTS_BEFORE_KILL {
                say("the program does not end; killing it");
                pass_on(&child, rustix::process::Signal::KILL);
            } else {
                if by_a_process && let Some(signal) = rustix::process::Signal::from_named_raw(signal) {
                    pass_on(&child, signal);
                }
                if REQUESTS_TO_END.contains(&signal) {
                    say(&format!(
                        "{}: waiting for the program to end, then the report follows ({} more will kill it)",
                        name_of(signal),
                        REQUESTS_BEFORE_KILL - requests
                    ));
                }
            }
        }
    }
}

fn pass_on(child: &Child, signal: rustix::process::Signal) {
    let Some(pid) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) else { return };
    // It fails only for a program that has just ended or has changed its user; both end in `try_wait`.
    let _ = rustix::process::kill_process(pid, signal);
}

/// Bit `n - 1` is set if signal `n` was ignored when we were started.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end_of(script: &str) -> End {
        wait(start(Command::new("/bin/sh").args(["-c", script])).unwrap(), |_| {}).unwrap()
    }

    #[test]
    fn the_end_is_told_as_a_shell_tells_it() {
        assert_eq!(end_of("exit 0"), End::Exit(0));
        assert!(end_of("exit 0").succeeded());
        assert_eq!(end_of("exit 7").failure(), Some(7));
        assert_eq!(end_of("kill -9 $$"), End::Signal(9));
        assert_eq!(end_of("kill -9 $$").failure(), Some(137));
        assert_eq!(End::Signal(9).clause(), "was killed by SIGKILL");
    }

    #[test]
    fn a_program_that_outlives_its_starter_is_not_waited_for() {
        // The background process keeps our stdout and runs until it is told to stop, which happens after the end.
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        assert_eq!(end_of(&format!("read line < {} & exit 5", fifo.display())), End::Exit(5));
        std::fs::write(&fifo, "stop\n").unwrap();
    }

    #[test]
    fn a_missing_program_is_an_error() {
        assert!(start(&mut Command::new("/no/such/program")).is_err());
    }
}
