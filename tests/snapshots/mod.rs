//! Pictures that are compared as text with the files beside this one; `SYNCAUDIT_UPDATE_SNAPSHOTS=1` writes them anew.

use std::path::Path;

#[track_caller]
pub fn assert_snapshot(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/snapshots/{name}.txt"));
    if std::env::var_os("SYNCAUDIT_UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, found).expect("the snapshot can be written");
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        expected == found,
        "{name} looks different now (SYNCAUDIT_UPDATE_SNAPSHOTS=1 takes it as it is).\nexpected:\n{expected}\nfound:\n{found}"
    );
}
