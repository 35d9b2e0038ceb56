//! Values of the budget file and of the view's settings: from TOML to what they mean, or a fault with the place where it stands.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Where in the text, and what is wrong there.
pub(crate) type Fault = (Range<usize>, String);

pub(crate) type Key<'a> = Spanned<std::borrow::Cow<'a, str>>;
pub(crate) type Value<'a> = Spanned<DeValue<'a>>;

/// Keys and values in the order in which they are written.
pub(crate) fn in_order<'v, 'a>(table: &'v DeTable<'a>) -> Vec<(&'v Key<'a>, &'v Value<'a>)> {
    let mut pairs: Vec<_> = table.iter().collect();
    pairs.sort_by_key(|(key, _)| key.span().start);
    pairs
}

pub(crate) fn table<'v, 'a>(key: &Key<'_>, value: &'v Value<'a>) -> Result<&'v DeTable<'a>, Fault> {
    match value.get_ref() {
        DeValue::Table(table) => Ok(table),
        other => Err((
            value.span(),
            format!(
                "'{0}' is a section: write [{0}] and its keys below, not {1}",
                key.get_ref(),
                other.type_str()
            ),
        )),
    }
}

/// The tables of `[[key]]`, each with its place.
pub(crate) fn tables<'v, 'a>(
    key: &Key<'_>,
    value: &'v Value<'a>,
) -> Result<Vec<(Range<usize>, &'v DeTable<'a>)>, Fault> {
    let fault = |found: &DeValue<'_>, at: Range<usize>| {
        let name = key.get_ref();
        (
            at,
            format!(
                "'{name}' is a list of sections: write [[{name}]] for each entry, not {}",
                found.type_str()
            ),
        )
    };
    let DeValue::Array(array) = value.get_ref() else { return Err(fault(value.get_ref(), value.span())) };
    array
        .iter()
        .map(|item| match item.get_ref() {
            DeValue::Table(table) => Ok((item.span(), table)),
            other => Err(fault(other, item.span())),
        })
        .collect()
}

pub(crate) fn count(key: &Key<'_>, value: &Value<'_>) -> Result<u64, Fault> {
    let fault = |found: &str| {
        (value.span(), format!("'{}' must be a whole number from 0 up, not {found}", key.get_ref()))
    };
    match value.get_ref() {
        DeValue::Integer(number) => {
            u64::from_str_radix(number.as_str(), number.radix()).map_err(|_| fault(number.as_str()))
        }
        other => Err(fault(other.type_str())),
    }
}

/// Milliseconds with or without a fraction, as nanoseconds.
pub(crate) fn milliseconds(key: &Key<'_>, value: &Value<'_>) -> Result<u64, Fault> {
    let fault = |found: &str| {
        (value.span(), format!("'{}' must be a number of milliseconds from 0 up, not {found}", key.get_ref()))
    };
    let ms = match value.get_ref() {
        DeValue::Float(number) => {
            number.as_str().replace('_', "").parse::<f64>().map_err(|_| fault(number.as_str()))?
        }
        DeValue::Integer(_) => count(key, value).map_err(|_| fault("that"))? as f64,
        other => return Err(fault(other.type_str())),
    };
    let ns = ms * 1e6;
    if (0.0..9e15).contains(&ns) { Ok(ns.round() as u64) } else { Err(fault(&ms.to_string())) }
}

pub(crate) fn text<'v>(key: &Key<'_>, value: &'v Value<'_>) -> Result<&'v str, Fault> {
    match value.get_ref() {
        DeValue::String(text) => Ok(text.as_ref()),
        other => Err((
            value.span(),
            format!("'{}' must be a text in quotes, not {}", key.get_ref(), other.type_str()),
        )),
    }
}

pub(crate) fn flag(key: &Key<'_>, value: &Value<'_>) -> Result<bool, Fault> {
    match value.get_ref() {
        DeValue::Boolean(flag) => Ok(*flag),
        other => Err((
            value.span(),
            format!("'{}' must be true or false, not {}", key.get_ref(), other.type_str()),
        )),
    }
}

/// A text that says something.
pub(crate) fn words(key: &Key<'_>, value: &Value<'_>) -> Result<String, Fault> {
    let words = text(key, value)?.trim();
    if words.is_empty() {
        return Err((value.span(), format!("'{}' is empty", key.get_ref())));
    }
    Ok(words.to_owned())
}

pub(crate) fn texts(key: &Key<'_>, value: &Value<'_>) -> Result<Vec<String>, Fault> {
    items(key, value, "[\"src\"]")?.iter().map(|item| words(key, item)).collect()
}

/// What a list has in it; `example` shows one.
pub(crate) fn items<'v, 'a>(
    key: &Key<'_>,
    value: &'v Value<'a>,
    example: &str,
) -> Result<&'v [Value<'a>], Fault> {
    match value.get_ref() {
        DeValue::Array(array) => Ok(array),
        other => Err((
            value.span(),
            format!(
                "'{}' must be a list of texts, for example {example}, not {}",
                key.get_ref(),
                other.type_str()
            ),
        )),
    }
}

/// A text, or a whole number where that is the same thing (`log-every = 10`), or a date.
pub(crate) fn parsed<T: FromStr<Err: fmt::Display>>(key: &Key<'_>, value: &Value<'_>) -> Result<T, Fault> {
    let written = match value.get_ref() {
        DeValue::Integer(number) if key.get_ref() == "log-every" => number.as_str().to_owned(),
        DeValue::Datetime(date) if key.get_ref() == "expires" => date.to_string(),
        _ => text(key, value)?.to_owned(),
    };
    written.parse().map_err(|error| (value.span(), format!("'{}': {error}", key.get_ref())))
}

/// One of a few words.
pub(crate) fn choice<T: Copy>(
    key: &Key<'_>,
    value: &Value<'_>,
    choices: &[(&'static str, T)],
) -> Result<T, Fault> {
    let found = text(key, value)?;
    choices.iter().find(|(word, _)| *word == found).map(|(_, choice)| *choice).ok_or_else(|| {
        let known: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        (value.span(), format!("'{}' can't be '{found}'; {}", key.get_ref(), advice(found, &known)))
    })
}

pub(crate) fn unknown(key: &Key<'_>, place: &str, known: &[&str]) -> Fault {
    let found = key.get_ref();
    (key.span(), format!("'{found}' is not known {place}; {}", advice(found, known)))
}

/// What people write for words of the file, where spelling alone does not lead from one to the other.
const OTHER_WORDS: [(&str, &str); 17] = [
    ("id", "fingerprint"),
    ("hash", "fingerprint"),
    ("name", "function"),
    ("operator", "op"),
    ("why", "reason"),
    ("because", "reason"),
    ("until", "expires"),
    ("limit", "max-per-step"),
    ("most", "max-per-step"),
    ("d2h", "device-to-host-read"),
    ("dtoh", "device-to-host-read"),
    ("item", "device-to-host-read"),
    ("h2d", "host-to-device-write"),
    ("htod", "host-to-device-write"),
    ("malloc", "memory-management"),
    ("free", "memory-management"),
    ("synchronize", "device-sync"),
];

/// The known word that is meant, or those that may be, else all of them.
pub(crate) fn advice(found: &str, known: &[&str]) -> String {
    let found = found.to_lowercase().replace('_', "-");
    let meant =
        OTHER_WORDS.iter().find(|(word, meant)| *word == found && known.contains(meant)).map(|pair| pair.1);
    // Part of some of them: `sync` may be three kinds.
    let parts: Vec<&str> =
        known.iter().copied().filter(|word| found.len() >= 3 && word.contains(&found)).collect();
    let closest = known
        .iter()
        .map(|word| (strsim::damerau_levenshtein(&found, word), *word))
        .filter(|(distance, word)| *distance <= word.len().div_ceil(2))
        .min()
        .map(|pair| pair.1);
    match (meant, &parts[..], closest) {
        (Some(word), ..) | (None, &[word], _) | (None, [], Some(word)) => format!("did you mean '{word}'?"),
        (None, [], None) => format!("known are: {}", known.join(", ")),
        (None, parts, _) => format!("did you mean one of '{}'?", parts.join("', '")),
    }
}
