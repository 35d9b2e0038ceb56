//! Source lines of Python code objects, from the tables that CPython keeps.
//!
//! In: `co_linetable` (3.10 on) or `co_lnotab` (3.9) and an offset into the code, in bytes. Out: a line, or 0 where the table doesn't
//! say. Any bytes are accepted. Formats: PEP 626 (3.10), `Objects/locations.md` of CPython (3.11 on),
//! `Objects/lnotab_notes.txt` (3.9).

/// The line of the instruction at `offset`.
pub(super) fn line_of(python_minor: u16, first_line: u32, table: &[u8], offset: u32) -> u32 {
    match python_minor {
        0..=9 => lnotab(first_line, table, offset),
        10 => linetable(first_line, table, offset),
        _ => locations(first_line, table, offset),
    }
}

/// 3.9: pairs of (bytes forward, signed lines forward); the line before the first larger offset holds.
fn lnotab(first_line: u32, table: &[u8], offset: u32) -> u32 {
    let (mut at, mut line) = (0u32, i64::from(first_line));
    for pair in table.chunks_exact(2) {
        at = at.saturating_add(u32::from(pair[0]));
        if at > offset {
            break;
        }
        line += i64::from(pair[1].cast_signed());
    }
    u32::try_from(line).unwrap_or(0)
}

/// 3.10: pairs of (length in bytes, signed lines forward); -128 stands for "no line".
fn linetable(first_line: u32, table: &[u8], offset: u32) -> u32 {
    let (mut end, mut line) = (0u32, i64::from(first_line));
    for pair in table.chunks_exact(2) {
        let step = pair[1].cast_signed();
        if step != i8::MIN {
            line += i64::from(step);
        }
        end = end.saturating_add(u32::from(pair[0]));
        if offset < end {
            return if step == i8::MIN { 0 } else { u32::try_from(line).unwrap_or(0) };
        }
    }
    0
}

/// 3.11 on: entries of a first byte with the top bit set (kind, length in code units) and what the kind needs.
fn locations(first_line: u32, table: &[u8], offset: u32) -> u32 {
    let (mut end, mut line) = (0u32, i64::from(first_line));
    let mut bytes = table.iter().copied().peekable();
    while let Some(first) = bytes.next() {
        if first & 0x80 == 0 {
            // Not the start of an entry: the table is damaged.
            return 0;
        }
        let code = (first >> 3) & 0x0f;
        let units = u32::from(first & 0x07) + 1;
        let forward = match code {
            // 15: no location. 13, 14: signed number. 10 to 12: 0 to 2 lines. Below: the same line.
            13 | 14 => signed(&mut bytes),
            10..=12 => i64::from(code) - 10,
            _ => 0,
        };
        line = line.saturating_add(forward);
        end = end.saturating_add(units * 2);
        if offset < end {
            return if code == 15 { 0 } else { u32::try_from(line).unwrap_or(0) };
        }
        // Columns are of no interest here.
        while bytes.peek().is_some_and(|byte| byte & 0x80 == 0) {
            bytes.next();
        }
    }
    0
}

/// A number of six-bit groups, the lowest first; its lowest bit is the sign.
fn signed(bytes: &mut std::iter::Peekable<impl Iterator<Item = u8>>) -> i64 {
    let (mut value, mut shift) = (0u64, 0u32);
    while let Some(byte) = bytes.next_if(|byte| byte & 0x80 == 0) {
        if shift < 60 {
            value |= u64::from(byte & 0x3f) << shift;
        }
        shift = shift.saturating_add(6);
        if byte & 0x40 == 0 {
            break;
        }
    }
    let magnitude = i64::try_from(value >> 1).unwrap_or(i64::MAX);
    if value & 1 == 0 { magnitude } else { -magnitude }
}
