//! A real terminal for tests: tmux types the keys and reads the screen. Each test has a tmux server of its own, which ends with it.

use std::process::Command;
use std::time::{Duration, Instant};

/// How long a screen may take to appear; on a machine under load everything takes its time.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A terminal of its own.
pub struct Tmux {
    socket: String,
}

impl Tmux {
    /// `None`, with a message, where there is no tmux.
    pub fn start(name: &str) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            println!("skipped: there is no tmux here");
            return None;
        }
        let tmux = Self { socket: format!("syncaudit-{name}-{}", std::process::id()) };
        tmux.run(&["-f", "/dev/null", "new-session", "-d", "-s", "t", "-x", "100", "-y", "30", "sh"]);
        // In two parts, so that what was typed is not taken for the prompt.
        tmux.line("PS1='rea''dy> '");
        tmux.wait_for("ready>");
        tmux.line("export LANG=C.UTF-8 LC_ALL=C.UTF-8 TERM=screen-256color; unset NO_COLOR VISUAL EDITOR");
        Some(tmux)
    }

    pub fn run(&self, arguments: &[&str]) -> String {
        let output = Command::new("tmux")
            .args(["-L", &self.socket])
            .args(arguments)
            .output()
            .expect("tmux can be run");
        assert!(output.status.success(), "tmux {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub fn keys(&self, keys: &[&str]) {
        self.run(&[&["send-keys", "-t", "t"], keys].concat());
    }

    pub fn line(&self, text: &str) {
        self.run(&["send-keys", "-t", "t", "-l", text]);
        self.keys(&["Enter"]);
    }

    pub fn screen(&self) -> String {
        self.run(&["capture-pane", "-p", "-t", "t"])
    }

    /// The screen with all that was scrolled off it; long lines are whole.
    pub fn history(&self) -> String {
        self.run(&["capture-pane", "-p", "-J", "-S", "-", "-t", "t"])
    }

    /// The process that the shell waits for.
    pub fn child(&self) -> String {
        let shell = self.run(&["display-message", "-p", "-t", "t", "#{pane_pid}"]);
        let child = Command::new("pgrep").args(["-P", shell.trim()]).output().expect("pgrep");
        String::from_utf8_lossy(&child.stdout).trim().to_owned()
    }

    /// The shell's word for how the last command ended.
    pub fn status(&self) -> String {
        self.wait_until("the prompt", |screen| screen.trim_end().ends_with("ready>"));
        self.line("echo stat''us=$?.");
        let screen = self.wait_until("the status", |screen| screen.contains("status="));
        let status = screen.rsplit("status=").next().unwrap_or_default();
        status.split('.').next().unwrap_or_default().to_owned()
    }

    /// Closes the terminal under whatever runs in it.
    pub fn close(&self) {
        self.run(&["kill-server"]);
    }

    /// Until the screen is as wanted; answers it.
    pub fn wait_until(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let mut screen = self.screen();
        wait_until(|| {
            screen = self.screen();
            wanted(&screen)
        })
        .unwrap_or_else(|()| panic!("never saw {what} in\n{}", self.screen()));
        screen
    }

    pub fn wait_for(&self, text: &str) -> String {
        self.wait_until(text, |screen| screen.contains(text))
    }

    /// The terminal is as a shell needs it: what is typed is shown, lines are edited, and the picture is gone.
    pub fn assert_given_back(&self) {
        // What is typed before the prompt is back may reach neither program.
        self.wait_until("the prompt", |screen| screen.trim_end().ends_with("ready>"));
        self.line("echo $(stty -a | tr ' ;' '\\n\\n' | grep -cxE 'icanon|echo')-of-two");
        let screen = self.wait_for("2-of-two");
        assert!(!screen.contains("whole run"), "{screen}");
        assert_eq!(self.run(&["display-message", "-p", "-t", "t", "#{alternate_on}"]).trim(), "0");
        assert_eq!(self.run(&["display-message", "-p", "-t", "t", "#{cursor_flag}"]).trim(), "1");
        assert_eq!(self.run(&["display-message", "-p", "-t", "t", "#{mouse_any_flag}"]).trim(), "0");
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        drop(Command::new("tmux").args(["-L", &self.socket, "kill-server"]).output());
    }
}

/// Looks again and again; an error where it never becomes true.
pub fn wait_until(mut is_so: impl FnMut() -> bool) -> Result<(), ()> {
    let begun = Instant::now();
    while !is_so() {
        if begun.elapsed() > PATIENCE {
            return Err(());
        }
        std::thread::sleep(Duration::from_millis(30));
    }
    Ok(())
}

/// Waits until a process is no more.
#[track_caller]
pub fn wait_for_end(pid: &str) {
    // One that nobody has waited for yet is there still, but does nothing any more.
    let is_over = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')')
            .next()
            .unwrap_or_default()
            .trim_start()
            .split(' ')
            .next()
            .is_none_or(|state| state.is_empty() || state == "Z")
    };
    wait_until(is_over).unwrap_or_else(|()| panic!("process {pid} never ended"));
}
