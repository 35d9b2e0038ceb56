//! Reports: one file per format. They read what the gate judged and hold no rule.

mod diff;
mod github;
mod html;
mod json;
mod junit;
mod markdown;
mod sarif;
pub(crate) mod text;
pub(crate) mod words;

pub use diff::{diff_json, diff_text};
pub use github::github;
pub use html::html;
pub use json::json;
pub use junit::junit;
pub use markdown::{MOST_BYTES as MARKDOWN_MOST_BYTES, markdown};
pub use sarif::sarif;
pub use text::{TextStyle, explain, explain_site, text};

use crate::Audit;
