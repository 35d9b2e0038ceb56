use roxmltree::Document;
use syncaudit::report::junit;

use crate::sample::{judged, many};

fn count(document: &Document<'_>, tag: &str) -> usize {
    document.descendants().filter(|node| node.has_tag_name(tag)).count()
}

#[test]
fn counts_are_those_of_the_cases() {
    for report in [junit(&judged(false)), junit(&judged(true)), junit(&many(0)), junit(&many(25))] {
        let document = Document::parse(&report).expect("well-formed");
        let suite = document.descendants().find(|node| node.has_tag_name("testsuite")).unwrap();
        for (attribute, tag) in
            [("tests", "testcase"), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")]
        {
            assert_eq!(
                suite.attribute(attribute),
                Some(count(&document, tag).to_string().as_str()),
                "{attribute}"
            );
        }
        assert_eq!(count(&document, "testsuite"), 1);
    }
}

#[test]
fn a_new_wait_fails_with_its_place_and_an_accepted_one_is_skipped_with_its_reason() {
    let report = junit(&judged(false));
    let document = Document::parse(&report).unwrap();
    let case = |file: &str| {
        document
            .descendants()
            .find(|node| node.has_tag_name("testcase") && node.attribute("file") == Some(file))
            .unwrap_or_else(|| panic!("{file}: {report}"))
    };
    let anchors = case("src/model dir/anchors.py");
    assert_eq!(
        (anchors.attribute("line"), anchors.attribute("classname")),
        (Some("40"), Some("syncaudit.new-wait"))
    );
    let failure = anchors.children().find(|node| node.has_tag_name("failure")).unwrap();
    assert!(failure.text().unwrap().contains("How to fix it: Keep the shape"), "{failure:?}");
    let skipped = case("src/data.py").children().find(|node| node.has_tag_name("skipped")).unwrap();
    assert!(skipped.attribute("message").unwrap().contains("Reason: constants"), "{skipped:?}");
}

#[test]
fn a_line_of_the_budget_fails_with_the_places_that_are_over_it() {
    let report = junit(&many(2));
    let document = Document::parse(&report).unwrap();
    let budget = |document: &Document<'_>| -> (String, Option<String>) {
        let case = document
            .descendants()
            .find(|node| node.attribute("classname") == Some("syncaudit.budget"))
            .expect("a case for the budget");
        let failure = case.children().find(|node| node.has_tag_name("failure"));
        (case.attribute("name").unwrap().to_owned(), failure.and_then(|node| node.text()).map(str::to_owned))
    };
    let (name, failure) = budget(&document);
    assert_eq!(name, "waits: at most 0 per ordinary step");
    let failure = failure.expect("over the budget");
    assert!(
        failure.contains("src/many.py:1 in function_0") && failure.contains("src/many.py:2"),
        "{failure}"
    );
    let none = junit(&many(0));
    assert_eq!(budget(&Document::parse(&none).unwrap()).1, None);
}
