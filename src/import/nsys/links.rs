//! What the device's side knows of calls: stream and event by process and correlation id.
//!
//! In: device work, one table after the other. Out: the same for each call that asks, and how many calls should have asked and
//! did not. Correlation ids count up in the order of calls, so a sorted list with a place where the last call was found
//! answers without a search, and without the cache misses of a hash table of millions.

use crate::model::StreamId;

#[derive(Clone, Copy, Debug)]
struct Link {
    process: u32,
    correlation: u32,
    stream: StreamId,
    /// A call of that id was seen.
    called: bool,
    object: u64,
}

impl Link {
    fn key(&self) -> (u32, u32) {
        (self.process, self.correlation)
    }
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Links {
    links: Vec<Link>,
    /// Where the last call was found.
    last: usize,
}

/// So many links after the last one are looked at before searching.
const NEAR: usize = 4;

impl Links {
    /// Notes the stream and the event of the call with that id.
    pub(super) fn add(&mut self, process: usize, correlation: u32, stream: StreamId, object: u64) {
        if correlation != 0 {
            let process = u32::try_from(process).unwrap_or(u32::MAX);
            self.links.push(Link { process, correlation, stream, called: false, object });
        }
    }

    /// To be called between the last [`Self::add`] and the first [`Self::of_call`].
    pub(super) fn settle(&mut self) {
        self.links.sort_by_key(Link::key);
        self.links.dedup_by(|later, first| {
            let same = later.key() == first.key();
            if same && first.stream == StreamId::NONE {
                first.stream = later.stream;
            }
            if same && first.object == 0 {
                first.object = later.object;
            }
            same
        });
    }

    /// Stream and event of a call.
    pub(super) fn of_call(&mut self, process: usize, correlation: u32) -> (StreamId, u64) {
        let key = (u32::try_from(process).unwrap_or(u32::MAX), correlation);
        let near =
            self.links.iter().enumerate().skip(self.last).take(NEAR).find(|(_, link)| link.key() >= key);
        let index = match near {
            Some((index, link)) if link.key() == key || index > self.last => index,
            _ => self.links.partition_point(|link| link.key() < key),
        };
        match self.links.get_mut(index) {
            Some(link) if link.key() == key => {
                link.called = true;
                self.last = index;
                (link.stream, link.object)
            }
            _ => (StreamId::NONE, 0),
        }
    }

    /// Calls that started device work and were not seen, between the first and the last of their process that were. What lies
    /// outside fell out of the recorded window.
    pub(super) fn missing_calls(&self) -> u64 {
        let of_process = |process: &[Link]| {
            let first = process.iter().position(|link| link.called)?;
            let last = process.iter().rposition(|link| link.called)?;
            Some(process[first..=last].iter().filter(|link| !link.called).count() as u64)
        };
        self.links.chunk_by(|a, b| a.process == b.process).filter_map(of_process).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn calls_in_any_order_find_what_was_added(
            added in prop::collection::vec((0usize..3, 0u32..40, 0u32..5, 0u64..3), 0..80),
            asked in prop::collection::vec((0usize..4, 0u32..45), 0..80),
        ) {
            let mut links = Links::default();
            let mut expected: BTreeMap<(usize, u32), (StreamId, u64)> = BTreeMap::new();
            for (process, correlation, stream, object) in added {
                let stream = if stream == 0 { StreamId::NONE } else { StreamId(stream) };
                links.add(process, correlation, stream, object);
                if correlation != 0 {
                    let known = expected.entry((process, correlation)).or_insert((StreamId::NONE, 0));
                    known.0 = if known.0 == StreamId::NONE { stream } else { known.0 };
                    known.1 = if known.1 == 0 { object } else { known.1 };
                }
            }
            links.settle();
            let mut called = Vec::new();
            for key in asked {
                let found = links.of_call(key.0, key.1);
                prop_assert_eq!(found, expected.get(&key).copied().unwrap_or((StreamId::NONE, 0)));
                if expected.contains_key(&key) {
                    called.push(key);
                }
            }
            let missing = expected.keys().filter(|key| {
                let of_process = || called.iter().filter(|call| call.0 == key.0);
                !called.contains(key) && of_process().any(|call| call.1 < key.1) && of_process().any(|call| call.1 > key.1)
            });
            prop_assert_eq!(links.missing_calls(), missing.count() as u64);
        }
    }
}
