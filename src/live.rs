//! `syncaudit run --live`: the timeline beside the program that it shows.
//!
//! In: a run that is ready to start. Out: the same run, with a view of its trace while it grows. The screen belongs to the view, so what the
//! program would print on it goes to a file of the trace directory, stdout and stderr in the order in which the terminal would have had them, and
//! comes to the terminal when the view is left. The view is never in the way: the program goes on, and is reported, whatever becomes of it.

use crate::judge::Settings;
use crate::run::record::Record;
use crate::run::{Prepared, shown};
use crate::show::{self, Looks};
use crate::trouble::Trouble;
use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use syncaudit::audit::AuditOptions;
use syncaudit::model::Trace;
use syncaudit::view::App;
use syncaudit::view::follow::Follower;
use syncaudit::view::state::Live as Growth;
use syncaudit::view::terminal::{self, News};

/// What the program printed, in the trace directory.
pub const OUTPUT: &str = "output.txt";

/// How often output is looked for once the view is left.
const REST: Duration = Duration::from_millis(100);

/// The view of a run, until it is closed.
pub struct Live {
    tell: Sender<News>,
    over: Sender<()>,
    thread: JoinHandle<()>,
}

/// Takes the terminal from the program: its output goes to the file that this answers, and it has no input. What is no terminal (a pipe, a file) it
/// keeps.
pub fn redirect(run: &mut Prepared) -> Result<PathBuf, Trouble> {
    let path = run.trace.join(OUTPUT);
    let failed = |error: io::Error| {
        Trouble::new(
            format!("keep the output of the program in {}", path.display()),
            error.to_string(),
            "name a place for the trace that can be written with --trace PATH, or leave out --live",
        )
    };
    let file = OpenOptions::new().append(true).create_new(true).open(&path).map_err(failed)?;
    if io::stderr().is_terminal() {
        run.command.stderr(file.try_clone().map_err(failed)?);
    }
    run.command.stdout(file);
    if io::stdin().is_terminal() {
        run.command.stdin(Stdio::null());
    }
    Ok(path)
}

impl Live {
    /// Shows the trace of a program that was started just now.
    pub fn show(
        run: &Prepared,
        output: PathBuf,
        looks: Looks,
        rules: Arc<Settings>,
        options: AuditOptions,
    ) -> Live {
        let (tell, news) = channel();
        let (over, is_over) = channel();
        let read = {
            let (trace, record) = (run.trace.clone(), run.record.clone());
            let read = show::reader(vec![trace.clone()], Arc::clone(&rules), options.clone());
            move || match has_log(&trace) {
                true => read(),
                false => show::judged(nothing_yet(&record), &rules, &options),
            }
        };
        let ended = {
            let trace = run.trace.clone();
            move || {
                let how = show::how_it_ended(&trace)?;
                Some(format!("{how}; q leaves: its output and the report follow"))
            }
        };
        let (trace, follower_tell) = (run.trace.clone(), tell.clone());
        let thread = std::thread::spawn(move || {
            let shown = read().map_err(io::Error::other).and_then(|recording| {
                let mut app = App::new(recording, looks.keymap, terminal::screen()?);
                app.live = Growth::Runs;
                let follower = Follower::start(follower_tell, vec![trace], read, ended);
                let shown = terminal::run(app, looks.theme, Some(news));
                drop(follower);
                shown
            });
            if let Err(error) = shown {
                crate::say(&format!("note: the program runs on without its timeline: {error}"));
            }
            print(&output, &is_over);
        });
        Live { tell, over, thread }
    }

    /// Says something where the user looks: in the view, or on the terminal once it is left.
    pub fn say(&self, line: &str) {
        if self.tell.send(News::Said(line.to_owned())).is_err() {
            crate::say(line);
        }
    }

    /// The program is over: waits until the user has left the view and the program's output is on the terminal.
    pub fn close(self) {
        drop(self.over);
        // A view that failed has said so.
        drop(self.thread.join());
    }
}

/// Prints what the program has printed, and what it still prints, until it is over. A terminal that is gone is no reason to stop.
fn print(output: &Path, is_over: &Receiver<()>) {
    let mut file = match File::open(output) {
        Ok(file) => file,
        Err(error) => {
            return crate::say(&format!(
                "note: the program's output can't be read from {}: {error}",
                shown(output)
            ));
        }
    };
    let mut over = false;
    loop {
        drop(io::copy(&mut file, &mut io::stdout()).and_then(|_| io::stdout().flush()));
        if over {
            return;
        }
        over = is_over.recv_timeout(REST) != Err(RecvTimeoutError::Timeout);
    }
}

/// The trace of a program that has recorded nothing so far.
fn nothing_yet(record: &Record) -> Trace {
    let mut trace = Trace::default();
    trace.source.program.clone_from(&record.program);
    trace.source.emulated = record.device == "emulated";
    trace
}

fn has_log(trace: &Path) -> bool {
    let files = std::fs::read_dir(trace).into_iter().flatten().flatten();
    files.map(|file| file.path()).any(|path| path.extension().is_some_and(|ending| ending == "salog"))
}
