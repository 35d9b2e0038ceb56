//! The allow-list: waits that somebody has looked at and accepted, each with a reason.
//!
//! In: entries of the configuration, and sites. Out: which entry covers which site, which have expired, and which cover nothing, telling "gone"
//! from "this run never got there". Ten thousand entries must not be slow: entries with a plain name are found by it.

use rustc_hash::{FxHashMap as HashMap, FxHashSet as HashSet};

use super::compare::reached;
use super::date::Date;
use super::place::Entry;
use crate::Audit;
use crate::audit::{Pattern, Site, WaitKind, stem};

/// An entry of the allow-list. What is given of fingerprint, function, range, op and kind must all fit, and one of them is given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowEntry {
    pub fingerprint: Option<String>,
    /// One of the user's functions on the stack, by the name in reports or its last segment.
    pub function: Option<Pattern>,
    /// One of the ranges around the wait.
    pub range: Option<Pattern>,
    /// One of the operators around the wait.
    pub op: Option<Pattern>,
    pub kind: Option<WaitKind>,
    /// Why; shown wherever the entry covers something.
    pub reason: String,
    /// Its last day.
    pub expires: Option<Date>,
    pub owner: Option<String>,
    /// Waits of one ordinary step at one site; without it any number.
    pub max_per_step: Option<u64>,
    /// Line in the configuration, from 1.
    pub line: usize,
}

impl AllowEntry {
    /// Whether its last day is past.
    #[must_use]
    pub fn is_expired(&self, today: Date) -> bool {
        self.expires.is_some_and(|last| last < today)
    }

    fn covers(&self, site: &Site) -> bool {
        let any =
            |pattern: &Option<Pattern>, fits: &dyn Fn(&Pattern) -> bool| pattern.as_ref().is_none_or(fits);
        self.kind.is_none_or(|kind| kind == site.kind)
            && self.fingerprint.as_ref().is_none_or(|fingerprint| *fingerprint == site.fingerprint)
            && any(&self.range, &|range| site.range.iter().any(|name| range.matches(name)))
            && any(&self.op, &|op| site.ops.iter().chain(&site.op).any(|name| op.matches_whole(name)))
            && any(&self.function, &|function| names_of(site).any(|name| function.matches_whole(name)))
    }

    /// What it is about, in words.
    #[must_use]
    pub fn what(&self) -> String {
        let mut words = Vec::new();
        let mut add = |name: &str, value: Option<String>| {
            words.extend(value.map(|value| format!("{name} {value}")));
        };
        add("fingerprint", self.fingerprint.clone());
        add("function", self.function.as_ref().map(ToString::to_string));
        add("range", self.range.as_ref().map(ToString::to_string));
        add("op", self.op.as_ref().map(ToString::to_string));
        add("kind", self.kind.map(|kind| kind.id().to_owned()));
        words.join(", ")
    }
}

/// Names of the user's functions, as fingerprints and as reports have them.
fn names_of(site: &Site) -> impl Iterator<Item = &str> {
    let frames = site.python.iter().chain(&site.native).filter(|frame| frame.user);
    site.functions.iter().map(String::as_str).chain(frames.map(|frame| frame.function.as_str()))
}

/// Why an entry covers nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmatched {
    /// The run came by its place and found no such wait.
    Gone,
    /// The trace does not tell that the run came by.
    NotReached,
    /// Its place is known by a fingerprint alone, which no baseline explains.
    Unknown,
}

/// What an allow-list says of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// Per site the entry that covers it: the first that has not expired, else the first.
    pub of_site: Vec<Option<usize>>,
    /// Entries that cover no site.
    pub unmatched: Vec<(usize, Unmatched)>,
}

/// Holds the list against the sites of a run. `baseline` explains fingerprints of sites that this run does not have.
#[must_use]
pub fn find(entries: &[AllowEntry], audit: &Audit, baseline: &[Entry], today: Date) -> Allowed {
    let index = Index::new(entries);
    let mut used = vec![false; entries.len()];
    let mut candidates = Vec::new();
    let of_site = audit
        .sites
        .iter()
        .map(|site| {
            candidates.clear();
            index.candidates(site, &mut candidates);
            let mut expired = None;
            let mut valid = None;
            for &candidate in &candidates {
                let entry = &entries[candidate];
                if site.by_recorder || !entry.covers(site) {
                    continue;
                }
                used[candidate] = true;
                let first = if entry.is_expired(today) { &mut expired } else { &mut valid };
                first.get_or_insert(candidate);
            }
            valid.or(expired)
        })
        .collect();
    let by_fingerprint = entries.iter().zip(&used).any(|(entry, used)| !used && entry.fingerprint.is_some());
    let seen = Seen::new(audit, baseline, by_fingerprint);
    let unmatched = entries
        .iter()
        .enumerate()
        .filter(|(index, _)| !used[*index])
        .map(|(index, entry)| (index, seen.why_unmatched(entry)))
        .collect();
    Allowed { of_site, unmatched }
}

/// Where the run got to.
struct Seen<'a> {
    audit: &'a Audit,
    /// Names, and names without numbers at their ends.
    names: HashSet<&'a str>,
    stems: HashSet<&'a str>,
    /// Of the baseline, by fingerprint.
    places: HashMap<String, &'a Entry>,
}

impl<'a> Seen<'a> {
    fn new(audit: &'a Audit, baseline: &'a [Entry], needs_places: bool) -> Self {
        Self {
            audit,
            names: audit.seen.iter().map(String::as_str).collect(),
            stems: audit.seen.iter().map(|name| stem(name)).collect(),
            places: if needs_places {
                baseline.iter().map(|entry| (entry.fingerprint(), entry)).collect()
            } else {
                HashMap::default()
            },
        }
    }

    fn why_unmatched(&self, entry: &AllowEntry) -> Unmatched {
        if self.audit.step_counts.ordinary == 0 {
            return Unmatched::NotReached;
        }
        let range = |pattern: &Pattern| match pattern.literal() {
            Some(name) => self.names.contains(name) || self.stems.contains(name),
            None => self.audit.seen.iter().any(|name| pattern.matches(name)),
        };
        let whole = |pattern: &Pattern| match pattern.literal() {
            Some(name) => self.names.contains(name),
            None => self.audit.seen.iter().any(|name| pattern.matches_whole(name)),
        };
        // `None`: it says nothing about where.
        let evidence = [
            entry.range.as_ref().map(range),
            entry.op.as_ref().map(whole),
            entry.function.as_ref().map(whole),
        ];
        let answer = |reached: bool| if reached { Unmatched::Gone } else { Unmatched::NotReached };
        if evidence.iter().any(Option::is_some) {
            return answer(!evidence.contains(&Some(false)));
        }
        let Some(fingerprint) = &entry.fingerprint else { return Unmatched::Gone };
        let known = self.places.get(fingerprint);
        known.map_or(Unmatched::Unknown, |known| answer(reached(known, self.audit)))
    }
}

/// Entries by one plain name that they need; the rest has to be tried.
struct Index<'e> {
    by_fingerprint: HashMap<&'e str, Vec<usize>>,
    by_name: HashMap<&'e str, Vec<usize>>,
    others: Vec<usize>,
}

impl<'e> Index<'e> {
    fn new(entries: &'e [AllowEntry]) -> Self {
        let mut index =
            Self { by_fingerprint: HashMap::default(), by_name: HashMap::default(), others: Vec::new() };
        for (at, entry) in entries.iter().enumerate() {
            let literal = |pattern: &'e Option<Pattern>| pattern.as_ref().and_then(Pattern::literal);
            if let Some(fingerprint) = &entry.fingerprint {
                index.by_fingerprint.entry(fingerprint).or_default().push(at);
            } else if let Some(name) = literal(&entry.function).or_else(|| literal(&entry.op)) {
                index.by_name.entry(name).or_default().push(at);
            } else if let Some(name) = literal(&entry.range) {
                index.by_name.entry(name).or_default().push(at);
            } else {
                index.others.push(at);
            }
        }
        index
    }

    /// Entries that may cover the site, in the order of the list.
    fn candidates(&self, site: &Site, candidates: &mut Vec<usize>) {
        let ranges = site.range.iter().flat_map(|name| [name.as_str(), stem(name)]);
        let named = names_of(site).chain(site.ops.iter().chain(&site.op).map(String::as_str)).chain(ranges);
        candidates.extend(named.filter_map(|name| self.by_name.get(name)).flatten());
        candidates.extend(self.by_fingerprint.get(site.fingerprint.as_str()).into_iter().flatten());
        candidates.extend(&self.others);
        candidates.sort_unstable();
        candidates.dedup();
    }
}
