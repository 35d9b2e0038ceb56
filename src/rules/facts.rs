//! What a rule may look at: one site, and what the copies of all its waits have in common.
//!
//! In: a [`Site`]. Out: questions that rules ask, each answered "no" where the trace can't tell. No question looks at lines, paths of
//! the machine or how often a wait happened in the whole run.

use crate::audit::{Frame, Site};
use crate::model::{ApiClass, MemoryKind, classify};

/// A site as rules see it.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    pub site: &'a Site,
    /// The smallest and the largest copy, 0 where nothing was copied.
    pub least_bytes: u64,
    pub most_bytes: u64,
    /// Memory on both sides of the copy; unknown where the waits differ.
    pub from: MemoryKind,
    pub to: MemoryKind,
}

/// Up to this size a copy is taken for a scalar: the largest element of a tensor is a complex double.
const SCALAR_BYTES: u64 = 16;

impl<'a> Facts<'a> {
    /// Every wait copies something that is not larger than one element of a tensor.
    pub(super) fn is_scalar(&self) -> bool {
        self.least_bytes > 0 && self.most_bytes <= SCALAR_BYTES
    }

    /// Every wait copies more than one element can be.
    pub(super) fn is_larger_than_scalar(&self) -> bool {
        self.least_bytes > SCALAR_BYTES
    }

    /// One of the operators around the wait has one of these names.
    pub(super) fn op(&self, names: &[&str]) -> bool {
        self.site.ops.iter().any(|op| names.contains(&op.as_str()))
    }

    /// Any operator of a framework is around the wait.
    pub(super) fn has_op(&self) -> bool {
        !self.site.ops.is_empty()
    }

    /// The program shows no sign of a framework, here or elsewhere.
    pub(super) fn is_bare(&self) -> bool {
        !self.site.framework
    }

    /// One of the calls is of this class.
    pub(super) fn calls(&self, classes: &[ApiClass]) -> bool {
        self.site.apis.iter().any(|api| classes.contains(&classify(api).class))
    }

    /// Python frames of libraries between the wait and the user's innermost frame: the library's doing. What a library calls back
    /// (a closure, a hook) is the user's own, so frames outwards of the user's don't count.
    pub(super) fn library(&self) -> impl Iterator<Item = &'a Frame> + use<'a> {
        self.site.python.iter().take_while(|frame| !frame.user)
    }

    /// A library frame in a file whose path ends with (or, for a folder `name/`, contains) one of `files`.
    pub(super) fn library_file(&self, files: &[&str]) -> bool {
        self.library().any(|frame| files.iter().any(|file| is_in(frame, file)))
    }

    /// A library frame in one of these functions.
    pub(super) fn library_function(&self, functions: &[&str]) -> bool {
        self.library().any(|frame| functions.contains(&last_segment(&frame.function)))
    }

    /// A range around the wait, or a function or file of the user's, has one of these as a whole word in its name.
    pub(super) fn named(&self, words: &[&str]) -> bool {
        let site = self.site;
        let has = |text: &str| words_of(text).any(|word| words.contains(&word.as_str()));
        site.range.iter().any(|range| has(range))
            || site.python.iter().chain(&site.native).filter(|frame| frame.user).any(|frame| {
                has(last_segment(&frame.function)) || has(frame.file.rsplit('/').next().unwrap_or_default())
            })
    }

    /// The innermost range's name begins so.
    pub(super) fn innermost_range(&self, prefix: &str) -> bool {
        self.site.range.last().is_some_and(|range| range.starts_with(prefix))
    }
}

/// The function alone: `GradScaler.step` and `train::read` give `step` and `read`.
fn last_segment(function: &str) -> &str {
    let function = function.rsplit("::").next().unwrap_or(function);
    function.rsplit('.').next().unwrap_or(function)
}

fn is_in(frame: &Frame, file: &str) -> bool {
    let path = if frame.path.is_empty() { &frame.file } else { &frame.path };
    if file.ends_with('/') {
        return path.starts_with(file) || path.contains(&format!("/{file}"));
    }
    path.strip_suffix(file).is_some_and(|head| head.is_empty() || head.ends_with('/'))
}

/// Lower-case words of a name: split at everything that is no letter, and at humps.
fn words_of(text: &str) -> impl Iterator<Item = String> {
    let mut words = vec![String::new()];
    let mut after_lower = false;
    for c in text.chars() {
        if (!c.is_alphabetic() || (after_lower && c.is_uppercase()))
            && words.last().is_some_and(|w| !w.is_empty())
        {
            words.push(String::new());
        }
        if c.is_alphabetic()
            && let Some(word) = words.last_mut()
        {
            word.extend(c.to_lowercase());
        }
        after_lower = c.is_lowercase();
    }
    words.into_iter().filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_into_words_at_humps_and_underscores() {
        let words = |text| words_of(text).collect::<Vec<_>>();
        assert_eq!(words("MoeLayer.run_experts2"), ["moe", "layer", "run", "experts"]);
        assert_eq!(words("acknowledge"), ["acknowledge"]);
        assert_eq!(words("__"), Vec::<String>::new());
    }

    #[test]
    fn a_file_is_matched_at_folder_boundaries() {
        let frame = |path: &str| Frame { path: path.into(), ..Frame::default() };
        assert!(is_in(&frame("/x/site-packages/torch/nn/utils/clip_grad.py"), "utils/clip_grad.py"));
        assert!(!is_in(&frame("/x/myutils/clip_grad.py"), "utils/clip_grad.py"));
        assert!(is_in(&frame("torchmetrics/metric.py"), "torchmetrics/"));
        assert!(!is_in(&frame("/x/mytorchmetrics/metric.py"), "torchmetrics/"));
    }
}
