use std::collections::BTreeMap;

use syncaudit::report::github;

use crate::sample::{judged, many};

/// A command as the runner reads it: type, properties, text.
fn commands(report: &str) -> Vec<(String, BTreeMap<String, String>, String)> {
    let unescape = |text: &str| {
        text.replace("%3A", ":")
            .replace("%2C", ",")
            .replace("%0A", "\n")
            .replace("%0D", "\r")
            .replace("%25", "%")
    };
    let parse = |line: &str| {
        let (head, text) = line.strip_prefix("::")?.split_once("::")?;
        let (name, properties) = head.split_once(' ').unwrap_or((head, ""));
        let properties = properties
            .split(',')
            .filter_map(|property| property.split_once('='))
            .map(|(key, value)| (key.to_owned(), unescape(value)))
            .collect();
        Some((name.to_owned(), properties, unescape(text)))
    };
    report.lines().filter_map(parse).collect()
}

#[test]
fn an_error_stands_on_its_line_with_the_fix() {
    let report = github(&judged(false));
    let commands = commands(&report);
    assert_eq!((commands[0].0.as_str(), commands[0].1["title"].as_str()), ("error", "syncaudit: fail"));
    let (_, properties, text) = commands
        .iter()
        .find(|(_, properties, _)| {
            properties.get("file").is_some_and(|file| file == "src/model dir/anchors.py")
        })
        .expect("annotated");
    assert_eq!(properties["line"], "40");
    assert!(text.contains("How to fix it: Keep the shape: torch.where"), "{text}");
    assert!(text.contains("syncaudit explain mask-indexing"), "{text}");
}

#[test]
fn findings_on_one_line_share_an_annotation() {
    let report = github(&many(1));
    assert_eq!(commands(&report).iter().filter(|command| command.1.contains_key("file")).count(), 1);
    let places: Vec<_> =
        ["a", "b", "c"].iter().map(|name| crate::sample::place("src/one.py", 5, name)).collect();
    let report = github(&crate::sample::judge(&places, false));
    let on_line: Vec<_> = commands(&report)
        .into_iter()
        .filter(|(name, properties, _)| {
            name == "error" && properties.get("file").is_some_and(|file| file == "src/one.py")
        })
        .collect();
    assert_eq!(on_line.len(), 1, "{report}");
    assert_eq!(on_line[0].1["title"], "syncaudit: 2 findings", "the baseline knows the first");
}

#[test]
fn no_more_than_ten_of_a_type_are_annotated_and_the_last_says_how_many_there_are() {
    for (places, more) in [(9, None), (10, Some("2 more findings are")), (40, Some("32 more findings are"))] {
        let report = github(&many(places));
        let errors: Vec<_> = commands(&report).into_iter().filter(|command| command.0 == "error").collect();
        assert_eq!(errors.len(), 10, "{places}");
        assert_eq!(errors[9].2.starts_with(more.unwrap_or("-")), more.is_some(), "{places}: {}", errors[9].2);
    }
}

#[test]
fn no_name_of_the_program_becomes_a_command() {
    let report = github(&judged(false));
    assert!(!report.contains("##["), "{report}");
    for line in report.lines() {
        let line = line.trim_start();
        if let Some(command) = line.strip_prefix("::") {
            let name = command.split([' ', ':']).next().unwrap();
            assert!(["error", "warning", "notice", "group", "endgroup"].contains(&name), "{line}");
        } else {
            assert!(["error ", "warn ", "note "].iter().any(|word| line.starts_with(word)), "{line}");
        }
    }
}
