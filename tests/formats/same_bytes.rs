use syncaudit::gate::Judged;
use syncaudit::report::{self, TextStyle};

use crate::sample::{EVIL, judged};

type Format = (&'static str, fn(&Judged) -> String);

const FORMATS: [Format; 6] = [
    ("text", |judged| report::text(judged, TextStyle::default())),
    ("markdown", report::markdown),
    ("github", report::github),
    ("sarif", report::sarif),
    ("junit", report::junit),
    ("html", report::html),
];

#[test]
fn the_same_input_gives_the_same_bytes() {
    for (name, format) in FORMATS {
        let text = format(&judged(false));
        assert_eq!(text, format(&judged(false)), "{name}");
        assert!(text.ends_with('\n') && !text.ends_with("\n\n"), "{name}");
    }
}

#[test]
fn no_format_lets_a_name_reach_the_terminal_or_turn_the_direction_of_writing() {
    assert!(EVIL.contains('\u{1b}'));
    for (name, format) in FORMATS {
        let text = format(&judged(false));
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "{name}");
    }
}

#[test]
fn no_format_shows_a_path_of_the_machine() {
    for (name, format) in FORMATS {
        assert!(!format(&judged(false)).contains("/home/me"), "{name}");
    }
}

#[test]
fn no_format_shows_a_time_of_an_emulated_run() {
    for (name, format) in FORMATS {
        let text = format(&judged(true));
        for word in ["blocked: ", "<dt>blocked", ">blocked</button>", "host time in waits", " ms\"", " us<"] {
            assert!(!text.contains(word), "{name}: {word}");
        }
    }
}
