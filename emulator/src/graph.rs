//! Graphs: built by capture or node by node, instantiated into a fixed order, launched as one operation.
//!
//! A launch runs its nodes one after another in an order that respects every edge; a GPU might overlap branches, but
//! the results are the same.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use crate::abi::{HostNode, InstantiateParams, KernelNode, Memcpy3D, MemsetNode, UpdateInfo};
use crate::args::{In, Out};
use crate::blocking::{self, Call};
use crate::capture;
use crate::context::stream;
use crate::copy;
use crate::error::{Error, Result};
use crate::event::{Stamp, event};
use crate::handles::{self, Table, lock};
use crate::kernels::Parameters;
use crate::launch;
use crate::op::{GraphRun, Op, Set2};
use crate::worker::{Role, Stream};

use Role::{Legacy, PerThread};

/// Kinds of nodes beyond what the operation itself says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// Told by the operation.
    Plain,
    Host,
    MemAlloc,
    MemFree,
}

/// A node.
#[derive(Clone)]
struct Node {
    handle: usize,
    kind: u32,
    op: Op,
    /// Handles of the nodes it comes after.
    after: Vec<usize>,
}

/// A graph.
pub struct Graph {
    handle: usize,
    context: u32,
    nodes: Mutex<Vec<Node>>,
}

/// An executable graph: nodes in execution order.
struct Exec {
    /// Number in CUPTI records.
    id: u32,
    context: u32,
    flags: u64,
    nodes: Mutex<Vec<(Node, bool)>>,
}

static GRAPHS: Table<Graph> = Table::new();
static EXECS: Table<Exec> = Table::new();
/// Graph of each node.
static NODES: Table<std::sync::Weak<Graph>> = Table::new();

entry_points! {
    cuGraphCreate(out: Out<usize>, flags: u32)
        => if flags == 0 { out.check().and_then(|()| out.set(publish(&Graph::new(crate::context::current()?.uid)))) } else { Err(Error::INVALID_VALUE) };
    cuGraphDestroy(graph: usize) => destroy(graph);
    cuGraphClone(out: Out<usize>, graph: usize) => clone_graph(out, graph);
    cuGraphAddEmptyNode(out: Out<usize>, graph: usize, deps: In<usize>, n: usize) => add_node(out, graph, deps, n, Op::Nothing, NodeKind::Plain);
    cuGraphAddKernelNode_v2(out: Out<usize>, graph: usize, deps: In<usize>, n: usize, params: In<KernelNode>)
        => add_node(out, graph, deps, n, kernel_op(params)?, NodeKind::Plain);
    cuGraphAddMemcpyNode(out: Out<usize>, graph: usize, deps: In<usize>, n: usize, params: In<Memcpy3D>, ctx: usize)
        => { let _ = ctx; add_node(out, graph, deps, n, Op::Copy(copy::from_descriptor(&params.get()?)?), NodeKind::Plain) };
    cuGraphAddMemsetNode(out: Out<usize>, graph: usize, deps: In<usize>, n: usize, params: In<MemsetNode>, ctx: usize)
        => { let _ = ctx; add_node(out, graph, deps, n, set_op(params)?, NodeKind::Plain) };
    cuGraphAddHostNode(out: Out<usize>, graph: usize, deps: In<usize>, n: usize, params: In<HostNode>)
        => add_node(out, graph, deps, n, host_op(params)?, NodeKind::Host);
    cuGraphAddEventRecordNode(out: Out<usize>, graph: usize, deps: In<usize>, n: usize, hEvent: usize)
        => add_node(out, graph, deps, n, Op::Record(event(hEvent)?, Arc::new(Stamp::default())), NodeKind::Plain);
    cuGraphAddChildGraphNode(out: Out<usize>, graph: usize, deps: In<usize>, n: usize, child: usize)
        => add_node(out, graph, deps, n, child_op(child)?, NodeKind::Plain);
    cuGraphAddDependencies(graph: usize, from: In<usize>, to: In<usize>, n: usize) => edges(graph, from, to, n, true);
    cuGraphRemoveDependencies(graph: usize, from: In<usize>, to: In<usize>, n: usize) => edges(graph, from, to, n, false);
    cuGraphDestroyNode(node: usize) => destroy_node(node);
    cuGraphNodeGetType(node: usize, out: Out<u32>) => with_node(node, |n| n.kind).and_then(|k| out.set(k));
    cuGraphNodeGetDependencies(node: usize, out: Out<usize>, n: Out<usize>) => list(with_node(node, |n| n.after.clone())?, out, n);
    cuGraphNodeGetDependentNodes(node: usize, out: Out<usize>, n: Out<usize>) => list(dependents(node)?, out, n);
    cuGraphGetNodes(graph: usize, out: Out<usize>, n: Out<usize>) => list(find(graph)?.handles(|_| true), out, n);
    cuGraphGetRootNodes(graph: usize, out: Out<usize>, n: Out<usize>) => list(find(graph)?.handles(|n| n.after.is_empty()), out, n);
    cuGraphGetEdges(graph: usize, from: Out<usize>, to: Out<usize>, n: Out<usize>) => get_edges(graph, from, to, n);
    cuGraphInstantiateWithFlags(out: Out<usize>, graph: usize, flags: u64) => instantiate(out, graph, flags);
    cuGraphInstantiateWithParams(out: Out<usize>, graph: usize, params: Out<InstantiateParams>) => instantiate_with(out, graph, params, Legacy);
    cuGraphInstantiateWithParams_ptsz(out: Out<usize>, graph: usize, params: Out<InstantiateParams>) => instantiate_with(out, graph, params, PerThread);
    cuGraphExecDestroy(exec: usize) => EXECS.remove(exec).map(drop).ok_or(Error::INVALID_VALUE);
    cuGraphExecGetFlags(exec: usize, flags: Out<u64>) => flags.set(find_exec(exec)?.flags);
    cuGraphExecUpdate_v2(exec: usize, graph: usize, info: Out<UpdateInfo>) => update(exec, graph, info);
    cuGraphExecKernelNodeSetParams_v2(exec: usize, node: usize, params: In<KernelNode>) => set_exec_node(exec, node, 0, kernel_op(params)?);
    cuGraphExecMemcpyNodeSetParams(exec: usize, node: usize, params: In<Memcpy3D>, ctx: usize)
        => { let _ = ctx; set_exec_node(exec, node, 1, Op::Copy(copy::from_descriptor(&params.get()?)?)) };
    cuGraphExecMemsetNodeSetParams(exec: usize, node: usize, params: In<MemsetNode>, ctx: usize)
        => { let _ = ctx; set_exec_node(exec, node, 2, set_op(params)?) };
    cuGraphExecHostNodeSetParams(exec: usize, node: usize, params: In<HostNode>) => set_exec_node(exec, node, 3, host_op(params)?);
    cuGraphKernelNodeSetParams_v2(node: usize, params: In<KernelNode>) => set_node(node, 0, kernel_op(params)?);
    cuGraphMemcpyNodeSetParams(node: usize, params: In<Memcpy3D>) => set_node(node, 1, Op::Copy(copy::from_descriptor(&params.get()?)?));
    cuGraphMemsetNodeSetParams(node: usize, params: In<MemsetNode>) => set_node(node, 2, set_op(params)?);
    cuGraphHostNodeSetParams(node: usize, params: In<HostNode>) => set_node(node, 3, host_op(params)?);
    cuGraphNodeSetEnabled(exec: usize, node: usize, enabled: u32) => set_enabled(exec, node, enabled != 0);
    cuGraphNodeGetEnabled(exec: usize, node: usize, enabled: Out<u32>) => get_enabled(exec, node, enabled);
    cuGraphLaunch(exec: usize, hStream: usize) => run(exec, stream(hStream, Legacy)?);
    cuGraphLaunch_ptsz(exec: usize, hStream: usize) => run(exec, stream(hStream, PerThread)?);
    cuGraphUpload(exec: usize, hStream: usize) => upload(exec, stream(hStream, Legacy)?);
    cuGraphUpload_ptsz(exec: usize, hStream: usize) => upload(exec, stream(hStream, PerThread)?);
}

impl Graph {
    /// An empty graph. Programs see it once it is published.
    pub fn new(context: u32) -> Arc<Self> {
        Arc::new(Self { handle: handles::fresh(), context, nodes: Mutex::default() })
    }

    /// Adds a node behind the nodes `after`; its handle.
    pub fn add(self: &Arc<Self>, op: Op, kind: NodeKind, after: Vec<usize>) -> usize {
        let handle = handles::fresh();
        NODES.insert(handle, Arc::new(Arc::downgrade(self)));
        lock(&self.nodes).push(Node { handle, kind: kind_of(&op, kind), op, after });
        handle
    }

    /// The nodes `from` and all that they come after.
    pub fn ancestors(&self, from: &[usize]) -> HashSet<usize> {
        let nodes = lock(&self.nodes);
        let mut found = HashSet::new();
        let mut open = from.to_vec();
        while let Some(handle) = open.pop() {
            if found.insert(handle) {
                open.extend(
                    nodes.iter().filter(|n| n.handle == handle).flat_map(|n| n.after.iter().copied()),
                );
            }
        }
        found
    }

    fn handles(&self, wanted: impl Fn(&Node) -> bool) -> Vec<usize> {
        lock(&self.nodes).iter().filter(|n| wanted(n)).map(|n| n.handle).collect()
    }

    /// The nodes in an order that respects every edge; a cycle is an error.
    fn in_order(&self) -> Result<Vec<Node>> {
        let mut open = lock(&self.nodes).clone();
        let mut done = HashSet::new();
        let mut order = Vec::with_capacity(open.len());
        while !open.is_empty() {
            let before = order.len();
            open.retain(|node| {
                let ready = node.after.iter().all(|a| done.contains(a));
                if ready {
                    done.insert(node.handle);
                    order.push(node.clone());
                }
                !ready
            });
            if order.len() == before {
                return Err(Error::INVALID_VALUE);
            }
        }
        Ok(order)
    }
}

/// Makes a graph known to the program; its handle.
pub fn publish(graph: &Arc<Graph>) -> usize {
    GRAPHS.insert(graph.handle, graph.clone());
    graph.handle
}

/// CUgraphNodeType.
fn kind_of(op: &Op, kind: NodeKind) -> u32 {
    match (kind, op) {
        (NodeKind::MemAlloc, _) => 10,
        (NodeKind::MemFree, _) => 11,
        (NodeKind::Host, _) | (_, Op::HostFunction(..) | Op::Callback(..)) => 3,
        (_, Op::Kernel(_) | Op::Collective(_)) => 0,
        (_, Op::Copy(_) | Op::Upload { .. }) => 1,
        (_, Op::Set(_)) => 2,
        (_, Op::Graph(_)) => 4,
        (_, Op::Record(..)) => 7,
        _ => 5,
    }
}

fn find(handle: usize) -> Result<Arc<Graph>> {
    GRAPHS.get(handle).ok_or(Error::INVALID_VALUE)
}

fn find_exec(handle: usize) -> Result<Arc<Exec>> {
    EXECS.get(handle).ok_or(Error::INVALID_VALUE)
}

fn graph_of(node: usize) -> Result<Arc<Graph>> {
    NODES.get(node).and_then(|weak| weak.upgrade()).ok_or(Error::INVALID_VALUE)
}

fn with_node<R>(handle: usize, f: impl FnOnce(&mut Node) -> R) -> Result<R> {
    let graph = graph_of(handle)?;
    let mut nodes = lock(&graph.nodes);
    nodes.iter_mut().find(|n| n.handle == handle).map(f).ok_or(Error::INVALID_VALUE)
}

fn kernel_op(params: In<KernelNode>) -> Result<Op> {
    let p = params.get()?;
    let function = if p.function != 0 { p.function } else { p.kernel };
    let from = Parameters { pointers: In(p.pointers), extra: In(p.extra) };
    Ok(Op::Kernel(Arc::new(launch::prepared(function, p.grid, p.block, p.shared_bytes, from)?)))
}

fn set_op(params: In<MemsetNode>) -> Result<Op> {
    let p = params.get()?;
    let set = Set2 {
        addr: p.dst,
        pitch: p.pitch,
        value: p.value,
        element: p.element as usize,
        width: p.width,
        height: p.height,
    };
    copy::checked_set(set).map(Op::Set)
}

fn host_op(params: In<HostNode>) -> Result<Op> {
    let p = params.get()?;
    Ok(Op::HostFunction(p.function.ok_or(Error::INVALID_VALUE)?, p.user))
}

fn child_op(child: usize) -> Result<Op> {
    let order = find(child)?.in_order()?;
    let nodes = order.into_iter().map(|n| (n.handle as u64, n.op)).collect();
    Ok(Op::Graph(Arc::new(GraphRun { id: 0, nodes })))
}

fn add_node(out: Out<usize>, graph: usize, deps: In<usize>, n: usize, op: Op, kind: NodeKind) -> Result {
    out.check()?;
    let graph = find(graph)?;
    let after = deps.list(n)?;
    let known = graph.handles(|_| true);
    if after.iter().any(|a| !known.contains(a)) {
        return Err(Error::INVALID_VALUE);
    }
    out.set(graph.add(op, kind, after))
}

fn destroy(handle: usize) -> Result {
    let graph = GRAPHS.remove(handle).ok_or(Error::INVALID_VALUE)?;
    for node in lock(&graph.nodes).iter() {
        NODES.remove(node.handle);
    }
    Ok(())
}

fn clone_graph(out: Out<usize>, graph: usize) -> Result {
    out.check()?;
    let original = find(graph)?;
    let nodes = lock(&original.nodes).clone();
    let copy = Graph::new(original.context);
    let mut renamed = std::collections::HashMap::new();
    for node in &nodes {
        let handle = handles::fresh();
        NODES.insert(handle, Arc::new(Arc::downgrade(&copy)));
        renamed.insert(node.handle, handle);
    }
    *lock(&copy.nodes) = nodes
        .into_iter()
        .map(|n| Node {
            handle: renamed[&n.handle],
            after: n.after.iter().filter_map(|a| renamed.get(a).copied()).collect(),
            ..n
        })
        .collect();
    out.set(publish(&copy))
}

fn edges(graph: usize, from: In<usize>, to: In<usize>, n: usize, add: bool) -> Result {
    let graph = find(graph)?;
    let pairs: Vec<_> = from.list(n)?.into_iter().zip(to.list(n)?).collect();
    let mut nodes = lock(&graph.nodes);
    let position =
        |nodes: &[Node], handle| nodes.iter().position(|n| n.handle == handle).ok_or(Error::INVALID_VALUE);
    for (from, to) in &pairs {
        position(&nodes, *from)?;
        let exists = nodes[position(&nodes, *to)?].after.contains(from);
        if from == to || exists == add {
            return Err(Error::INVALID_VALUE);
        }
    }
    for (from, to) in pairs {
        let at = position(&nodes, to)?;
        if add {
            nodes[at].after.push(from);
        } else {
            nodes[at].after.retain(|a| *a != from);
        }
    }
    Ok(())
}

fn destroy_node(handle: usize) -> Result {
    let graph = graph_of(handle)?;
    let mut nodes = lock(&graph.nodes);
    nodes.retain(|n| n.handle != handle);
    for node in nodes.iter_mut() {
        node.after.retain(|a| *a != handle);
    }
    NODES.remove(handle);
    Ok(())
}

fn dependents(handle: usize) -> Result<Vec<usize>> {
    Ok(graph_of(handle)?.handles(|n| n.after.contains(&handle)))
}

/// The list protocol of graph queries: how many there are, or as many as fit and null for the rest.
fn list(found: Vec<usize>, out: Out<usize>, n: Out<usize>) -> Result {
    n.check()?;
    if out.is_null() {
        return n.set(found.len());
    }
    let room = n.get()?;
    for at in 0..room {
        out.set_at(at, found.get(at).copied().unwrap_or(0));
    }
    n.set(found.len().min(room))
}

fn get_edges(graph: usize, from: Out<usize>, to: Out<usize>, n: Out<usize>) -> Result {
    let graph = find(graph)?;
    let pairs: Vec<(usize, usize)> = lock(&graph.nodes)
        .iter()
        .flat_map(|n| n.after.iter().map(|a| (*a, n.handle)).collect::<Vec<_>>())
        .collect();
    if from.is_null() != to.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    if !from.is_null() {
        for (at, pair) in pairs.iter().take(n.get()?).enumerate() {
            from.set_at(at, pair.0);
            to.set_at(at, pair.1);
        }
        let room = n.get()?;
        return n.set(pairs.len().min(room));
    }
    n.set(pairs.len())
}

fn instantiate(out: Out<usize>, graph: usize, flags: u64) -> Result {
    out.check()?;
    if flags & !0xf != 0 {
        return Err(Error::INVALID_VALUE);
    }
    if flags & 4 != 0 {
        return Err(Error::NOT_SUPPORTED); // launch from the device
    }
    let graph = find(graph)?;
    let nodes = graph.in_order()?.into_iter().map(|n| (n, true)).collect();
    static NEXT_ID: AtomicU32 = AtomicU32::new(1);
    let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
    let handle = handles::fresh();
    EXECS.insert(handle, Arc::new(Exec { id, context: graph.context, flags, nodes: Mutex::new(nodes) }));
    out.set(handle)
}

fn instantiate_with(out: Out<usize>, graph: usize, params: Out<InstantiateParams>, default: Role) -> Result {
    let mut p = params.get()?;
    let result = instantiate(out, graph, p.flags);
    p.result = u32::from(result.is_err());
    p.error_node = 0;
    params.set(p)?;
    result?;
    if p.flags & 2 != 0 {
        upload(out.get()?, stream(p.upload_stream, default)?)?;
    }
    Ok(())
}

fn update(exec: usize, graph: usize, info: Out<UpdateInfo>) -> Result {
    let (exec, graph) = (find_exec(exec)?, find(graph)?);
    let order = graph.in_order()?;
    let mut nodes = lock(&exec.nodes);
    let verdict = |result: u32, error_node: usize| {
        info.set_if_wanted(UpdateInfo { result, error_node, error_from_node: 0 });
        if result == 0 { Ok(()) } else { Err(Error::GRAPH_EXEC_UPDATE_FAILURE) }
    };
    if order.len() != nodes.len() {
        return verdict(2, 0); // topology changed
    }
    // Same position, same kind, and edges to the same positions.
    let positions = |after: &[usize], all: &dyn Fn(usize) -> Option<usize>| {
        let mut found: Vec<_> = after.iter().map(|a| all(*a)).collect();
        found.sort_unstable();
        found
    };
    for (at, new) in order.iter().enumerate() {
        let old = &nodes[at].0;
        if old.kind != new.kind {
            return verdict(3, new.handle);
        }
        let in_old = |h: usize| nodes.iter().position(|(n, _)| n.handle == h);
        let in_new = |h: usize| order.iter().position(|n| n.handle == h);
        if positions(&old.after, &in_old) != positions(&new.after, &in_new) {
            return verdict(2, new.handle);
        }
    }
    for ((old, _), new) in nodes.iter_mut().zip(order) {
        old.op = new.op;
    }
    verdict(0, 0)
}

fn set_exec_node(exec: usize, node: usize, kind: u32, op: Op) -> Result {
    let exec = find_exec(exec)?;
    let mut nodes = lock(&exec.nodes);
    let (found, _) = nodes.iter_mut().find(|(n, _)| n.handle == node).ok_or(Error::INVALID_VALUE)?;
    if found.kind != kind {
        return Err(Error::INVALID_VALUE);
    }
    found.op = op;
    Ok(())
}

fn set_node(node: usize, kind: u32, op: Op) -> Result {
    with_node(node, |n| {
        if n.kind != kind {
            return Err(Error::INVALID_VALUE);
        }
        n.op = op;
        Ok(())
    })?
}

fn set_enabled(exec: usize, node: usize, enabled: bool) -> Result {
    let exec = find_exec(exec)?;
    let mut nodes = lock(&exec.nodes);
    let (found, state) = nodes.iter_mut().find(|(n, _)| n.handle == node).ok_or(Error::INVALID_VALUE)?;
    if found.kind > 2 {
        return Err(Error::INVALID_VALUE); // only kernels, copies and memsets can be switched off
    }
    *state = enabled;
    Ok(())
}

fn get_enabled(exec: usize, node: usize, enabled: Out<u32>) -> Result {
    let exec = find_exec(exec)?;
    let nodes = lock(&exec.nodes);
    let (_, state) = nodes.iter().find(|(n, _)| n.handle == node).ok_or(Error::INVALID_VALUE)?;
    enabled.set((*state).into())
}

fn run(exec: usize, stream: Arc<Stream>) -> Result {
    let exec = find_exec(exec)?;
    if exec.context != stream.context.uid {
        return Err(Error::INVALID_VALUE);
    }
    let enabled = |nodes: &[(Node, bool)]| -> Vec<(u64, Op)> {
        nodes.iter().filter(|(_, on)| *on).map(|(n, _)| (n.handle as u64, fresh_stamp(&n.op))).collect()
    };
    let ops = enabled(&lock(&exec.nodes));
    let records: Vec<_> = ops
        .iter()
        .filter_map(|(_, op)| match op {
            Op::Record(event, stamp) => Some((event.clone(), stamp.clone())),
            _ => None,
        })
        .collect();
    let ticket = capture::submit(&stream, Op::Graph(Arc::new(GraphRun { id: exec.id, nodes: ops })))?;
    if let Some(ticket) = &ticket {
        for (event, stamp) in records {
            event.recorded_by_graph(ticket, &stamp);
        }
    }
    blocking::rule(Call::GraphLaunch).wait(&stream.context, Some(&stream), ticket.as_ref());
    Ok(())
}

/// Each launch records its events anew.
fn fresh_stamp(op: &Op) -> Op {
    match op {
        Op::Record(event, _) => Op::Record(event.clone(), Arc::new(Stamp::default())),
        other => other.clone(),
    }
}

fn upload(exec: usize, stream: Arc<Stream>) -> Result {
    find_exec(exec)?;
    if capture::is_capturing(&stream) {
        capture::invalidate(&stream);
        return Err(Error::STREAM_CAPTURE_UNSUPPORTED);
    }
    capture::submit(&stream, Op::Nothing).map(drop)
}
