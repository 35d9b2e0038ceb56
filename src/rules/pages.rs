//! The pages of `docs/rules/`: one per rule, and a list of them.
//!
//! In: nothing but the rules. Out: file names and texts. `cargo xtask docs` writes them, a test compares.

use std::fmt::Write as _;

use super::{ALL, Rule};

/// All pages as (file name, text).
#[must_use]
pub fn pages() -> Vec<(String, String)> {
    let mut pages = vec![("README.md".to_owned(), list())];
    pages.extend(ALL.iter().map(|rule| (format!("{}.md", rule.id), page(rule))));
    pages
}

const NOTE: &str = "Made from `src/rules/` by `cargo xtask docs`: change it there.";

fn list() -> String {
    let mut text = format!(
        "# Rules\n\n{NOTE}\n\nEvery wait in a report has a `rule`: an idiom where it is a known one, else the general rule of its kind. \
         `syncaudit explain RULE` shows the same text.\n\n"
    );
    for (title, general) in [("Idioms", false), ("Kinds of waits", true)] {
        let _ = write!(text, "## {title}\n\n| rule | what happens |\n|---|---|\n");
        for rule in ALL.iter().filter(|rule| rule.is_general() == general) {
            let _ = writeln!(text, "| [{0}]({0}.md) | {1} |", rule.id, rule.headline);
        }
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

fn page(rule: &Rule) -> String {
    let kinds: Vec<String> = rule.kinds.iter().map(|kind| format!("[{0}]({0}.md)", kind.id())).collect();
    let mut text = format!("# {}\n\n{NOTE}\n\n{}.\n\n", rule.id, super::capital(rule.headline));
    if !rule.is_general() {
        let _ = write!(text, "Kind of wait: {}\n\n", kinds.join(", "));
    }
    for (title, part) in rule.parts() {
        let _ = write!(text, "## {title}\n\n{}\n\n", super::capital(part));
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}
