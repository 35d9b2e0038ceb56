use std::path::Path;

use syncaudit::rules;

#[test]
fn the_pages_of_the_rules_are_those_that_the_rules_make() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/rules");
    let pages = rules::pages();
    for (name, text) in &pages {
        let written = std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        assert!(written == *text, "docs/rules/{name} is out of date: run `cargo xtask docs`");
    }
    for entry in std::fs::read_dir(&folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(pages.iter().any(|(page, _)| *page == name), "docs/rules/{name} belongs to no rule");
    }
}
