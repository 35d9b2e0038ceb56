//! The report as a comment on a pull request: the verdict first, one row per thing to do, everything else folded away.
//!
//! In: what the gate judged. Out: GitHub-flavoured Markdown of at most [`MOST_BYTES`]; what does not fit is counted in a last line, never
//! dropped in silence. Text of the program is shown as code or escaped: it can neither open markup nor mention anybody.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::price;
use super::words::{self, finding_place, number, plain, rule_of, site_of};
use crate::audit::{SiteStatus, Verdict, plural};
use crate::gate::{Finding, Judged, Severity};

/// GitHub takes comments of up to 65,536 characters. Bytes are never fewer than characters, whatever a host counts.
pub const MOST_BYTES: usize = 65_536;
/// Kept free for the last line.
const RESERVE_BYTES: usize = 200;

/// The report as Markdown, ending with a newline. The same input gives the same bytes.
#[must_use]
pub fn markdown(judged: &Judged) -> String {
    let totals = totals(judged);
    let mut page = Page::new(totals.len());
    card(&mut page, judged);
    for (severity, title) in [(Severity::Error, "To fix"), (Severity::Warn, "To look at")] {
        table(&mut page, judged, severity, title);
    }
    details(&mut page, judged);
    notes(&mut page, judged);
    others(&mut page, judged);
    ranks(&mut page, judged);
    page.out.push_str(&totals);
    page.finish()
}

/// Collects whole parts while they fit.
pub(super) struct Page {
    out: String,
    /// Bytes that what is sure to come needs.
    kept_free: usize,
    left_out: usize,
}

impl Page {
    fn fits(&self, bytes: usize) -> bool {
        self.out.len() + bytes + self.kept_free <= MOST_BYTES
    }

    pub(super) fn new(kept_free: usize) -> Self {
        Self { out: String::new(), kept_free: RESERVE_BYTES + kept_free, left_out: 0 }
    }

    pub(super) fn add(&mut self, part: &str) -> bool {
        let fits = self.fits(part.len());
        if fits {
            self.out.push_str(part);
        } else {
            self.left_out += 1;
        }
        fits
    }

    /// A head, as many items as fit, a tail; nothing if there are no items. An item that doesn't fit is counted.
    pub(super) fn list(&mut self, head: &str, items: impl IntoIterator<Item = String>, tail: &str) {
        // A long list must leave room for what explains it.
        let most = self.out.len() + (MOST_BYTES - self.kept_free).saturating_sub(self.out.len()) / 2;
        let mut open = false;
        for item in items {
            let frame = if open { tail.len() } else { head.len() + tail.len() };
            if self.out.len() + frame + item.len() > most {
                self.left_out += 1;
                continue;
            }
            if !open {
                self.out.push_str(head);
                open = true;
            }
            self.out.push_str(&item);
        }
        if open {
            self.out.push_str(tail);
        }
    }

    pub(super) fn finish(mut self) -> String {
        if self.left_out > 0 {
            let _ = write!(
                self.out,
                "\n_{} left out to stay below the size limit of a comment; the JSON and HTML reports have everything._\n",
                plural(self.left_out as u64, "part was", "parts were")
            );
        }
        self.out
    }
}

pub(super) fn icon(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "✅",
        Verdict::Fail => "❌",
        Verdict::Inconclusive => "⚠️",
    }
}

fn card(page: &mut Page, judged: &Judged) {
    let audit = &judged.audit;
    let icon = icon(audit.verdict);
    // The comment lets a bot find what it wrote before.
    let mut card = format!("<!-- syncaudit -->\n### {icon} syncaudit: {}\n\n", audit.verdict.id());
    for reason in &audit.reasons {
        let _ = writeln!(card, "- {}", clipped(reason));
    }
    for next in &audit.next {
        let _ = writeln!(card, "- Next: {}", clipped(next));
    }
    let _ = writeln!(card, "- Steps: {}", escape(&words::steps_text(audit)));
    if let Some(price) = price::sentence(audit) {
        let _ = writeln!(card, "- Price: {}", escape(&price));
    }
    if audit.source.emulated {
        card.push_str("- Emulated device: counts and places are real, times are not.\n");
    }
    page.add(&card);
}

fn table(page: &mut Page, judged: &Judged, severity: Severity, title: &str) {
    let of: Vec<&Finding> = judged.findings.iter().filter(|finding| finding.severity == severity).collect();
    if of.is_empty() {
        return;
    }
    let head =
        format!("\n#### {title} ({})\n\n| Where | What | Per ordinary step |\n|---|---|---|\n", of.len());
    page.list(&head, of.iter().map(|finding| row(judged, finding)), "");
}

fn row(judged: &Judged, finding: &Finding) -> String {
    let place = finding_place(judged, finding).map_or_else(|| "-".to_owned(), |place| code(&place));
    let (what, per_step) = match site_of(judged, finding) {
        Some(site) => {
            let ordinary = judged.audit.step_counts.ordinary.max(1) as f64;
            let what = format!("**{}**: {}", finding.code.id(), escape(rule_of(site).headline));
            (what, number(site.ordinary_waits as f64 / ordinary))
        }
        None => (format!("**{}**: {}", finding.code.id(), clipped(&finding.message)), String::new()),
    };
    format!("| {place} | {what} | {per_step} |\n")
}

/// Per error and warning: what is known of it and how to fix it.
fn details(page: &mut Page, judged: &Judged) {
    for finding in judged.findings.iter().filter(|finding| finding.severity >= Severity::Warn) {
        let Some(site) = site_of(judged, finding) else { continue };
        let rule = rule_of(site);
        let mut part = format!(
            "\n<details><summary>{} at <code>{}</code></summary>\n\n{}\n\n",
            finding.code.id(),
            entities(&words::place_text(site)),
            escape(&finding.message)
        );
        for (name, value) in words::facts(&judged.audit, site) {
            let _ = writeln!(part, "- {name}: {}", code(&value));
        }
        let _ = write!(
            part,
            "\n**Why the host waits.** {}\n\n**How to fix it.** {}\n\n**What the fix can break.** {}\n\n",
            escape(rule.waits),
            escape(rule.fix(site)),
            escape(rule.breaks)
        );
        if !finding.help.is_empty() {
            let _ = writeln!(part, "{}\n", escape(&finding.help));
        }
        let _ = writeln!(part, "More: `syncaudit explain {}`\n\n</details>", rule.id);
        page.add(&part);
    }
}

fn notes(page: &mut Page, judged: &Judged) {
    let notes: Vec<&Finding> =
        judged.findings.iter().filter(|finding| finding.severity == Severity::Note).collect();
    let head = format!(
        "\n<details><summary>Good to know ({})</summary>\n\n",
        plural(notes.len() as u64, "note", "notes")
    );
    let line = |finding: &&Finding| {
        let place =
            finding_place(judged, finding).map(|place| format!(" {}", code(&place))).unwrap_or_default();
        let why = finding
            .justification
            .as_ref()
            .map(|reason| format!(" Reason: {}", clipped(reason)))
            .unwrap_or_default();
        format!("- **{}**{place}: {}{why}\n", finding.code.id(), clipped(&finding.message))
    };
    page.list(&head, notes.iter().map(line), "\n</details>\n");
}

/// Places that no finding is about.
fn others(page: &mut Page, judged: &Judged) {
    let said: BTreeSet<usize> = judged.findings.iter().filter_map(|finding| finding.site).collect();
    let rest: Vec<_> = judged
        .audit
        .sites
        .iter()
        .enumerate()
        .filter(|(index, site)| !said.contains(index) && site.status != SiteStatus::OverBudget)
        .collect();
    let head = format!(
        "\n<details><summary>Other waits, not judged ({})</summary>\n\n",
        plural(rest.len() as u64, "place", "places")
    );
    let line = |(_, site): &(usize, &crate::audit::Site)| {
        format!(
            "- {} {} at {}: {}\n",
            site.status.id(),
            site.kind.id(),
            code(&words::place_text(site)),
            escape(&words::spread(site))
        )
    };
    page.list(&head, rest.iter().map(line), "\n</details>\n");
}

/// The ranks of a job, at most so many.
const MOST_RANKS: usize = 64;

fn ranks(page: &mut Page, judged: &Judged) {
    let Some(ranks) = words::ranks(&judged.audit, MOST_RANKS) else { return };
    let mut part = format!(
        "\n<details><summary>Ranks ({})</summary>\n\n| {} |\n|---{}|\n",
        judged.audit.ranks.len(),
        ranks.head.join(" | "),
        "|---:".repeat(ranks.head.len() - 1)
    );
    for row in &ranks.rows {
        let _ = writeln!(part, "| {} |", row.join(" | "));
    }
    if ranks.left_out > 0 {
        let more = plural(ranks.left_out as u64, "more rank", "more ranks");
        let _ = write!(part, "\n... and {more} that wait less\n");
    }
    part.push('\n');
    for sentence in &ranks.sentences {
        let _ = writeln!(part, "- {}", clipped(sentence));
    }
    for place in &ranks.places {
        let _ = writeln!(part, "  - {}", clipped(place));
    }
    part.push_str("\n</details>\n");
    page.add(&part);
}

fn totals(judged: &Judged) -> String {
    let mut part = "\n<details><summary>Totals</summary>\n\n| | |\n|---|---|\n".to_owned();
    for (name, value) in words::totals(&judged.audit) {
        let _ = writeln!(part, "| {name} | {} |", escape(&value));
    }
    part.push_str("\n</details>\n");
    part
}

/// A reason may hold the words of a whole program; nobody reads more than this of one.
const MOST_CHARS: usize = 600;

pub(super) fn clipped(text: &str) -> String {
    escape(&words::clip(text, MOST_CHARS))
}

/// Text that means nothing but itself. Hosts look for mentions and issues in what is shown, so that an entity does not hide them: a
/// blank of no width does.
fn escape(text: &str) -> String {
    entities(text).replace("&#64;", "@&#8203;").replace("&#35;", "#&#8203;")
}

/// Text as code, in a table or not. Nothing in it is looked at for mentions.
pub(super) fn code(text: &str) -> String {
    format!("<code>{}</code>", entities(&words::clip(text, MOST_CHARS)))
}

/// Every character that could be markup as an entity.
fn entities(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in plain(text).chars() {
        match c {
            '&' | '<' | '>' | '@' | '#' | '|' | '*' | '_' | '`' | '[' | ']' | '\\' | '~' | '!' => {
                let _ = write!(out, "&#{};", c as u32);
            }
            c => out.push(c),
        }
    }
    out
}
