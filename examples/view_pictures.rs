//! Makes the pictures of `docs/tui.md` from a trace: `cargo run --example view_pictures -- TRACE DIRECTORY`.
//!
//! What is drawn is what the terminal would show after the keys named below, cell by cell.

use std::path::{Path, PathBuf};

use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Rect;
use syncaudit::audit::{AuditOptions, audit};
use syncaudit::view::keys::Keymap;
use syncaudit::view::{App, Recording, Theme, save, widgets};

const SCREEN: (u16, u16) = (120, 32);
/// Picture, and the keys that lead from the one before to it.
const PICTURES: [(&str, &str); 5] =
    [("timeline", ""), ("whole-run", "0"), ("site", "b\n"), ("sites", "2"), ("steps", "3")];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [trace, directory] = arguments.as_slice() else {
        return Err("usage: view_pictures TRACE DIRECTORY".into());
    };
    let trace = syncaudit::load_path(&[PathBuf::from(trace)]).map_err(|error| error.to_string())?;
    let audit = audit(&trace, &AuditOptions::default());
    let mut app = App::new(Recording::new(trace, audit), Keymap::default(), SCREEN);
    std::fs::create_dir_all(directory)?;
    for (name, keys) in PICTURES {
        for key in keys.chars() {
            let code = if key == '\n' { KeyCode::Enter } else { KeyCode::Char(key) };
            app.key(KeyEvent::new(code, KeyModifiers::NONE));
        }
        let area = Rect::new(0, 0, SCREEN.0, SCREEN.1);
        let mut buffer = Buffer::empty(area);
        widgets::draw(&app, Theme::default(), area, &mut buffer);
        std::fs::write(Path::new(directory).join(format!("{name}.svg")), save::svg(&buffer))?;
    }
    Ok(())
}
