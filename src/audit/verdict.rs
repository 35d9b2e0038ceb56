//! Pass, fail or inconclusive, and why.

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every ordinary step is within the budget, and nothing hides waits.
    Pass,
    /// At least one step is proven to be over the budget.
    Fail,
    /// Neither can be said.
    Inconclusive,
}

impl Verdict {
    /// The name in reports.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Inconclusive => "inconclusive",
        }
    }
}
