//! Cycles in what is known of the order of points, and what each one is called.
//!
//! For each kind of anomaly, strongest first, the graph of only those edges that make it is split into strongly connected
//! components (Tarjan), and the shortest cycle of each is reported; what is part of a stronger anomaly already is not reported as a
//! weaker one. The last rounds take real time in, too.

use super::anomaly::{Anomaly, Name};
use super::graph::{Edge, Graph, What, Why};
use super::history::Key;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::Write as _;

/// How many places of one component a shortest cycle is searched from.
const STARTS: usize = 500;

/// What edges a search may use.
#[derive(Clone, Copy, Debug)]
struct Search {
    wr: bool,
    held: bool,
    rw: Rw,
    time: bool,
}

/// How many anti-dependencies a cycle has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rw {
    None,
    One,
    Any,
}

const SEARCHES: [Search; 5] = [
    Search { wr: false, held: false, rw: Rw::None, time: false },
    Search { wr: true, held: false, rw: Rw::None, time: false },
    Search { wr: true, held: false, rw: Rw::One, time: false },
    Search { wr: true, held: false, rw: Rw::Any, time: false },
    Search { wr: true, held: true, rw: Rw::Any, time: false },
];

impl Search {
    fn takes(self, why: Why) -> bool {
        match why {
            Why::Same | Why::Ww(_) => true,
            Why::Wr(_) => self.wr,
            Why::Held(_) => self.held,
            Why::Rw(_) => self.rw != Rw::None,
            Why::Time => self.time,
        }
    }
}

/// A step of a cycle: from a point, along an edge.
type Step = (usize, Edge);

/// All anomalies that are cycles.
pub(super) fn find(graph: &Graph) -> Vec<Anomaly> {
    let mut anomalies = Vec::new();
    let mut reported: HashSet<usize> = HashSet::new();
    for time in [false, true] {
        for search in SEARCHES.map(|search| Search { time, ..search }) {
            for component in components(graph, search) {
                if component.iter().any(|point| reported.contains(point)) {
                    continue;
                }
                if let Some(cycle) = shortest(graph, search, &component) {
                    reported.extend(component);
                    anomalies.push(named(graph, &cycle));
                }
            }
        }
    }
    anomalies
}

/// The strongly connected components of more than one point, by Tarjan's algorithm without recursion.
fn components(graph: &Graph, search: Search) -> Vec<Vec<usize>> {
    const NEW: usize = usize::MAX;
    let count = graph.points.len();
    let (mut number, mut low) = (vec![NEW; count], vec![0; count]);
    let (mut stack, mut on_stack, mut next) = (Vec::new(), vec![false; count], 0);
    let mut found = Vec::new();
    for root in 0..count {
        if number[root] != NEW {
            continue;
        }
        // Points under way, each with the edge to be looked at next.
        let mut way = vec![(root, 0)];
        while let Some((point, edge)) = way.last_mut() {
            let point = *point;
            if *edge == 0 {
                (number[point], low[point]) = (next, next);
                next += 1;
                stack.push(point);
                on_stack[point] = true;
            }
            if let Some(Edge { to, why }) = graph.edges[point].get(*edge).copied() {
                *edge += 1;
                if search.takes(why) {
                    if number[to] == NEW {
                        way.push((to, 0));
                    } else if on_stack[to] {
                        low[point] = low[point].min(number[to]);
                    }
                }
                // The first edge was looked at: the point is not new when it is come back to.
                continue;
            }
            way.pop();
            if let Some((parent, _)) = way.last() {
                low[*parent] = low[*parent].min(low[point]);
            }
            if low[point] == number[point] {
                let from = stack.iter().rposition(|other| *other == point).unwrap_or(0);
                let component = stack.split_off(from);
                component.iter().for_each(|point| on_stack[*point] = false);
                if component.len() > 1 {
                    found.push(component);
                }
            }
        }
    }
    found
}

/// The shortest cycle of a component that has as many anti-dependencies as the search wants.
fn shortest(graph: &Graph, search: Search, component: &[usize]) -> Option<Vec<Step>> {
    let inside: HashSet<usize> = component.iter().copied().collect();
    let mut starts: Vec<Step> = Vec::new();
    for &from in component {
        let wanted = |edge: &&Edge| {
            let counts = match search.rw {
                // Without a lock these have been found before.
                _ if search.held => matches!(edge.why, Why::Held(_)),
                Rw::None => !matches!(edge.why, Why::Same | Why::Time),
                Rw::One | Rw::Any => matches!(edge.why, Why::Rw(_)),
            };
            counts && search.takes(edge.why) && inside.contains(&edge.to)
        };
        starts.extend(graph.edges[from].iter().filter(wanted).map(|edge| (from, *edge)));
    }
    let back = if search.rw == Rw::One { Search { rw: Rw::None, ..search } } else { search };
    let mut best: Option<(usize, Vec<Step>)> = None;
    for start in starts.into_iter().take(STARTS) {
        let limit = best.as_ref().map_or(usize::MAX, |(length, _)| *length);
        // Two dependencies are as few as there can be.
        if limit <= 1 {
            break;
        }
        if let Some((length, mut path)) = path(graph, back, &inside, start.1.to, start.0, limit) {
            path.insert(0, start);
            best = Some((length, path));
        }
    }
    best.map(|(_, cycle)| cycle)
}

/// A shortest way between two points of a component, of fewer than `limit` dependencies; passing of time costs nothing.
fn path(
    graph: &Graph,
    search: Search,
    inside: &HashSet<usize>,
    from: usize,
    to: usize,
    limit: usize,
) -> Option<(usize, Vec<Step>)> {
    let mut came: HashMap<usize, (usize, Option<Step>)> = [(from, (0, None))].into();
    let mut queue = VecDeque::from([(from, 0)]);
    while let Some((point, length)) = queue.pop_front() {
        if came[&point].0 < length {
            continue;
        }
        if point == to {
            let (mut path, mut at) = (Vec::new(), point);
            while let Some(step) = came[&at].1 {
                path.push(step);
                at = step.0;
            }
            path.reverse();
            return Some((length, path));
        }
        for edge in
            graph.edges[point].iter().filter(|edge| search.takes(edge.why) && inside.contains(&edge.to))
        {
            let free = matches!(edge.why, Why::Same | Why::Time);
            let length = length + usize::from(!free);
            if length < limit && came.get(&edge.to).is_none_or(|(known, _)| length < *known) {
                came.insert(edge.to, (length, Some((point, *edge))));
                if free {
                    queue.push_front((edge.to, length));
                } else {
                    queue.push_back((edge.to, length));
                }
            }
        }
    }
    None
}

/// The key that all of a cycle's dependencies are about.
fn only_key(cycle: &[Step]) -> Option<Key> {
    let mut keys = cycle.iter().filter_map(|(_, edge)| match edge.why {
        Why::Ww(key) | Why::Wr(key) | Why::Rw(key) | Why::Held(key) => Some(key),
        Why::Same | Why::Time => None,
    });
    let first = keys.next()?;
    keys.all(|key| key == first).then_some(first)
}

fn named(graph: &Graph, cycle: &[Step]) -> Anomaly {
    let count = |wanted: fn(Why) -> bool| cycle.iter().filter(|(_, edge)| wanted(edge.why)).count();
    let (wr, held) = (count(|why| matches!(why, Why::Wr(_))), count(|why| matches!(why, Why::Held(_))));
    let (ww, rw) = (count(|why| matches!(why, Why::Ww(_))), count(|why| matches!(why, Why::Rw(_))));
    let realtime = cycle.iter().any(|(_, edge)| edge.why == Why::Time);
    let key = only_key(cycle);
    let serializable = cycle.iter().any(|(point, _)| graph.points[*point].what == What::All);
    let name = match rw {
        _ if held > 0 => Name::LockBroken,
        0 if wr > 0 => Name::CircularFlow,
        0 => Name::DirtyWrite,
        1 if ww > 0 && wr == 0 && key.is_some() && !realtime => Name::LostUpdate,
        1 => Name::ReadSkew,
        _ if serializable => Name::AntiDependency,
        _ => Name::NonAdjacent,
    };
    let mut transactions: Vec<usize> = Vec::new();
    for (point, _) in cycle {
        let transaction = graph.points[*point].transaction;
        if transaction != usize::MAX && !transactions.contains(&transaction) {
            transactions.push(transaction);
        }
    }
    Anomaly { name, realtime, transactions, key, why: told(graph, cycle) }
}

/// The cycle in words.
fn told(graph: &Graph, cycle: &[Step]) -> String {
    let mut text = String::new();
    let place = |point: usize| {
        let point = graph.points[point];
        let what = match point.what {
            What::Snapshot => "snapshot".to_owned(),
            What::Statement(number) => format!("statement {}", number + 1),
            What::Lock(number) => format!("row locked by statement {}", number + 1),
            What::Commit => "commit".to_owned(),
            What::All | What::Moment => return format!("T{}", point.transaction),
        };
        format!("T{}'s {what}", point.transaction)
    };
    for &(from, edge) in cycle {
        let _ = match edge.why {
            Why::Time if graph.points[from].what == What::Moment => Ok(()),
            Why::Same => write!(text, "{}, then ", place(from)),
            Why::Ww(key) => write!(text, "{} -(ww {key})-> ", place(from)),
            Why::Wr(key) => write!(text, "{} -(wr {key})-> ", place(from)),
            Why::Rw(key) => write!(text, "{} -(rw {key})-> ", place(from)),
            Why::Held(key) => write!(text, "{} -(lock of {key})-> ", place(from)),
            Why::Time => write!(text, "{} -(was over before)-> ", place(from)),
        };
    }
    let first = cycle.first().map_or(usize::MAX, |(point, _)| *point);
    text + &place(first)
}
