//! Reports: one file per format. They read an [`Audit`] and hold no rule.

mod json;
pub(crate) mod text;

pub use json::json;
pub use text::{TextStyle, text};

use crate::Audit;
