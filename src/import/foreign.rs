//! What a file is that is no trace, in words that help.
//!
//! In: its first bytes. Out: what was found, at which byte, and what to do. Every answer is a full sentence.

/// Whether a text is in UTF-16: by its byte order mark, or because every other of its first bytes is zero.
pub(super) fn is_utf16(head: &[u8]) -> bool {
    head.starts_with(b"\xff\xfe")
        || head.starts_with(b"\xfe\xff")
        || matches!(head, [0, a, 0, b, ..] | [a, 0, b, 0, ..] if *a != 0 && *b != 0)
}

/// Says what a file that begins like this seems to be.
pub(super) fn describe(head: &[u8]) -> String {
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    let blank = text.iter().position(|byte| !byte.is_ascii_whitespace() && *byte != 0);
    let start = blank.map_or(&b""[..], |at| &text[at..]);
    let offset = head.len() - start.len();
    let begins = |word: &[u8]| start.len() >= word.len() && start[..word.len()].eq_ignore_ascii_case(word);
    if head.is_empty() {
        return "the file is empty. The program was killed before it wrote the trace, or the copy failed"
            .to_owned();
    }
    if start.is_empty() {
        return format!("the file holds {} bytes of nothing but blanks or NUL bytes", head.len());
    }
    if begins(b"version https://git-lfs") {
        return "the file is a pointer of Git LFS, not the trace itself; get it with 'git lfs pull'"
            .to_owned();
    }
    if is_utf16(head) {
        return "the file is text in UTF-16; convert it to UTF-8 (iconv -f UTF-16 -t UTF-8)".to_owned();
    }
    if begins(b"<!doctype html") || begins(b"<html") {
        return format!(
            "at byte {offset} an HTML page begins, such as a login page in place of a download; download the trace again \
             with a session that may read it"
        );
    }
    if begins(b"<") {
        return format!("at byte {offset} XML or HTML begins, which is no trace");
    }
    for (magic, what) in [
        (&b"PK\x03\x04"[..], "a zip archive; unpack it and give the trace in it"),
        (b"7z\xbc\xaf", "a 7z archive; unpack it and give the trace in it"),
        (b"BZh", "compressed with bzip2; unpack it first (bunzip2)"),
        (b"\xfd7zXZ", "compressed with xz; unpack it first (unxz)"),
        (b"\x04\x22\x4d\x18", "compressed with lz4; unpack it first (unlz4)"),
        (b"\x7fELF", "a program, not a trace; trace it with 'syncaudit run'"),
        (b"%PDF", "a PDF document"),
        (b"\x80\x02", "a Python pickle; export the trace as JSON with export_chrome_trace(...)"),
        (b"\x80\x04", "a Python pickle; export the trace as JSON with export_chrome_trace(...)"),
    ] {
        if head.starts_with(magic) {
            return format!("the file is {what}");
        }
    }
    let shown: String = String::from_utf8_lossy(&start[..start.len().min(16)])
        .chars()
        .map(|c| if c.is_control() { '.' } else { c })
        .collect();
    format!(
        "at byte {offset} there is '{shown}', where a trace of PyTorch's profiler has {{ or [. Known are event logs \
         (.salog), PyTorch profiler traces (.json, .json.gz, .json.zst) and Nsight Systems databases (.sqlite)"
    )
}

#[cfg(test)]
mod tests {
    use super::describe;

    #[test]
    fn what_stands_in_place_of_a_trace_is_named() {
        for (head, word) in [
            (&b""[..], "empty"),
            (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "git lfs pull"),
            (b"\n<!DOCTYPE html><html>", "at byte 1 an HTML page"),
            (b"<?xml version='1.0'?>", "XML"),
            (b"PK\x03\x04....", "zip"),
            (b"\xff\xfe{\x00", "UTF-16"),
            (b"   \n ", "blanks"),
            (b"hello", "at byte 0 there is 'hello'"),
        ] {
            assert!(describe(head).contains(word), "{}", describe(head));
        }
    }
}
