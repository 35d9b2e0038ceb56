//! Saves what is visible: as text, as an SVG picture made from the same characters, or in another tool's format.
//!
//! In: the drawn buffer. Out: a document. Picture and text say nothing that the screen doesn't.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier};

/// The characters, line by line, without blanks at the ends.
#[must_use]
pub fn text(buffer: &Buffer) -> String {
    let area = buffer.area;
    let mut out = String::new();
    for y in area.y..area.y + area.height {
        let mut line = String::new();
        let mut x = area.x;
        while x < area.x + area.width {
            let symbol = buffer[(x, y)].symbol();
            line.push_str(symbol);
            // A wide character takes the cell after it as well.
            let width = unicode_width::UnicodeWidthStr::width(symbol).max(1);
            x += u16::try_from(width).unwrap_or(1);
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

const CELL: (f32, f32) = (8.4, 17.0);
const BACKGROUND: &str = "#16191d";
const FOREGROUND: &str = "#d8d8d8";

/// A picture of the characters with their colours.
#[must_use]
pub fn svg(buffer: &Buffer) -> String {
    let area = buffer.area;
    let (width, height) = (f32::from(area.width) * CELL.0, f32::from(area.height) * CELL.1);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0}\" height=\"{:.0}\" viewBox=\"0 0 {:.0} {:.0}\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"{BACKGROUND}\"/>\n\
         <g font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" font-size=\"14\">\n",
        width + 16.0,
        height + 16.0,
        width + 16.0,
        height + 16.0
    );
    for y in area.y..area.y + area.height {
        let mut x = area.x;
        while x < area.x + area.width {
            let cell = &buffer[(x, y)];
            let look = (cell.fg, cell.bg, cell.modifier);
            let mut run = String::new();
            let start = x;
            while x < area.x + area.width {
                let next = &buffer[(x, y)];
                if (next.fg, next.bg, next.modifier) != look {
                    break;
                }
                run.push_str(next.symbol());
                x += 1;
            }
            piece(&mut out, (start - area.x, y - area.y), x - start, &run, look);
        }
    }
    out.push_str("</g>\n</svg>\n");
    out
}

fn piece(
    out: &mut String,
    at: (u16, u16),
    cells: u16,
    run: &str,
    (fg, bg, modifier): (Color, Color, Modifier),
) {
    let reversed = modifier.contains(Modifier::REVERSED);
    let (mut ink, mut paper) = (hex(fg, FOREGROUND), hex(bg, BACKGROUND));
    if reversed {
        std::mem::swap(&mut ink, &mut paper);
    }
    let (x, y) = (8.0 + f32::from(at.0) * CELL.0, 8.0 + f32::from(at.1) * CELL.1);
    let width = f32::from(cells) * CELL.0;
    if paper != BACKGROUND {
        let _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"{paper}\"/>",
            CELL.1
        );
    }
    let bold = if modifier.contains(Modifier::BOLD) { " font-weight=\"bold\"" } else { "" };
    let dim = if modifier.contains(Modifier::DIM) { " opacity=\"0.6\"" } else { "" };
    let line = if modifier.contains(Modifier::UNDERLINED) { " text-decoration=\"underline\"" } else { "" };
    // Drawing programs drop blanks at the ends, and all but one inside, and what is left is stretched to the length then.
    let mut column = 0;
    for part in run.split("  ") {
        let text = part.trim_start();
        let columns = |text: &str| unicode_width::UnicodeWidthStr::width(text);
        let at = x + (column + columns(part) - columns(text)) as f32 * CELL.0;
        column += columns(part) + 2;
        let text = text.trim_end();
        if text.is_empty() {
            continue;
        }
        let _ = writeln!(
            out,
            "<text x=\"{at:.1}\" y=\"{:.1}\" textLength=\"{:.1}\" fill=\"{ink}\"{bold}{dim}{line}>{}</text>",
            y + 13.0,
            columns(text) as f32 * CELL.0,
            escaped(text)
        );
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn hex(color: Color, default: &str) -> String {
    match color {
        Color::Rgb(r, g, b) => format!("#{r:02x}{g:02x}{b:02x}"),
        Color::Indexed(index @ 16..232) => {
            let level = |part: u8| if part == 0 { 0 } else { 55 + 40 * part };
            let cube = index - 16;
            format!("#{:02x}{:02x}{:02x}", level(cube / 36), level(cube / 6 % 6), level(cube % 6))
        }
        Color::Indexed(index @ 232..) => {
            let grey = 8 + 10 * (index - 232);
            format!("#{grey:02x}{grey:02x}{grey:02x}")
        }
        // The terminal's own 16 have no fixed look; those of the palette get the look that it has elsewhere.
        Color::LightCyan | Color::Indexed(14) => "#56b4e9".to_owned(),
        Color::LightRed | Color::Indexed(9) => "#e86a1c".to_owned(),
        Color::Yellow | Color::Indexed(3) => "#e69f00".to_owned(),
        Color::LightYellow | Color::Indexed(11) => "#f0e442".to_owned(),
        Color::Green | Color::Indexed(2) => "#009e73".to_owned(),
        Color::LightBlue | Color::Indexed(12) => "#3d8fd1".to_owned(),
        Color::LightMagenta | Color::Indexed(13) => "#cc79a7".to_owned(),
        Color::DarkGray | Color::Indexed(8) => "#8a8a8a".to_owned(),
        Color::Black | Color::Indexed(0) => "#000000".to_owned(),
        Color::Red | Color::Indexed(1) => "#c0392b".to_owned(),
        Color::Blue | Color::Indexed(4) => "#1f5fbf".to_owned(),
        Color::Magenta | Color::Indexed(5) => "#a0479a".to_owned(),
        Color::Cyan | Color::Indexed(6) => "#2aa198".to_owned(),
        Color::Gray | Color::Indexed(7) => "#bfbfbf".to_owned(),
        Color::LightGreen | Color::Indexed(10) => "#3fd18f".to_owned(),
        Color::White | Color::Indexed(15) => "#ffffff".to_owned(),
        Color::Reset => default.to_owned(),
    }
}

/// Has a new file of the directory written, never over an old one; answers its path. What could not be written whole is removed.
///
/// # Errors
/// What the system says.
pub fn to_new_file(
    directory: &Path,
    ending: &str,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<PathBuf> {
    let mut number = 1;
    loop {
        let path = directory.join(format!("syncaudit-view-{number}.{ending}"));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => {
                let mut file = BufWriter::new(file);
                return match write(&mut file).and_then(|()| file.flush()) {
                    Ok(()) => Ok(path),
                    Err(error) => {
                        drop(std::fs::remove_file(&path));
                        Err(error)
                    }
                };
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::layout::Rect;
    use ratatui::style::Style;

    #[test]
    fn a_picture_has_the_text_with_its_colours_and_nothing_that_breaks_it() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 12, 2));
        buffer.set_string(0, 0, "a<b & c", Style::new().fg(Color::Rgb(1, 2, 3)));
        buffer.set_string(3, 1, "x", Style::new().add_modifier(Modifier::REVERSED));
        let svg = svg(&buffer);
        assert!(svg.contains("fill=\"#010203\">a&lt;b &amp; c</text>"), "{svg}");
        assert!(svg.contains(&format!("fill=\"{FOREGROUND}\"/>")), "{svg}");
        assert_eq!(text(&buffer), "a<b & c\n   x\n");
    }

    #[test]
    fn blanks_neither_move_nor_stretch_the_text_between_them() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 30, 1));
        buffer.set_string(0, 0, "  in a step     of  3      ", Style::new());
        let svg = svg(&buffer);
        for (column, text) in [(2, "in a step"), (16, "of"), (20, "3")] {
            let (x, length) = (8.0 + column as f32 * CELL.0, text.len() as f32 * CELL.0);
            let wanted = format!(
                "<text x=\"{x:.1}\" y=\"21.0\" textLength=\"{length:.1}\" fill=\"{FOREGROUND}\">{text}</text>"
            );
            assert!(svg.contains(&wanted), "no {wanted} in {svg}");
        }
    }

    #[test]
    fn no_file_is_overwritten_and_none_is_left_in_part() {
        let directory = tempfile::tempdir().unwrap();
        let first = to_new_file(directory.path(), "txt", |out| out.write_all(b"one")).unwrap();
        let second = to_new_file(directory.path(), "txt", |out| out.write_all(b"two")).unwrap();
        assert_ne!(first, second);
        assert_eq!(std::fs::read_to_string(first).unwrap(), "one");
        let full = |out: &mut dyn Write| {
            out.write_all(b"three")?;
            Err(io::Error::from(io::ErrorKind::StorageFull))
        };
        assert!(to_new_file(directory.path(), "txt", full).is_err());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
    }
}
