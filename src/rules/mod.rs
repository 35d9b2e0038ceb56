//! What a wait is as people know it, why it happens and how to get rid of it: one file per idiom, `general.rs` for the kinds.
//!
//! In: the [`Facts`] of a site. Out: exactly one [`Rule`]. An idiom is named only when operator, calls, bytes and frames leave no other
//! reading; everything else gets the general rule of its kind, never a guess. The texts are the one source of `syncaudit explain`, of
//! the reports' notes and of `docs/rules/`. A rule never decides whether something is a wait, or whether it is allowed.

mod facts;
mod general;
mod pages;
#[cfg(test)]
mod sample;

mod allocator_growth;
mod allocator_retry;
mod blocking_download;
mod blocking_pinned_upload;
mod branch_on_tensor;
mod clip_grad_norm;
mod data_dependent_size;
mod empty_cache;
mod expert_loop;
mod free_in_step;
mod grad_scaler;
mod leftover_synchronize;
mod mask_indexing;
mod metric_validation;
mod object_collective;
mod optimizer_scalar_read;
mod pageable_upload;
mod pin_memory;
mod print_tensor;
mod producer_ack;
mod profiler_wait;
mod run_ahead_limit;
mod scalar_assignment;
mod scalar_read;
mod scalar_upload;
mod scatter_size;
mod timestep_lookup;
mod varlen_length;

pub use facts::Facts;
pub use pages::pages;

use crate::audit::{Site, WaitKind};

/// One kind of wait, or one idiom of it. All texts are sentences or begin like one; none speaks of a program at hand.
#[derive(Debug)]
pub struct Rule {
    /// Stable kebab-case name. That of a general rule is its kind's.
    pub id: &'static str,
    /// The kinds of waits it can be.
    pub kinds: &'static [WaitKind],
    /// What happens, in a few words, for a headline. No capital, no full stop.
    pub headline: &'static str,
    /// What it is recognised by.
    pub recognised: &'static str,
    /// What CUDA is asked to do.
    pub cuda: &'static str,
    /// Why the host waits in it.
    pub waits: &'static str,
    /// How to see it.
    pub see: &'static str,
    /// How to fix it in PyTorch.
    pub pytorch: &'static str,
    /// How to fix it in Rust (`cudarc`).
    pub rust: &'static str,
    /// When to leave it alone.
    pub leave: &'static str,
    /// What the fix can break.
    pub breaks: &'static str,
    /// Whether a site is this, judged by itself; [`of`] asks the most specific first.
    pub(crate) fits: fn(&Facts<'_>) -> bool,
}

impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Rule {}

/// All idioms, the most specific first, then the general rules in the order of the kinds.
pub static ALL: &[&Rule] = &[
    &profiler_wait::RULE,
    // Known by the library's own frames.
    &grad_scaler::RULE,
    &clip_grad_norm::RULE,
    &metric_validation::RULE,
    &object_collective::RULE,
    &timestep_lookup::RULE,
    &varlen_length::RULE,
    &scatter_size::RULE,
    &print_tensor::RULE,
    &empty_cache::RULE,
    &leftover_synchronize::RULE,
    &optimizer_scalar_read::RULE,
    // Known by what the program itself calls it.
    &run_ahead_limit::RULE,
    &producer_ack::RULE,
    &expert_loop::RULE,
    // Known by operator, calls and bytes.
    &mask_indexing::RULE,
    &data_dependent_size::RULE,
    &branch_on_tensor::RULE,
    &scalar_read::RULE,
    &blocking_download::RULE,
    &scalar_upload::RULE,
    &scalar_assignment::RULE,
    &blocking_pinned_upload::RULE,
    &pageable_upload::RULE,
    &pin_memory::RULE,
    &allocator_retry::RULE,
    &free_in_step::RULE,
    &allocator_growth::RULE,
    &general::DEVICE_TO_HOST_READ,
    &general::HOST_TO_DEVICE_WRITE,
    &general::STREAM_SYNC,
    &general::EVENT_SYNC,
    &general::DEVICE_SYNC,
    &general::MEMORY_MANAGEMENT,
    &general::MODULE_LOAD,
    &general::LAUNCH_QUEUE_FULL,
    &general::POLLING,
    &general::UNCLASSIFIED,
];

/// The rule of a site.
#[must_use]
pub fn of(facts: &Facts<'_>) -> &'static Rule {
    let kind = facts.site.kind;
    ALL.iter()
        .copied()
        .find(|rule| rule.kinds.contains(&kind) && (rule.fits)(facts))
        .unwrap_or_else(|| general(kind))
}

/// The general rule of a kind.
#[must_use]
pub fn general(kind: WaitKind) -> &'static Rule {
    find(kind.id()).unwrap_or(&general::UNCLASSIFIED)
}

/// The rule with that id (a kind's id is its general rule's).
#[must_use]
pub fn find(id: &str) -> Option<&'static Rule> {
    ALL.iter().find(|rule| rule.id == id).copied()
}

/// The known id that is closest to a word, if any is close.
#[must_use]
pub fn closest(word: &str) -> Option<&'static str> {
    let word = word.to_lowercase();
    let distance = |id: &str| strsim::damerau_levenshtein(&word, id);
    // A part of a name is closer than a misspelling of another one: "pin" means pin-memory.
    let part = ALL.iter().filter(|rule| word.len() >= 3 && rule.id.contains(&word)).map(|rule| rule.id);
    let near = ALL.iter().map(|rule| rule.id).filter(|id| distance(id) <= id.len().div_ceil(3));
    part.min_by_key(|id| (id.len(), *id)).or_else(|| near.min_by_key(|id| (distance(id), *id)))
}

impl Rule {
    /// Whether it speaks for a whole kind rather than for one idiom.
    #[must_use]
    pub fn is_general(&self) -> bool {
        self.kinds.len() == 1 && self.kinds[0].id() == self.id
    }

    /// How to fix it in the program that the site is in.
    #[must_use]
    pub fn fix(&self, site: &Site) -> &'static str {
        if site.framework { self.pytorch } else { self.rust }
    }

    /// The parts of an explanation, in order, each with its title.
    #[must_use]
    pub fn parts(&self) -> [(&'static str, &'static str); 8] {
        [
            ("Recognised by", self.recognised),
            ("What happens in CUDA", self.cuda),
            ("Why the host waits", self.waits),
            ("How to see it", self.see),
            ("How to fix it in PyTorch", self.pytorch),
            ("How to fix it in Rust", self.rust),
            ("When to leave it", self.leave),
            ("What the fix can break", self.breaks),
        ]
    }
}

/// With a capital at the beginning.
pub(crate) fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ids_are_unique_and_kebab_case() {
        let ids: BTreeSet<&str> = ALL.iter().map(|rule| rule.id).collect();
        assert_eq!(ids.len(), ALL.len());
        for id in ids {
            assert!(
                id.split('-').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase())),
                "{id}"
            );
        }
    }

    #[test]
    fn every_kind_has_a_general_rule_and_it_comes_after_all_idioms() {
        for kind in WaitKind::ALL {
            assert_eq!(general(kind).id, kind.id());
            assert!(general(kind).is_general());
        }
        let first = ALL.iter().position(|rule| rule.is_general()).unwrap();
        assert!(ALL[first..].iter().all(|rule| rule.is_general()));
        assert_eq!(ALL.len() - first, WaitKind::ALL.len());
    }

    #[test]
    fn every_part_of_every_rule_is_written() {
        for rule in ALL {
            assert!(!rule.headline.ends_with('.') && rule.headline.len() > 10, "{}", rule.id);
            for (title, text) in rule.parts() {
                assert!(text.ends_with('.') && text.len() >= 7, "{}: {title}: {text}", rule.id);
                assert!(!text.contains("  ") && !text.contains('\n'), "{}: {title}", rule.id);
            }
        }
    }

    #[test]
    fn a_misspelt_word_finds_the_closest_known_one() {
        for (word, expected) in [
            ("device-to-host-raed", Some("device-to-host-read")),
            ("scalar_read", Some("scalar-read")),
            ("Mask-Indexing", Some("mask-indexing")),
            ("pin", Some("pin-memory")),
            ("nothing like it at all", None),
        ] {
            assert_eq!(closest(word), expected, "{word}");
        }
    }
}
