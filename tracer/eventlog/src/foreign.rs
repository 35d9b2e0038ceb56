//! Tells what a file that is no log looks like, so that the message can say what to do with it.

/// A guess from the first bytes, as a phrase for "... it looks like {}".
pub(crate) fn looks_like(bytes: &[u8]) -> &'static str {
    let text = bytes.trim_ascii_start();
    match bytes {
        [] => "an empty file",
        [0x1f, 0x8b, ..] => "gzip data",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "zstd data",
        [b'P', b'K', 3 | 5 | 7, ..] => "a zip archive",
        [0x7f, b'E', b'L', b'F', ..] => "an ELF program or library",
        _ if bytes.starts_with(b"SQLite format 3\0") => "an SQLite database (an nsys export is one)",
        _ if bytes.starts_with(b"SALOG") => "an event log damaged by a text-mode transfer",
        _ if text.starts_with(b"{") || text.starts_with(b"[") => "JSON",
        _ if bytes.iter().all(|byte| *byte == 0) => "zero bytes only",
        _ if std::str::from_utf8(bytes).is_ok_and(|text| !text.contains('\0')) => "text",
        _ => "binary data of an unknown kind",
    }
}
