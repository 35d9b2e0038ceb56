//! What of the files in `reports/` has to stay the same: counts and places.
//!
//! In: reports as the command writes them. Out: what is committed of them, and where two of them differ. A moved line, another
//! process id, a newer library or toolchain, a better wording and a faster machine must make no difference.

use serde_json::{Map, Value};

/// Words for people, and calls that ask whether something has happened, of which there are as many as the day wants.
const NOT_COMPARED: [&str; 7] = ["reasons", "next", "message", "help", "text", "written", "recorded_calls"];

/// A report without what is of one machine or one day: lines, process ids, versions, frames of libraries.
pub fn of(report: &Value) -> Value {
    let mut facts = without_lines(report);
    facts["source"]["versions"] = Value::Object(Map::new());
    for (number, process) in facts["processes"].as_array_mut().into_iter().flatten().enumerate() {
        process["pid"] = (number + 1).into();
    }
    facts
}

fn without_lines(value: &Value) -> Value {
    match value {
        Value::Array(rows) => {
            Value::Array(rows.iter().filter(|row| row["user"] != false).map(without_lines).collect())
        }
        Value::Object(fields) => {
            let kept = |(key, field): (&String, &Value)| {
                (key.clone(), if key == "line" { Value::Null } else { without_lines(field) })
            };
            Value::Object(fields.iter().map(kept).collect())
        }
        other => other.clone(),
    }
}

/// JSON with a row on a line, so that a difference between two versions is one of rows.
pub fn page(report: &Value) -> String {
    let fields = report.as_object().into_iter().flatten().map(|(key, field)| match field.as_array() {
        Some(rows) if !rows.is_empty() => {
            let rows: Vec<String> = rows.iter().map(|row| format!("    {row}")).collect();
            format!("  {key:?}: [\n{}\n  ]", rows.join(",\n"))
        }
        _ => format!("  {key:?}: {field}"),
    });
    format!("{{\n{}\n}}\n", fields.collect::<Vec<_>>().join(",\n"))
}

/// The first difference that matters between a committed file and what it would be now.
pub fn difference(name: &str, old: &str, new: &str) -> Option<String> {
    match name.rsplit_once('.').map_or("", |(_, suffix)| suffix) {
        "json" => match (serde_json::from_str(old), serde_json::from_str(new)) {
            (Ok(old), Ok(new)) => between("", &old, &new),
            (Err(error), _) | (_, Err(error)) => Some(format!("not JSON: {error}")),
        },
        "baseline" => first_line(old.lines(), new.lines()),
        // Prose, and tables of counts; what a command printed is its own.
        "md" if name == "README.md" => first_line(outside_of_blocks(old), outside_of_blocks(new)),
        // Times are of one day; what is measured, and how often it waits, is not.
        "txt" => first_line(cases(old), cases(new)),
        // The same audits as in the JSON files, in words.
        _ => None,
    }
}

fn between(at: &str, old: &Value, new: &Value) -> Option<String> {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let keys: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            keys.into_iter().filter(|key| !NOT_COMPARED.contains(&key.as_str())).find_map(|key| {
                let at = format!("{at}.{key}");
                match (old.get(key), new.get(key)) {
                    (Some(old), Some(new)) => between(&at, old, new),
                    (None, _) => Some(format!("{at} is new")),
                    (_, None) => Some(format!("{at} is gone")),
                }
            })
        }
        (Value::Array(old), Value::Array(new)) => {
            let rows = old.iter().zip(new).enumerate();
            let first = rows
                .filter_map(|(index, (old, new))| {
                    let name = new["fingerprint"].as_str().map(|id| format!(" ({id})")).unwrap_or_default();
                    between(&format!("{at}[{index}]{name}"), old, new)
                })
                .next();
            let lengths = || format!("{at} has {} rows, committed are {}", new.len(), old.len());
            first.or_else(|| (old.len() != new.len()).then(lengths))
        }
        _ => (old != new).then(|| format!("{at} is {new}, committed is {old}")),
    }
}

fn first_line<L: PartialEq + std::fmt::Debug>(
    mut old: impl Iterator<Item = L>,
    mut new: impl Iterator<Item = L>,
) -> Option<String> {
    loop {
        match (old.next(), new.next()) {
            (None, None) => return None,
            (old, new) if old == new => {}
            (old, new) => {
                let say = |line: Option<L>| line.map_or("nothing".to_owned(), |line| format!("{line:?}"));
                return Some(format!("{}, committed is {}", say(new), say(old)));
            }
        }
    }
}

fn outside_of_blocks(text: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    text.lines().filter(move |line| {
        let fence = line.starts_with("```");
        inside ^= fence;
        fence || !inside
    })
}

/// The first two columns of the benchmark's table: which waits, and how many of them a step has.
fn cases(text: &str) -> impl Iterator<Item = Vec<&str>> {
    let rows = text.lines().take_while(|line| !line.is_empty());
    rows.map(|row| row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).take(2).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn report(line: u32, waits: u64, library: &str, pid: u32) -> Value {
        json!({
            "source": {"versions": {"cuda driver": "12080"}},
            "reasons": [format!("{waits} waits")],
            "processes": [{"pid": pid, "rank": 0}],
            "totals": {"recorded_calls": pid, "waits": waits},
            "sites": [{
                "fingerprint": "aa8b70bb469f006b",
                "place": {"file": "step.py", "line": line, "function": "train", "user": true},
                "native": [
                    {"file": library, "line": 1, "function": "memcpy", "user": false},
                    {"file": "step.py", "line": line, "function": "train", "user": true},
                ],
                "ordinary_waits": waits,
            }],
        })
    }

    fn compared(old: &Value, new: &Value) -> Option<String> {
        difference("a.json", &page(&of(old)), &page(&of(new)))
    }

    #[test]
    fn another_machine_and_moved_lines_make_no_difference() {
        assert_eq!(compared(&report(10, 7, "cudarc-1", 31), &report(12, 7, "cudarc-2", 4711)), None);
    }

    #[test]
    fn another_count_a_missing_place_and_another_function_do() {
        let old = report(10, 7, "cudarc-1", 31);
        let said = compared(&old, &report(10, 8, "cudarc-1", 31)).unwrap();
        assert_eq!(said, ".sites[0] (aa8b70bb469f006b).ordinary_waits is 8, committed is 7");
        let mut gone = old.clone();
        gone["sites"] = json!([]);
        assert_eq!(compared(&old, &gone).unwrap(), ".sites has 0 rows, committed are 1");
        let mut renamed = old.clone();
        renamed["sites"][0]["native"][1]["function"] = "fit".into();
        assert!(compared(&old, &renamed).unwrap().contains("\"fit\", committed is \"train\""));
        let mut more = old.clone();
        more["ranks"] = json!([]);
        assert_eq!(
            (compared(&old, &more), compared(&more, &old)),
            (Some(".ranks is new".to_owned()), Some(".ranks is gone".to_owned()))
        );
    }

    #[test]
    fn the_page_holds_the_report() {
        let facts = of(&report(10, 7, "cudarc-1", 31));
        assert_eq!(serde_json::from_str::<Value>(&page(&facts)).unwrap(), facts);
    }

    #[test]
    fn what_a_command_printed_and_how_long_something_took_is_not_compared() {
        let page =
            |waits: u32, line: u32| format!("# A\n\n| rank | {waits} |\n\n```\n$ a\n{line} |\n```\nend\n");
        assert_eq!(difference("README.md", &page(7, 1), &page(7, 2)), None);
        assert!(difference("README.md", &page(7, 1), &page(8, 1)).unwrap().contains("| rank | 8 |"));
        let table = |waits: u32, ms: u32| {
            format!("waits of  waits per step  ms\nall of them  {waits}  {ms}\n\nmodelled {ms}\n")
        };
        assert_eq!(difference("bench.txt", &table(16, 251), &table(16, 300)), None);
        assert_eq!(
            difference("bench.txt", &table(16, 251), &table(17, 251)).unwrap(),
            r#"["all of them", "17"], committed is ["all of them", "16"]"#
        );
    }
}
