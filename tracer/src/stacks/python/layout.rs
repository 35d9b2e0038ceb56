//! Where CPython keeps what a stack needs, by version.
//!
//! In: the minor version, and from 3.13 on the table of offsets that the interpreter exports for tools
//! (`_Py_DebugOffsets`, at the start of `_PyRuntime`). Out: a [`Layout`], or why there is none. Within a minor version CPython's
//! layouts don't change after its release. A version that is not known is refused, never guessed.

use super::memory::{Checked, Memory};

/// Byte offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The y of 3.y.
    pub minor: u16,
    pub top: Top,
    pub frame_code: u64,
    pub frame_back: u64,
    pub position: Position,
    /// What kind of frame it is; from 3.11 on.
    pub frame_owner: Option<u64>,
    pub code_filename: u64,
    pub code_qualname: u64,
    pub code_first_line: u64,
    pub code_line_table: u64,
    /// From the start of a string to its characters, ASCII and other.
    pub ascii_data: u64,
    pub wide_data: u64,
}

/// Where the innermost frame is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Top {
    /// In the thread state.
    Frame(u64),
    /// In a structure that the thread state points to.
    Through(u64, u64),
}

/// What a frame says of the instruction that it is at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Position {
    /// A number, to be multiplied.
    Index { at: u64, bytes: u32 },
    /// A pointer into the instructions, which begin at that offset of the code object.
    Pointer { at: u64, instructions: u64 },
}

/// From this owner on a frame is the interpreter's own.
pub const FIRST_INTERNAL_OWNER: u8 = 3;

/// Present at the start of the table of offsets.
const COOKIE: &[u8; 8] = b"xdebugpy";

impl Layout {
    /// # Errors
    /// Why frames of this interpreter can't be read. `runtime` is the address of `_PyRuntime`.
    pub fn of(minor: u16, runtime: Option<u64>) -> Result<Layout, String> {
        let layout = Layout {
            minor,
            top: Top::Frame(24),
            frame_code: 32,
            frame_back: 24,
            position: Position::Index { at: 104, bytes: 1 },
            frame_owner: None,
            code_filename: 104,
            code_qualname: 112,
            code_first_line: 40,
            code_line_table: 120,
            ascii_data: 48,
            wide_data: 72,
        };
        match minor {
            // No qualified names in code objects yet: the plain name stands for it.
            9 => Ok(layout),
            10 => Ok(Layout { position: Position::Index { at: 96, bytes: 2 }, ..layout }),
            11 => Ok(Layout {
                top: Top::Through(56, 8),
                frame_back: 48,
                position: Position::Pointer { at: 56, instructions: 184 },
                frame_owner: Some(69),
                code_filename: 112,
                code_qualname: 128,
                code_first_line: 72,
                code_line_table: 136,
                ..layout
            }),
            12 => Ok(Layout {
                top: Top::Through(56, 0),
                frame_code: 0,
                frame_back: 8,
                position: Position::Pointer { at: 56, instructions: 192 },
                frame_owner: Some(70),
                code_filename: 112,
                code_qualname: 128,
                code_first_line: 68,
                code_line_table: 136,
                ascii_data: 40,
                wide_data: 56,
                ..layout
            }),
            13 | 14 => {
                Layout::exported(minor, runtime.ok_or("it does not export the layout of its structures")?)
            }
            _ => Err("only 3.9 to 3.14 are known to this version of syncaudit".to_owned()),
        }
    }

    /// From the interpreter's own table.
    fn exported(minor: u16, runtime: u64) -> Result<Layout, String> {
        let mut cookie = [0; COOKIE.len()];
        if !Checked.copy(runtime, &mut cookie) {
            return Err("the kernel does not allow process_vm_readv here".to_owned());
        }
        if cookie != *COOKIE {
            return Err("the table of its layout is not where it should be".to_owned());
        }
        let entry = |at: u64| Checked.word(runtime + at).ok_or("the table of its layout can't be read");
        if entry(16)? != 0 {
            return Err("it is a free-threaded build".to_owned());
        }
        let offset = |in_13: u64, in_14: u64| match entry(if minor == 13 { in_13 } else { in_14 }) {
            // No structure of this kind is that long.
            Ok(offset) if offset < 4096 => Ok(offset),
            _ => Err("the table of its layout makes no sense"),
        };
        let ascii_data = offset(560, 640)?;
        Ok(Layout {
            minor,
            top: Top::Frame(offset(184, 208)?),
            frame_code: offset(240, 264)?,
            frame_back: offset(232, 256)?,
            position: Position::Pointer { at: offset(248, 272)?, instructions: offset(344, 384)? },
            frame_owner: Some(offset(264, 288)?),
            code_filename: offset(280, 320)?,
            code_qualname: offset(296, 336)?,
            code_first_line: offset(312, 352)?,
            code_line_table: offset(304, 344)?,
            ascii_data,
            // The length in UTF-8 and a pointer to it stand between.
            wide_data: ascii_data + 16,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_are_not_known_are_refused() {
        for minor in [0, 8, 15, 99] {
            let reason = Layout::of(minor, None).unwrap_err();
            assert!(reason.contains("3.9 to 3.14"), "{reason}");
        }
        assert_eq!(Layout::of(12, None).unwrap().minor, 12);
    }

    /// A table as 3.13 exports it.
    fn table() -> Vec<u64> {
        let mut table = vec![0u64; 128];
        table[0] = u64::from_le_bytes(*COOKIE);
        for (at, offset) in [
            (184, 72),
            (232, 8),
            (240, 0),
            (248, 56),
            (264, 70),
            (280, 112),
            (296, 128),
            (304, 136),
            (312, 68),
            (344, 200),
            (560, 40),
        ] {
            table[at / 8] = offset;
        }
        table
    }

    #[test]
    fn from_313_on_the_exported_table_is_used() {
        let table = table();
        let layout = Layout::of(13, Some(table.as_ptr() as u64)).unwrap();
        assert_eq!((layout.top, layout.frame_owner), (Top::Frame(72), Some(70)));
        assert_eq!((layout.ascii_data, layout.wide_data), (40, 56));
        assert_eq!(layout.position, Position::Pointer { at: 56, instructions: 200 });
    }

    #[test]
    fn a_table_that_is_not_what_it_should_be_is_refused_with_the_reason() {
        let refusal = |change: fn(&mut Vec<u64>)| {
            let mut table = table();
            change(&mut table);
            Layout::of(13, Some(table.as_ptr() as u64)).unwrap_err()
        };
        assert!(refusal(|table| table[2] = 1).contains("free-threaded"));
        assert!(refusal(|table| table[0] += 1).contains("not where it should be"));
        assert!(refusal(|table| table[23] = 1 << 20).contains("no sense"));
        assert!(Layout::of(13, None).unwrap_err().contains("does not export"));
        assert!(Layout::of(14, Some(64)).is_err(), "an address where nothing is");
    }
}
