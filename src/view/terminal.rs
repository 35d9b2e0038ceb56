//! The loop around the state: keys in, pictures out, and a terminal that is always given back as it was.
//!
//! In: an [`App`] and, for a program that still runs, newer recordings. Out: how it ended. Whatever happens, a panic, a signal or a
//! terminal that is gone included, the terminal leaves raw mode and the alternate screen first; only SIGKILL can't be helped.
//!
//! Keys are read and pictures drawn by a thread of their own: reading from a terminal that is gone may never return, and whoever
//! called has other things to do then.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::thread;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, DisableMouseCapture, EnableMouseCapture, Event, KeyEventKind};
use ratatui::crossterm::terminal::{
    BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode, size,
};
use ratatui::crossterm::{cursor, execute};
use ratatui::layout::Rect;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;

use super::recording::Recording;
use super::save;
use super::state::{App, Effect, Live, SaveAs};
use super::theme::Theme;
use super::widgets;
use crate::export;

/// How often signals and newer recordings are looked for while no key comes.
const PATIENCE: Duration = Duration::from_millis(100);

/// How long the event loop has to end after a signal. It looks for one far more often than that.
const GRACE: Duration = Duration::from_secs(1);

/// How the view was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Quit,
    /// A signal asked for it; the caller passes it on once everything else is done.
    Signal(i32),
}

/// Something new of a program that still runs.
#[derive(Debug)]
pub enum News {
    Recording(Box<Recording>),
    /// What the user should know, for the footer.
    Said(String),
    /// The program has ended, as these words say, and what it recorded is complete.
    Ended(String),
}

/// What ends the waiting of the thread that called.
enum Happening {
    Signal(i32),
    /// The event loop has ended; `None` after a panic, which has been told.
    Over(Option<io::Result<End>>),
}

/// The size of the terminal, in columns and lines.
///
/// # Errors
/// When there is none.
pub fn screen() -> io::Result<(u16, u16)> {
    size()
}

/// Shows the app until the user leaves, a signal comes or the terminal is gone (which counts as SIGHUP).
///
/// # Errors
/// When the terminal can't be used, in words of the system; it is as it was then.
pub fn run(app: App, theme: Theme, news: Option<Receiver<News>>) -> io::Result<End> {
    let signal = Arc::new(AtomicUsize::new(0));
    let mut signals = SignalsInfo::<WithOrigin>::new([SIGTERM, SIGHUP, SIGINT, SIGQUIT])?;
    let no_more = signals.handle();
    let (tell, happenings) = mpsc::channel();
    let watch = thread::spawn({
        let tell = tell.clone();
        move || {
            // What we send ourselves is meant for the program that is shown.
            let ours = |sender: i32| u32::try_from(sender) == Ok(std::process::id());
            let foreign = signals.forever().filter(|origin| !origin.process.is_some_and(|by| ours(by.pid)));
            foreign.for_each(|origin| drop(tell.send(Happening::Signal(origin.signal))));
        }
    });
    let watched = rustix::termios::tcgetattr(io::stdout()).is_ok();
    let is_gone = || watched && rustix::termios::tcgetattr(io::stdout()).is_err();
    thread::spawn({
        let signal = Arc::clone(&signal);
        move || {
            let _hook = PanicHook::set();
            let show = move || {
                let _screen = Screen::enter()?;
                event_loop(app, theme, news.as_ref(), &signal)
            };
            let over = std::panic::catch_unwind(std::panic::AssertUnwindSafe(show)).ok();
            drop(tell.send(Happening::Over(over)));
        }
    });
    let mut asked = None;
    let end = loop {
        let patience = if asked.is_some() { GRACE } else { PATIENCE };
        match (happenings.recv_timeout(patience), asked) {
            (Ok(Happening::Over(Some(end))), _) => break end,
            (Ok(Happening::Over(None)), _) => {
                break Err(io::Error::other("the view failed, as said above; please report it"));
            }
            (Ok(Happening::Signal(number)), _) => asked = Some(number),
            (Err(RecvTimeoutError::Timeout), None) if is_gone() => asked = Some(SIGHUP),
            (Err(RecvTimeoutError::Timeout), None) => {}
            // The loop is lost in a terminal that is gone.
            (Err(_), asked) => {
                leave();
                break Ok(asked.map_or(End::Quit, End::Signal));
            }
        }
        let number = asked.and_then(|number| usize::try_from(number).ok());
        signal.store(number.unwrap_or_default(), Ordering::Relaxed);
    };
    no_more.close();
    drop(watch.join());
    end
}

fn event_loop(
    mut app: App,
    theme: Theme,
    news: Option<&Receiver<News>>,
    signal: &AtomicUsize,
) -> io::Result<End> {
    let mut terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
    let mut changed = true;
    let app = &mut app;
    loop {
        if changed {
            let area = terminal.size()?;
            app.resize(area.width, area.height);
            execute!(io::stdout(), BeginSynchronizedUpdate)?;
            terminal.draw(|frame| {
                let area = frame.area();
                widgets::draw(app, theme, area, frame.buffer_mut());
            })?;
            execute!(io::stdout(), EndSynchronizedUpdate)?;
        }
        changed = news.is_some_and(|news| take(app, news));
        let mut ready = event::poll(if changed { Duration::ZERO } else { PATIENCE });
        loop {
            let number = signal.load(Ordering::Relaxed);
            if number != 0 {
                return Ok(End::Signal(i32::try_from(number).unwrap_or_default()));
            }
            // All keys that wait are taken before the next picture: held down, they must not queue up.
            if !ready? {
                break;
            }
            changed = true;
            let effect = match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => app.key(key),
                Event::Mouse(mouse) => {
                    app.mouse(mouse);
                    None
                }
                _ => None,
            };
            match effect {
                Some(Effect::Quit) => return Ok(End::Quit),
                Some(effect) => outside(app, theme, effect, &mut terminal)?,
                None => {}
            }
            ready = event::poll(Duration::ZERO);
        }
    }
}

/// Takes the latest news; answers whether there was any.
fn take(app: &mut App, news: &Receiver<News>) -> bool {
    let mut latest = None;
    let mut changed = false;
    loop {
        match news.try_recv() {
            Ok(News::Recording(recording)) => latest = Some(recording),
            Ok(News::Said(text)) => app.message = Some(text),
            Ok(News::Ended(text)) => {
                app.live = Live::Over;
                app.message = Some(text);
            }
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
        }
        changed = true;
    }
    if let Some(recording) = latest {
        app.update(*recording);
    }
    changed
}

fn outside(
    app: &mut App,
    theme: Theme,
    effect: Effect,
    terminal: &mut Terminal<CrosstermBackend<io::Stdout>>,
) -> io::Result<()> {
    match effect {
        Effect::Quit => {}
        // To all of our process group, as the terminal does it: a shell that started the trainer would wait for it else.
        Effect::Interrupt => {
            rustix::process::kill_current_process_group(rustix::process::Signal::INT)?;
        }
        Effect::Copy(text) => {
            execute!(io::stdout(), ratatui::crossterm::clipboard::CopyToClipboard::to_clipboard_from(text))?;
        }
        Effect::Mouse(true) => execute!(io::stdout(), EnableMouseCapture)?,
        Effect::Mouse(false) => execute!(io::stdout(), DisableMouseCapture)?,
        Effect::Save(as_what) => {
            let directory = std::env::current_dir()?;
            app.message = Some(match save_visible(app, theme, as_what, &directory) {
                Ok(path) => format!("saved {}", path.file_name().unwrap_or_default().to_string_lossy()),
                Err(error) => format!("cannot save into {}: {error}", directory.display()),
            });
        }
        Effect::Suspend => {
            leave();
            signal_hook::low_level::raise(signal_hook::consts::SIGSTOP)?;
            enter(app.mouse)?;
            terminal.clear()?;
        }
        Effect::Edit { path, line } => {
            leave();
            let result = edit(&path, line);
            enter(app.mouse)?;
            terminal.clear()?;
            app.message = result.err();
        }
    }
    Ok(())
}

/// Saves the visible part into a new file of the directory; answers its path.
fn save_visible(app: &App, theme: Theme, as_what: SaveAs, directory: &Path) -> io::Result<PathBuf> {
    let area = Rect::new(0, 0, app.screen.0, app.screen.1);
    let mut buffer = Buffer::empty(area);
    widgets::draw(app, theme, area, &mut buffer);
    match as_what {
        SaveAs::Svg => {
            save::to_new_file(directory, "svg", |out| out.write_all(save::svg(&buffer).as_bytes()))
        }
        SaveAs::Text => {
            save::to_new_file(directory, "txt", |out| out.write_all(save::text(&buffer).as_bytes()))
        }
        SaveAs::Perfetto => {
            save::to_new_file(directory, "perfetto-trace", |out| export::perfetto(&app.rec, app.window, out))
        }
    }
}

/// Opens the file in the user's editor and waits for it.
fn edit(path: &str, line: u32) -> Result<(), String> {
    let set = |name| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let editor = set("VISUAL")
        .or_else(|| set("EDITOR"))
        .ok_or("set $VISUAL or $EDITOR to the editor of your choice")?;
    let mut words = editor.split_whitespace();
    let program = words.next().unwrap_or("vi");
    let mut command = Command::new(program);
    command.args(words);
    let name = Path::new(program).file_name().unwrap_or_default().to_string_lossy().into_owned();
    match name.as_str() {
        "code" | "codium" | "cursor" => command.arg("--goto").arg(format!("{path}:{line}")),
        "hx" | "helix" | "subl" | "zed" => command.arg(format!("{path}:{line}")),
        _ => command.arg(format!("+{line}")).arg(path),
    };
    match command.status() {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("cannot start '{editor}': {error}; set $VISUAL or $EDITOR")),
    }
}

/// Raw mode and the alternate screen, until dropped.
struct Screen;

impl Screen {
    fn enter() -> io::Result<Self> {
        let screen = Self;
        enter(false)?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

fn enter(mouse: bool) -> io::Result<()> {
    enable_raw_mode()?;
    TAKEN.store(true, Ordering::SeqCst);
    execute!(io::stdout(), EnterAlternateScreen, cursor::Hide)?;
    if mouse {
        execute!(io::stdout(), EnableMouseCapture)?;
    }
    Ok(())
}

/// Whether the terminal is ours at the moment.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Gives the terminal back; a terminal that is gone is no reason to stop. Only the first call does anything: leaving the alternate
/// screen again would set the cursor back, over what a panic has said meanwhile.
fn leave() {
    if !TAKEN.swap(false, Ordering::SeqCst) {
        return;
    }
    drop(execute!(
        io::stdout(),
        EndSynchronizedUpdate,
        DisableMouseCapture,
        LeaveAlternateScreen,
        cursor::Show
    ));
    drop(disable_raw_mode());
    drop(io::stdout().flush());
}

type Hook = Box<dyn Fn(&std::panic::PanicHookInfo<'_>) + Sync + Send>;

/// While set, a panic of this thread gives the terminal back before it is reported; those of other threads are not written
/// across the picture.
struct PanicHook {
    before: Arc<Hook>,
}

impl PanicHook {
    fn set() -> Self {
        let before: Arc<Hook> = Arc::new(std::panic::take_hook());
        let (this, report) = (thread::current().id(), Arc::clone(&before));
        std::panic::set_hook(Box::new(move |info| {
            let ours = thread::current().id() == this;
            if ours {
                leave();
            }
            if ours || !TAKEN.load(Ordering::SeqCst) {
                report(info);
            }
        }));
        Self { before }
    }
}

impl Drop for PanicHook {
    fn drop(&mut self) {
        // A hook can't be taken off while the panic that it reports unwinds.
        if !thread::panicking() {
            let before = Arc::clone(&self.before);
            std::panic::set_hook(Box::new(move |info| before(info)));
        }
    }
}
