//! Reports: one file per format. They read an [`Audit`] and hold no rule.

mod diff;
mod json;
pub(crate) mod text;

pub use diff::{diff_json, diff_text};
pub use json::json;
pub use text::{TextStyle, text};

use crate::Audit;
