//! The sections of the budget file. Every list of keys stands here once; the published schema is tested against them.

use std::path::Path;

use toml::de::DeTable;

use super::values::{
    Fault, Key, choice, count, in_order, milliseconds, parsed, table, tables, text, texts, unknown, words,
};
use super::{Config, Lines};
use crate::audit::{AuditOptions, Budget, Level, WaitKind};
use crate::gate::{AllowEntry, Runs};

pub(super) const TOP: &[&str] = &["steps", "budget", "severity", "check", "sources", "allow"];
pub(super) const STEPS: &[&str] = &["pattern", "warmup", "log-every", "log-range"];
pub(super) const BUDGET: &[&str] =
    &["waits-per-step", "kinds", "ranges", "log-steps", "exposed-ms-per-step", "exposed_ms_per_step"];
pub(super) const LOG_BUDGET: &[&str] = &["waits-per-step", "kinds", "ranges"];
pub(super) const CHECK: &[&str] = &["baseline", "runs"];
pub(super) const SOURCES: &[&str] = &["roots"];
pub(super) const ALLOW: &[&str] = &[
    "fingerprint",
    "function",
    "range",
    "op",
    "kind",
    "reason",
    "expires",
    "owner",
    "max-per-step",
    "max_per_step",
];

pub(super) const RUNS: &[(&str, Runs)] = &[("all", Runs::All), ("any", Runs::Any)];

/// All sections; `folder` is the one that relative paths start from.
pub(super) fn read(root: &DeTable<'_>, folder: &Path, lines: &Lines<'_>) -> Result<Config, Fault> {
    let mut config = Config::default();
    let mut kinds_with_budget = Vec::new();
    for (key, value) in in_order(root) {
        match key.get_ref().as_ref() {
            "steps" => steps(table(key, value)?, &mut config.options)?,
            "budget" => {
                let section = table(key, value)?;
                budget(section, &mut config.options)?;
                kinds_with_budget = kinds_of(section);
            }
            "severity" => {
                for (key, value) in in_order(table(key, value)?) {
                    let levels = Level::ALL.map(|level| (level.id(), level));
                    config.options.severity.insert(kind(key)?, choice(key, value, &levels)?);
                }
            }
            "check" => {
                for (key, value) in in_order(table(key, value)?) {
                    match key.get_ref().as_ref() {
                        "baseline" => config.baseline = Some(folder.join(words(key, value)?)),
                        "runs" => config.rules.runs = choice(key, value, RUNS)?,
                        _ => return Err(unknown(key, "in [check]", CHECK)),
                    }
                }
            }
            "sources" => {
                for (key, value) in in_order(table(key, value)?) {
                    match key.get_ref().as_ref() {
                        "roots" => {
                            let roots = texts(key, value)?.into_iter().map(|root| folder.join(root));
                            // Paths in traces are absolute.
                            config.options.roots =
                                roots.map(|root| std::path::absolute(&root).unwrap_or(root)).collect();
                        }
                        _ => return Err(unknown(key, "in [sources]", SOURCES)),
                    }
                }
            }
            "allow" => {
                for (at, entry) in tables(key, value)? {
                    config.rules.allow.push(allow(at.start, entry, lines)?);
                }
            }
            _ => return Err(unknown(key, "in a budget file", TOP)),
        }
    }
    for (key, kind) in kinds_with_budget {
        if config.options.level(kind) == Level::Off {
            return Err((
                key.span(),
                format!(
                    "'{}' is \"off\" in [severity], so that a budget for it judges nothing; take one of the two out",
                    kind.id()
                ),
            ));
        }
    }
    Ok(config)
}

fn steps(section: &DeTable<'_>, options: &mut AuditOptions) -> Result<(), Fault> {
    let rules = &mut options.steps;
    for (key, value) in in_order(section) {
        match key.get_ref().as_ref() {
            "pattern" => rules.pattern = Some(parsed(key, value)?),
            "warmup" => rules.warmup = usize::try_from(count(key, value)?).unwrap_or(usize::MAX),
            "log-every" => rules.log_every = Some(parsed(key, value)?),
            "log-range" => rules.log_range = Some(parsed(key, value)?),
            _ => return Err(unknown(key, "in [steps]", STEPS)),
        }
    }
    Ok(())
}

fn budget(section: &DeTable<'_>, options: &mut AuditOptions) -> Result<(), Fault> {
    for (key, value) in in_order(section) {
        if key.get_ref() == "log-steps" {
            let mut budget = Budget::default();
            let mut total = None;
            for (key, value) in in_order(table(key, value)?) {
                if key.get_ref() == "waits-per-step" {
                    total = Some(count(key, value)?);
                } else if !allowance(key, value, &mut budget)? {
                    return Err(unknown(key, "in [budget.log-steps]", LOG_BUDGET));
                }
            }
            // Log steps may wait as they like: only what is written is judged.
            budget.total = total.unwrap_or(u64::MAX);
            options.log_budget = Some(budget);
        } else if key.get_ref() == "waits-per-step" {
            options.budget.total = count(key, value)?;
        } else if matches!(key.get_ref().as_ref(), "exposed-ms-per-step" | "exposed_ms_per_step") {
            options.budget.exposed_ns = Some(milliseconds(key, value)?);
        } else if !allowance(key, value, &mut options.budget)? {
            if let Some(kind) = WaitKind::from_id(key.get_ref()) {
                return Err((
                    key.span(),
                    format!("'{0}' is a kind of wait: kinds stand under [budget.kinds]", kind.id()),
                ));
            }
            return Err(unknown(key, "in [budget]", &BUDGET[..BUDGET.len() - 1]));
        }
    }
    Ok(())
}

/// Allowances of kinds and ranges; `false` for any other key.
fn allowance(key: &Key<'_>, value: &super::values::Value<'_>, budget: &mut Budget) -> Result<bool, Fault> {
    match key.get_ref().as_ref() {
        "kinds" => {
            for (key, value) in in_order(table(key, value)?) {
                budget.per_kind.insert(kind(key)?, count(key, value)?);
            }
        }
        "ranges" => {
            for (key, value) in in_order(table(key, value)?) {
                let pattern = key.get_ref().parse().map_err(|error| (key.span(), format!("{error}")))?;
                budget.per_range.push((pattern, count(key, value)?));
            }
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// The kinds that a budget has lines for, with the places of these.
fn kinds_of<'v, 'a>(budget: &'v DeTable<'a>) -> Vec<(&'v Key<'a>, WaitKind)> {
    let mut kinds = Vec::new();
    for (key, value) in in_order(budget) {
        if key.get_ref() != "kinds" {
            continue;
        }
        if let Ok(section) = table(key, value) {
            let known = in_order(section).into_iter().filter_map(|(key, _)| Some((key, kind(key).ok()?)));
            kinds.extend(known);
        }
    }
    kinds
}

fn kind(key: &Key<'_>) -> Result<WaitKind, Fault> {
    WaitKind::from_id(key.get_ref())
        .ok_or_else(|| unknown(key, "as a kind of wait", &WaitKind::ALL.map(WaitKind::id)))
}

fn allow(start: usize, section: &DeTable<'_>, lines: &Lines<'_>) -> Result<AllowEntry, Fault> {
    let mut entry = AllowEntry { line: lines.of(start).0, ..AllowEntry::default() };
    for (key, value) in in_order(section) {
        match key.get_ref().as_ref() {
            "fingerprint" => {
                let found = text(key, value)?;
                if found.len() != 16 || !found.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
                    return Err((
                        value.span(),
                        format!("'{found}' is no fingerprint: 16 hex digits, as the report's 'id' has them"),
                    ));
                }
                entry.fingerprint = Some(found.to_owned());
            }
            "function" => entry.function = Some(parsed(key, value)?),
            "range" => entry.range = Some(parsed(key, value)?),
            "op" => entry.op = Some(parsed(key, value)?),
            "kind" => entry.kind = Some(choice(key, value, &WaitKind::ALL.map(|kind| (kind.id(), kind)))?),
            "reason" => entry.reason = words(key, value)?,
            "expires" => entry.expires = Some(parsed(key, value)?),
            "owner" => entry.owner = Some(words(key, value)?),
            "max-per-step" | "max_per_step" => {
                let most = count(key, value)?;
                if most == 0 {
                    return Err((
                        value.span(),
                        "an entry with a 'max-per-step' of 0 allows nothing; take the entry out".to_owned(),
                    ));
                }
                entry.max_per_step = Some(most);
            }
            _ => return Err(unknown(key, "in [[allow]]", &ALLOW[..ALLOW.len() - 1])),
        }
    }
    let place = start..start;
    if entry.reason.is_empty() {
        return Err((
            place,
            "the entry has no 'reason': say why this wait is accepted, for whoever reads it next year"
                .to_owned(),
        ));
    }
    let names_something = entry.fingerprint.is_some()
        || entry.function.is_some()
        || entry.range.is_some()
        || entry.op.is_some()
        || entry.kind.is_some();
    if !names_something {
        return Err((
            place,
            "the entry names no wait: give a 'fingerprint', or a pattern for 'function', 'range', 'op' or 'kind'"
                .to_owned(),
        ));
    }
    Ok(entry)
}
