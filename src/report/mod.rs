//! Reports: one file per format. They read what the gate judged and hold no rule.

mod diff;
mod github;
mod html;
mod json;
mod junit;
mod markdown;
pub(crate) mod price;
mod sarif;
pub(crate) mod text;
mod what_if;
pub(crate) mod words;

pub use diff::{diff_json, diff_markdown, diff_text};
pub use github::github;
pub use html::html;
pub use json::json;
pub use junit::junit;
pub use markdown::{MOST_BYTES as MARKDOWN_MOST_BYTES, markdown};
pub use sarif::sarif;
pub use text::{TextStyle, explain, explain_site, text};
pub use what_if::{what_if_json, what_if_overview, what_if_text};

use crate::Audit;
use crate::gate::Judged;

/// The formats of reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Text,
    Json,
    Markdown,
    Github,
    Sarif,
    Junit,
    Html,
}

impl Format {
    pub const ALL: [Self; 7] =
        [Self::Text, Self::Json, Self::Markdown, Self::Github, Self::Sarif, Self::Junit, Self::Html];

    /// The name on the command line.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
            Self::Markdown => "markdown",
            Self::Github => "github",
            Self::Sarif => "sarif",
            Self::Junit => "junit",
            Self::Html => "html",
        }
    }

    /// The report in this format. The same input gives the same bytes; only text has a style.
    #[must_use]
    pub fn render(self, judged: &Judged, style: TextStyle) -> String {
        match self {
            Self::Text => text(judged, style),
            Self::Json => json(judged),
            Self::Markdown => markdown(judged),
            Self::Github => github(judged),
            Self::Sarif => sarif(judged),
            Self::Junit => junit(judged),
            Self::Html => html(judged),
        }
    }
}
