//! JSONL of prompts and answers.
//!
//! In: one JSON object a line, in one of three forms: `{"prompt", "answer"}`; `{"messages": [{"role", "content"}, ...]}`,
//! where the assistant's turns are answers; `{"text"}`, all of it supervised. Out: one token list per line; answers are
//! supervised and closed by an end token. Blank lines are skipped.

use super::tokenizer::Tokenizer;
use super::{Marked, plain};
use crate::error::{Error, Result};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Answered { prompt: String, answer: String },
    Messages { messages: Vec<Message> },
    Text { text: String },
}

#[derive(Deserialize)]
struct Message {
    role: String,
    content: String,
}

pub fn documents(text: &str, tokenizer: &Tokenizer) -> Result<Vec<Marked>> {
    text.lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(index, line)| {
            document(line, tokenizer).map_err(|error| Error::new(format!("line {}: {error}", index + 1)))
        })
        .collect()
}

fn document(line: &str, tokenizer: &Tokenizer) -> Result<Marked> {
    // First as any JSON, so that a syntax error is reported as one and not as "no form matched".
    let value: serde_json::Value =
        serde_json::from_str(line).map_err(|error| Error::new(format!("not a JSON object ({error})")))?;
    let line = Line::deserialize(value).map_err(|_| {
        Error::new("expected {\"prompt\", \"answer\"}, {\"messages\": [{\"role\", \"content\"}]} or {\"text\"}, all strings")
    })?;
    let turns = match line {
        Line::Text { text } => return plain(&text, tokenizer),
        Line::Answered { prompt, answer } => vec![(prompt, false), (answer, true)],
        Line::Messages { messages } => {
            messages.into_iter().map(|message| (message.content, message.role == "assistant")).collect()
        }
    };
    let mut marked = Marked::new();
    for (text, supervised) in turns {
        marked.extend(tokenizer.encode(&text)?.into_iter().map(|id| (id, supervised)));
        if supervised {
            marked.push((tokenizer.end_id(), true));
        }
    }
    Ok(marked)
}
