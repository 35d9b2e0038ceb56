//! The texts trained on when no `--data` is given: this repository's own, carried inside the binary so that it runs from
//! anywhere.

pub const TEXTS: &[&str] = &[
    include_str!("../../../README.md"),
    include_str!("../../../docs/architecture.md"),
    include_str!("../../../docs/waits.md"),
    include_str!("../../../docs/emulator.md"),
    include_str!("../../../docs/trace-format.md"),
    include_str!("../../README.md"),
    include_str!("../../../LICENSE"),
];
