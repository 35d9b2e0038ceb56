//! The report for people: a verdict card, one block per place that is over the budget, a line for each other one, totals.
//!
//! In: what the gate judged; and the source files it names, to show the lines, where they are readable. Out: text that fits the width. It
//! must never show a time of a run whose times mean nothing, and never more about the machine than the report's own paths.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};

use super::Audit;
use super::price;
use super::words::{self, clip, facts, place_text, plain, rule_of, spread};
use crate::audit::{Frame, Site, SiteStatus, Verdict, WaitKind, plural};
use crate::gate::{Code, Finding, Judged, Severity};
use crate::rules::Rule;

/// How to write for the reader's terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextStyle {
    /// Use colour (only when writing to a terminal and `NO_COLOR` is unset; the caller decides).
    pub color: bool,
    /// Columns.
    pub width: usize,
}

impl Default for TextStyle {
    fn default() -> Self {
        Self { color: false, width: 100 }
    }
}

/// Blocks shown in full; the rest is listed. Nobody reads more, and all of them are in the JSON report.
const MOST_BLOCKS: usize = 25;
/// Lines in the list of other places.
const MOST_LINES: usize = 20;

/// The report as text, ending with a newline. The same audit, sources and style always give the same bytes.
#[must_use]
pub fn text(judged: &Judged, style: TextStyle) -> String {
    let audit = &judged.audit;
    let mut writer = Writer::new(style);
    writer.card(audit);
    writer.blocks(judged);
    writer.findings(judged);
    writer.others(judged);
    writer.ranks(audit);
    writer.totals(audit);
    writer.notes(audit);
    writer.out
}

/// A rule as text, for `syncaudit explain`, ending with a newline.
#[must_use]
pub fn explain(rule: &Rule, style: TextStyle) -> String {
    let mut writer = Writer::new(style);
    let title = writer.paint(BOLD, rule.id);
    writer.paragraph(&format!("{title}: "), rule.id.len() + 2, rule.headline);
    if !rule.is_general() {
        let kinds: Vec<&str> = rule.kinds.iter().map(|kind| kind.id()).collect();
        let more = format!("a case of {} (see `syncaudit explain {}`)", kinds.join(", "), kinds[0]);
        writer.paragraph("", 0, &more);
    }
    for (title, text) in rule.parts() {
        writer.line("");
        let title = writer.paint(BOLD, title);
        writer.line(&title);
        writer.paragraph("  ", 2, text);
    }
    writer.out
}

/// A place as text, with what is known of it, for `syncaudit explain FINGERPRINT`; its rule is left out.
#[must_use]
pub fn explain_site(judged: &Judged, index: usize, style: TextStyle) -> String {
    let mut writer = Writer::new(style);
    let Some(site) = judged.audit.sites.get(index) else { return String::new() };
    writer.explained.push(rule_of(site).id);
    writer.block(judged, site, index);
    let frames = if site.python.is_empty() { &site.native } else { &site.python };
    if !frames.is_empty() {
        writer.line("");
        let title = writer.paint(BOLD, "stack, innermost first");
        writer.line(&title);
        for frame in frames {
            let mark = if frame.user { "" } else { "  (library)" };
            writer.line(&format!("  {}{mark}", plain(&words::frame_text(frame))));
        }
    }
    // The block begins with an empty line, to stand off from what is above it.
    writer.out.trim_start_matches('\n').to_owned()
}

struct Writer {
    out: String,
    style: TextStyle,
    /// Lines of the files shown so far; `None` for files that can't be read.
    sources: HashMap<String, Option<Vec<String>>>,
    /// Rules that were explained already.
    explained: Vec<&'static str>,
}

const RED: Style = AnsiColor::Red.on_default().bold();
const GREEN: Style = AnsiColor::Green.on_default().bold();
const YELLOW: Style = AnsiColor::Yellow.on_default().bold();
const BLUE: Style = AnsiColor::Blue.on_default().bold();
const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();

impl Writer {
    fn new(style: TextStyle) -> Self {
        Self { out: String::new(), style, sources: HashMap::new(), explained: Vec::new() }
    }

    fn paint(&self, style: Style, text: &str) -> String {
        if self.style.color { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }

    fn line(&mut self, text: &str) {
        self.out.push_str(text.trim_end());
        self.out.push('\n');
    }

    /// A paragraph behind `label`, wrapped so that following lines start where the text does. `label_width` is what
    /// the label takes on the screen.
    fn paragraph(&mut self, label: &str, label_width: usize, text: &str) {
        let width = self.style.width.max(40) - label_width.min(30);
        let mut lines = wrap(&plain(text), width).into_iter();
        let first = format!("{label}{}", lines.next().unwrap_or_default());
        self.line(&first);
        for rest in lines {
            let rest = format!("{:label_width$}{rest}", "");
            self.line(&rest);
        }
    }

    fn card(&mut self, audit: &Audit) {
        let (style, word) = match audit.verdict {
            Verdict::Pass => (GREEN, "PASS"),
            Verdict::Fail => (RED, "FAIL"),
            Verdict::Inconclusive => (YELLOW, "INCONCLUSIVE"),
        };
        let label = format!("verdict: {} ", self.paint(style, word));
        let emulated = "(emulated device: counts and places are real, times are not)";
        self.paragraph(&label, 10 + word.len(), if audit.source.emulated { emulated } else { "" });
        for (index, reason) in audit.reasons.iter().enumerate() {
            self.paragraph(if index == 0 { "    why: " } else { "         " }, 9, reason);
        }
        for (index, next) in audit.next.iter().enumerate() {
            self.paragraph(if index == 0 { "   next: " } else { "         " }, 9, next);
        }
        self.paragraph(
            "  steps: ",
            9,
            &format!("{}, found by: {}", words::steps_text(audit), audit.step_counts.source.id()),
        );
        if let Some(price) = price::sentence(audit) {
            self.paragraph("  price: ", 9, &price);
        }
        if !audit.source.program.is_empty() {
            let program = audit.source.program.join(" ");
            self.paragraph("program: ", 9, &program);
        }
    }

    fn blocks(&mut self, judged: &Judged) {
        let sites = judged.audit.sites.iter().enumerate();
        let over = || sites.clone().filter(|(_, site)| site.status == SiteStatus::OverBudget);
        for (index, site) in over().take(MOST_BLOCKS) {
            self.block(judged, site, index);
        }
        let rest = over().count().saturating_sub(MOST_BLOCKS);
        if rest > 0 {
            self.line("");
            self.line(&format!(
                "... and {} over the budget; the JSON report has them all",
                plural(rest as u64, "more place", "more places")
            ));
        }
    }

    fn block(&mut self, judged: &Judged, site: &Site, index: usize) {
        let audit = &judged.audit;
        let rule = rule_of(site);
        let finding = judged.of_site(index);
        let (style, severity) = match finding.map(|finding| finding.severity) {
            Some(Severity::Error) => (RED, "error"),
            Some(Severity::Warn) => (YELLOW, "warn"),
            Some(Severity::Note) => (BLUE, "note"),
            None if site.status == SiteStatus::OverBudget => (RED, "error"),
            None => (BLUE, "note"),
        };
        self.line("");
        let head = format!("{severity}[{}]", site.kind.id());
        let label = format!("{}: ", self.paint(style, &head));
        self.paragraph(&label, 2 + head.len(), rule.headline);
        let place = site.place().cloned();
        let excerpt = place.as_ref().and_then(|frame| self.excerpt(frame));
        let gutter = excerpt.as_ref().map_or(2, |(number, _)| number.len());
        let bar = self.paint(BLUE, "|");
        let arrow = self.paint(BLUE, "-->");
        self.line(&format!("{:gutter$}{arrow} {}", "", plain(&place_text(site))));
        if let Some((number, source)) = excerpt {
            let room = self.style.width.saturating_sub(gutter + 3).max(20);
            let source = clip(&source, room);
            let indent = source.len() - source.trim_start().len();
            let marks = "^".repeat(source.trim().chars().count());
            let number = self.paint(BLUE, &number);
            let marks = self.paint(RED, &marks);
            self.line(&format!("{:gutter$} {bar}", ""));
            self.line(&format!("{number} {bar} {source}"));
            self.line(&format!("{:gutter$} {bar} {:indent$}{marks}", "", ""));
        }
        let equals = self.paint(BLUE, "=");
        // The heading says already that the place is over the budget, and `waits` by how much.
        let gate = finding
            .filter(|finding| finding.code != Code::OverBudget)
            .map(|finding| ("gate", format!("{}: {}", finding.code.id(), finding.message)));
        for (name, value) in facts(audit, site).into_iter().chain(gate) {
            let label = format!("{:gutter$} {equals} {}: ", "", self.paint(BOLD, name));
            self.paragraph(&label, gutter + 5 + name.len(), &value);
        }
        if self.explained.contains(&rule.id) {
            return;
        }
        self.explained.push(rule.id);
        let more = format!("syncaudit explain {}", rule.id);
        for (name, value) in [("note", rule.waits), ("help", rule.fix(site)), ("more", &more)] {
            let label = format!("{:gutter$} {equals} {}: ", "", self.paint(BOLD, name));
            self.paragraph(&label, gutter + 5 + name.len(), value);
        }
    }

    /// Line number and text of the source line, where the file is readable.
    fn excerpt(&mut self, frame: &Frame) -> Option<(String, String)> {
        if frame.line == 0 || frame.path.is_empty() {
            return None;
        }
        let lines = self.sources.entry(frame.path.clone()).or_insert_with(|| read_lines(&frame.path));
        let line = lines.as_ref()?.get(frame.line as usize - 1)?.trim_end().replace('\t', "    ");
        let line = plain(&line);
        (!line.trim().is_empty()).then(|| (frame.line.to_string(), line))
    }

    /// Waits that are not judged: allowed ones and those of log steps one by one, those of warm-up and outside of steps (set-up has
    /// hundreds) by kind.
    /// What the gate found that no block is about.
    fn findings(&mut self, judged: &Judged) {
        let blocks = |index: usize| {
            judged.audit.sites.get(index).is_some_and(|site| site.status == SiteStatus::OverBudget)
        };
        let rest: Vec<&Finding> = judged
            .findings
            .iter()
            .filter(|finding| finding.code != Code::Inconclusive && !finding.site.is_some_and(blocks))
            .collect();
        if rest.is_empty() {
            return;
        }
        self.line("");
        let title = self.paint(BOLD, "the gate says:");
        self.line(&title);
        for finding in rest.iter().take(MOST_LINES) {
            let place =
                words::finding_place(judged, finding).map(|place| format!(" at {place}")).unwrap_or_default();
            let reason = finding
                .justification
                .as_ref()
                .map(|reason| format!(" (reason: {reason})"))
                .unwrap_or_default();
            let code = self.paint(DIM, finding.code.id());
            let label = format!("  {} {code}", finding.severity.id());
            let width = 3 + finding.severity.id().len() + finding.code.id().len();
            self.paragraph(&format!("{label} "), width + 1, &format!("{}{reason}{place}", finding.message));
        }
        let more = rest.len().saturating_sub(MOST_LINES);
        if more > 0 {
            self.line(&format!("  ... and {}", plural(more as u64, "more finding", "more findings")));
        }
    }

    fn others(&mut self, judged: &Judged) {
        let audit = &judged.audit;
        let said: BTreeSet<usize> = judged.findings.iter().filter_map(|finding| finding.site).collect();
        let mut lines: Vec<(SiteStatus, String)> = Vec::new();
        let mut by_kind: BTreeMap<(SiteStatus, WaitKind), Vec<&Site>> = BTreeMap::new();
        let rest = audit
            .sites
            .iter()
            .enumerate()
            .filter(|(index, site)| site.status != SiteStatus::OverBudget && !said.contains(index));
        for (_, site) in rest {
            if matches!(site.status, SiteStatus::Warmup | SiteStatus::Outside) && !site.by_recorder {
                by_kind.entry((site.status, site.kind)).or_default().push(site);
            } else {
                lines.push((
                    site.status,
                    format!("{} at {}: {}", site.kind.id(), place_text(site), spread(site)),
                ));
            }
        }
        for ((status, kind), sites) in by_kind {
            let line = match sites[..] {
                [site] => format!("{} at {}: {}", kind.id(), place_text(site), spread(site)),
                _ => format!(
                    "{}: {} at {} places",
                    kind.id(),
                    plural(sites.iter().map(|site| site.waits).sum(), "wait", "waits"),
                    sites.len()
                ),
            };
            lines.push((status, line));
        }
        if lines.is_empty() {
            return;
        }
        self.line("");
        let title = self.paint(BOLD, "other waits, not judged:");
        self.line(&title);
        for (status, line) in lines.iter().take(MOST_LINES) {
            let status = self.paint(DIM, &format!("{:<10}", status.id()));
            let label = format!("  {status} ");
            self.paragraph(&label, 13, line);
        }
        let rest = lines.len().saturating_sub(MOST_LINES);
        if rest > 0 {
            self.line(&format!("  ... and {}", plural(rest as u64, "more place", "more places")));
        }
    }

    fn ranks(&mut self, audit: &Audit) {
        let Some(ranks) = words::ranks(audit, MOST_LINES) else { return };
        self.line("");
        let title = self.paint(BOLD, "ranks");
        self.line(&title);
        let widths: Vec<usize> = (0..ranks.head.len())
            .map(|column| {
                let cells = ranks.rows.iter().map(|row| row[column].chars().count());
                cells.chain([ranks.head[column].len()]).max().unwrap_or(0)
            })
            .collect();
        let aligned = |cells: &mut dyn Iterator<Item = &str>| {
            let mut line = String::new();
            for (column, cell) in cells.enumerate() {
                let width = widths[column];
                let _ = match column {
                    0 => write!(line, "  {cell:<width$}"),
                    _ => write!(line, "  {cell:>width$}"),
                };
            }
            line
        };
        let head = aligned(&mut ranks.head.iter().copied());
        let head = self.paint(DIM, &head);
        self.line(&head);
        for row in &ranks.rows {
            let line = aligned(&mut row.iter().map(String::as_str));
            self.line(&line);
        }
        if ranks.left_out > 0 {
            let more = plural(ranks.left_out as u64, "more rank", "more ranks");
            self.line(&format!("  ... and {more} that wait less"));
        }
        for sentence in &ranks.sentences {
            self.paragraph("  ", 2, sentence);
        }
        for place in &ranks.places {
            self.paragraph("    - ", 6, place);
        }
    }

    fn totals(&mut self, audit: &Audit) {
        self.line("");
        let title = self.paint(BOLD, "totals");
        self.line(&title);
        for (name, value) in words::totals(audit).into_iter().chain(price::totals(audit)) {
            self.paragraph(&format!("  {name:<18} "), 21, &value);
        }
    }

    fn notes(&mut self, audit: &Audit) {
        // What keeps the verdict from being "pass" stands in the card already.
        let mut notes: Vec<String> = audit
            .problems
            .iter()
            .map(|problem| problem.text.clone())
            .filter(|text| !audit.reasons.contains(text))
            .collect();
        if audit.source.emulated {
            notes.push(words::EMULATED.to_owned());
        }
        notes.extend(price::notes(audit));
        if notes.is_empty() {
            return;
        }
        self.line("");
        for note in notes {
            let label = format!("{}: ", self.paint(YELLOW, "note"));
            self.paragraph(&label, 6, &note);
        }
    }
}

/// Lines of a source file, if it is one (a trace may name anything).
pub(crate) fn read_lines(path: &str) -> Option<Vec<String>> {
    const MOST_BYTES: u64 = 16 << 20;
    let metadata = std::fs::metadata(path).ok()?;
    if !metadata.is_file() || metadata.len() > MOST_BYTES {
        return None;
    }
    Some(std::fs::read_to_string(path).ok()?.lines().map(str::to_owned).collect())
}

/// Breaks at blanks; a word that is longer than the width has a line of its own.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if used > 0 && used + 1 + length > width {
            lines.push(String::new());
            used = 0;
        }
        let Some(line) = lines.last_mut() else { break };
        if used > 0 {
            line.push(' ');
            used += 1;
        }
        line.push_str(word);
        used += length;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_wrapped_at_blanks_and_long_words_are_kept_whole() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("a verylongword b", 5), ["a", "verylongword", "b"]);
        assert_eq!(wrap("", 5), [""]);
    }
}
