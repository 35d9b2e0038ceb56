use syncaudit::report::{MARKDOWN_MOST_BYTES, markdown};

use crate::sample::{judged, many};

#[test]
fn the_verdict_comes_first_and_details_are_folded() {
    let report = markdown(&judged(false));
    let mut lines = report.lines();
    assert_eq!(lines.next(), Some("<!-- syncaudit -->"));
    assert_eq!(lines.next(), Some("### ❌ syncaudit: fail"));
    assert!(report.contains("| <code>src/model dir/anchors.py:40 in anchors</code> | **new-wait**: selecting by a boolean mask"), "{report}");
    assert_eq!(report.matches("<details>").count(), report.matches("</details>").count());
    assert!(report.contains("More: `syncaudit explain mask-indexing`"));
    assert!(report.contains("Reason: constants, see"), "{report}");
}

#[test]
fn names_are_neither_markup_nor_mentions() {
    let report = markdown(&judged(false));
    for part in ["<b", "</script>", "@team", "team #12", "]]>"] {
        assert!(!report.contains(part), "{part}: {report}");
    }
    // A bar would open a cell of its own.
    for row in report.lines().filter(|line| line.starts_with("| <code>")) {
        assert_eq!(row.matches('|').count(), 4, "{row}");
    }
}

#[test]
fn what_does_not_fit_a_comment_is_counted() {
    let small = markdown(&many(3));
    assert!(!small.contains("left out"), "{small}");
    let large = markdown(&many(3_000));
    assert!(large.len() <= MARKDOWN_MOST_BYTES, "{}", large.len());
    assert!(large.len() > MARKDOWN_MOST_BYTES / 2, "room is used: {}", large.len());
    let last = large.trim_end().lines().last().unwrap();
    assert!(last.contains("parts were left out to stay below the size limit"), "{last}");
    assert_eq!(large.matches("<details>").count(), large.matches("</details>").count());
    // What does not depend on the number of findings is still there.
    assert!(large.contains("<summary>Totals</summary>"), "{last}");
}
