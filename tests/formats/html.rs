//! The page in a real browser: a script behind the page's own clicks through it and writes down what it sees.

use std::path::{Path, PathBuf};
use std::process::Command;

use syncaudit::report::html;

use crate::sample::{judged, many};

/// Before everything else: whatever goes wrong is kept.
const LISTEN: &str = "<script>
window.wrong = [];
addEventListener('error', (event) => wrong.push('error: ' + event.message));
addEventListener('unhandledrejection', (event) => wrong.push('rejection: ' + event.reason));
addEventListener('securitypolicyviolation', (event) => wrong.push('policy: ' + event.blockedURI));
for (const level of ['error', 'warn']) console[level] = (...words) => wrong.push('console: ' + words.join(' '));
</script>";

/// Clicks, and writes one line per claim.
const CLICK: &str = r##"<script>
const claims = [];
const claim = (what, holds) => claims.push((holds ? "holds: " : "BROKEN: ") + what);
const rows = () => [...document.querySelectorAll("#sites tr.site")];
const column = (index) => rows().map((row) => row.cells[index].dataset.key);
const sort = (index) => document.querySelectorAll("#sites th button")[index].click();
const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);

const before = column(1);
sort(1);
claim("places are sorted upwards", same(column(1), [...before].sort()));
sort(1);
claim("and downwards", same(column(1), [...before].sort().reverse()));
sort(4);
const numbers = column(4).map(Number);
claim("numbers are sorted from the largest down", same(numbers, [...numbers].sort((a, b) => b - a)));
claim("the sorted column says so", document.querySelectorAll("th")[4].getAttribute("aria-sort") === "descending");
claim("each detail stays behind its row", rows().every((row) => row.nextElementSibling.id === "detail-" + row.dataset.index));

const row = rows()[0];
const button = row.querySelector("button.open");
claim("details are shut at first", row.nextElementSibling.hidden);
button.click();
claim("a click opens them", !row.nextElementSibling.hidden && button.getAttribute("aria-expanded") === "true");
button.click();
claim("another one shuts them", row.nextElementSibling.hidden);

const ground = () => getComputedStyle(document.body).backgroundColor;
const theme = document.getElementById("theme");
theme.click();
const one = ground();
theme.click();
claim("the theme changes the ground", one !== ground());

const box = document.querySelector("svg.timeline rect.wait");
box.dispatchEvent(new MouseEvent("click", { bubbles: true }));
claim("a wait of the timeline opens its place", !document.getElementById("detail-" + box.dataset.site).hidden);
document.querySelector('#sites a[href^="#rule-"]').click();
claim("the rule of a place opens", document.querySelector("details.rule[open]") !== null);

const filter = document.getElementById("filter");
filter.value = "anchors.py";
filter.dispatchEvent(new Event("input"));
claim("the filter leaves what it names", rows().filter((row) => !row.hidden).length === 1);
filter.value = "";
filter.dispatchEvent(new Event("input"));
claim("an empty filter leaves all", rows().every((row) => !row.hidden));

claim("the chart has a bar per step", document.querySelectorAll("svg.chart rect.bar").length === 8);
claim("no name became an element", document.querySelectorAll("b[onload]").length === 0);
claim("nothing was loaded", performance.getEntriesByType("resource").length === 0);
claim("the page is not wider than the window", document.documentElement.scrollWidth <= innerWidth);
const result = document.createElement("pre");
result.id = "result";
result.textContent = "\n" + [...claims, ...wrong].join("\n") + "\n";
document.body.append(result);
</script>"##;

fn browser() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("SYNCAUDIT_CHROMIUM") {
        return Some(named.into());
    }
    let path = std::env::var_os("PATH")?;
    let found = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
        .iter()
        .flat_map(|name| std::env::split_paths(&path).map(move |folder| folder.join(name)))
        .find(|file| file.is_file());
    if found.is_none() {
        println!("skipped: no Chromium in PATH (SYNCAUDIT_CHROMIUM names another one)");
    }
    found
}

/// The page's document after its scripts ran, and what the browser said.
fn open(browser: &Path, page: &Path, profile: &Path) -> (String, String) {
    // A browser that hangs must not hang the tests.
    let output = Command::new("timeout")
        .arg("180")
        .arg(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
        ])
        .args([
            "--disable-component-update",
            "--disable-sync",
            "--enable-logging=stderr",
            "--window-size=1280,900",
        ])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg("--dump-dom")
        .arg(format!("file://{}", page.display()))
        .output()
        .expect("the browser starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

#[test]
fn the_page_works_in_a_browser_without_an_error_on_its_console() {
    let Some(browser) = browser() else { return };
    let place = tempfile::tempdir().unwrap();
    for (name, emulated) in [("measured", false), ("emulated", true)] {
        let page = html(&judged(emulated)).replace("<style>", &format!("{LISTEN}<style>"));
        let page = page.replace("</body>", &format!("{CLICK}</body>"));
        let file = place.path().join(format!("{name}.html"));
        std::fs::write(&file, page).unwrap();
        let (document, said) = open(&browser, &file, &place.path().join(name));
        let result = document.split_once("<pre id=\"result\">").expect("the script came to its end").1;
        let lines: Vec<&str> = result.split("</pre>").next().unwrap().trim().lines().collect();
        assert!(lines.len() > 15, "{lines:?}");
        assert!(lines.iter().all(|line| line.starts_with("holds: ")), "{name}: {lines:#?}");
        let console: Vec<&str> = said.lines().filter(|line| line.contains("CONSOLE")).collect();
        assert!(console.is_empty(), "{name}: {console:#?}");
    }
}

#[test]
fn the_page_needs_no_network() {
    let page = html(&judged(false));
    for part in ["http://", "https://", "src=", "@import", "url(", "<link", "<iframe", "<img"] {
        // Text of the rules may name a place in words; none does so far.
        assert!(!page.contains(part), "{part}");
    }
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn names_are_text_and_a_run_without_waits_is_a_page_too() {
    let page = html(&judged(false));
    assert!(!page.contains("<b onload"));
    assert_eq!(page.matches("</script>").count(), 1);
    let none = html(&many(0));
    assert!(none.contains("<section id=\"verdict\""), "{none}");
}
