//! A graph of moments: each comes as soon as the last of what it waits for has come and a fixed time has passed.
//!
//! In: moments and the edges between them. Out: the time of every moment, for any set of sites taken out. Every edge may belong to a
//! site; without the site the edge is not there. One run is one pass over flat arrays, so that thousands of sets can be tried.

/// A moment of a [`Graph`]; [`START`] is there from the beginning.
pub(super) type Node = u32;
/// The moment zero.
pub(super) const START: Node = 0;
/// The tag of edges that belong to no site.
pub(super) const FIXED: u16 = 0;

#[derive(Clone, Copy, Debug)]
struct Edge {
    from: Node,
    /// Site that it belongs to, plus one.
    tag: u16,
    /// May be negative: relative to the end of something that has a fixed length.
    after_ns: i64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Graph {
    edges: Vec<Edge>,
    /// End of each node's edges.
    ends: Vec<u32>,
    /// Edges to nodes that were finished before.
    late: Vec<(Node, Edge)>,
    /// Position of each node in `ends`, where it is not its own number.
    order: Option<Vec<Node>>,
}

/// The edges go round in a circle: the times of the trace contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Circle;

/// Which sites are taken out.
#[derive(Clone, Debug)]
pub(super) struct Removal {
    /// Added to edges, by tag: zero, or so much that they never decide.
    weight: Vec<i64>,
}

const NEVER: i64 = i64::MIN / 4;

impl Removal {
    /// Nothing is removed, of that many sites.
    pub fn none(sites: usize) -> Self {
        Self { weight: vec![0; sites + 1] }
    }

    pub fn take_out(&mut self, site: usize) {
        self.weight[site + 1] = NEVER;
    }
}

impl Graph {
    pub fn new() -> Self {
        Self { edges: Vec::new(), ends: vec![0], late: Vec::new(), order: None }
    }

    /// An edge to the node that [`Self::finish_node`] makes next.
    pub fn edge(&mut self, from: Node, after_ns: i64, tag: u16) {
        self.edges.push(Edge { from, tag, after_ns });
    }

    /// Makes the node that the edges since the last one lead to.
    pub fn finish_node(&mut self) -> Node {
        let node = u32::try_from(self.ends.len()).unwrap_or(u32::MAX);
        self.ends.push(u32::try_from(self.edges.len()).unwrap_or(u32::MAX));
        node
    }

    /// An edge to a node that is there already.
    pub fn late_edge(&mut self, to: Node, from: Node, after_ns: i64, tag: u16) {
        self.late.push((to, Edge { from, tag, after_ns }));
    }

    fn nodes(&self) -> usize {
        self.ends.len()
    }

    pub fn edges(&self) -> usize {
        self.edges.len()
    }

    /// Puts late edges in their places and finds an order in which every moment comes after what it waits for.
    pub fn seal(&mut self) -> Result<(), Circle> {
        self.edges.shrink_to_fit();
        self.ends.shrink_to_fit();
        if self.late.is_empty() {
            return Ok(());
        }
        let nodes = self.nodes();
        let mut late = std::mem::take(&mut self.late);
        late.sort_by_key(|(to, _)| *to);
        let mut edges = Vec::with_capacity(self.edges.len() + late.len());
        let mut ends = Vec::with_capacity(nodes);
        let mut late = late.into_iter().peekable();
        for node in 0..nodes {
            edges.extend_from_slice(&self.edges[self.range(node)]);
            while let Some((_, edge)) = late.next_if(|(to, _)| *to as usize == node) {
                edges.push(edge);
            }
            ends.push(u32::try_from(edges.len()).unwrap_or(u32::MAX));
        }
        (self.edges, self.ends) = (edges, ends);
        self.order = Some(self.sorted()?);
        Ok(())
    }

    fn range(&self, node: usize) -> std::ops::Range<usize> {
        let start = if node == 0 { 0 } else { self.ends[node - 1] as usize };
        start..self.ends[node] as usize
    }

    fn sorted(&self) -> Result<Vec<Node>, Circle> {
        let nodes = self.nodes();
        let mut open: Vec<u32> =
            (0..nodes).map(|node| u32::try_from(self.range(node).len()).unwrap_or(u32::MAX)).collect();
        // Who waits for a node, as lists in one array.
        let mut first = vec![0u32; nodes + 1];
        for edge in &self.edges {
            first[edge.from as usize + 1] += 1;
        }
        for at in 1..first.len() {
            first[at] += first[at - 1];
        }
        let mut fill = first.clone();
        let mut waiting = vec![0u32; self.edges.len()];
        for node in 0..nodes {
            for edge in &self.edges[self.range(node)] {
                let at = &mut fill[edge.from as usize];
                waiting[*at as usize] = u32::try_from(node).unwrap_or(u32::MAX);
                *at += 1;
            }
        }
        let mut order: Vec<Node> = Vec::with_capacity(nodes);
        order.extend((0..nodes).filter(|&node| open[node] == 0).filter_map(|node| u32::try_from(node).ok()));
        let mut at = 0;
        while let Some(&node) = order.get(at) {
            at += 1;
            for &next in &waiting[first[node as usize] as usize..first[node as usize + 1] as usize] {
                open[next as usize] -= 1;
                if open[next as usize] == 0 {
                    order.push(next);
                }
            }
        }
        if order.len() == nodes { Ok(order) } else { Err(Circle) }
    }

    /// The times of all nodes into `times`.
    pub fn run(&self, removal: &Removal, times: &mut Vec<i64>) {
        times.clear();
        times.resize(self.nodes(), 0);
        match &self.order {
            None => {
                let mut start = 0;
                for node in 0..self.ends.len() {
                    let end = self.ends[node] as usize;
                    let time = latest(&self.edges[start..end], removal, times);
                    times[node] = time;
                    start = end;
                }
            }
            Some(order) => {
                for &node in order {
                    let time = latest(&self.edges[self.range(node as usize)], removal, times);
                    times[node as usize] = time;
                }
            }
        }
    }
}

/// Nothing comes before the start.
#[inline]
fn latest(edges: &[Edge], removal: &Removal, times: &[i64]) -> i64 {
    let mut latest = 0;
    for edge in edges {
        let time = times[edge.from as usize] + edge.after_ns + removal.weight[edge.tag as usize];
        latest = latest.max(time);
    }
    latest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_comes_with_the_last_of_what_it_waits_for_and_a_removed_site_holds_nothing_up() {
        let mut graph = Graph::new();
        graph.edge(START, 10, FIXED);
        let a = graph.finish_node();
        graph.edge(a, 5, FIXED);
        graph.edge(START, 40, 1);
        let b = graph.finish_node();
        assert_eq!(graph.seal(), Ok(()));
        let (mut times, mut removal) = (Vec::new(), Removal::none(1));
        graph.run(&removal, &mut times);
        assert_eq!((times[a as usize], times[b as usize]), (10, 40));
        removal.take_out(0);
        graph.run(&removal, &mut times);
        assert_eq!(times[b as usize], 15);
    }

    #[test]
    fn edges_may_come_late_but_not_go_round() {
        let mut graph = Graph::new();
        let meeting = graph.finish_node();
        graph.edge(meeting, 1, FIXED);
        let after = graph.finish_node();
        graph.edge(START, 70, FIXED);
        let other = graph.finish_node();
        graph.late_edge(meeting, other, 2, FIXED);
        assert_eq!(graph.seal(), Ok(()));
        let mut times = Vec::new();
        graph.run(&Removal::none(0), &mut times);
        assert_eq!((times[meeting as usize], times[after as usize]), (72, 73));

        let mut graph = Graph::new();
        let a = graph.finish_node();
        graph.edge(a, 1, FIXED);
        let b = graph.finish_node();
        graph.late_edge(a, b, 1, FIXED);
        assert_eq!(graph.seal(), Err(Circle));
    }
}
