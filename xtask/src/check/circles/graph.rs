//! The shortest circle of each knot of a graph.

use std::collections::{BTreeSet, VecDeque};

/// For each strongly connected part with more than one node: its shortest circle, the first node again at the end.
pub(super) fn circles(needs: &[BTreeSet<usize>]) -> Vec<Vec<usize>> {
    let mut left: BTreeSet<usize> = (0..needs.len()).collect();
    let mut circles = Vec::new();
    while let Some(start) = left.pop_first() {
        let knot: BTreeSet<usize> =
            reached(needs, start).into_iter().filter(|&node| reached(needs, node).contains(&start)).collect();
        if knot.is_empty() {
            continue;
        }
        left.retain(|node| !knot.contains(node));
        circles.extend(knot.iter().filter_map(|&node| back(needs, node)).min_by_key(Vec::len));
    }
    circles
}

/// The nodes that can be reached, the first one among them only by a circle.
fn reached(needs: &[BTreeSet<usize>], from: usize) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(node) = open.pop() {
        open.extend(needs[node].iter().filter(|&&next| reached.insert(next)));
    }
    reached
}

/// The shortest way from a node back to itself.
fn back(needs: &[BTreeSet<usize>], start: usize) -> Option<Vec<usize>> {
    let mut came_from = vec![None; needs.len()];
    let mut open = VecDeque::from([start]);
    while let Some(node) = open.pop_front() {
        for &next in &needs[node] {
            if next == start {
                let mut way = vec![start, node];
                let mut at = node;
                while let Some(before) = came_from[at] {
                    way.push(before);
                    at = before;
                }
                if node == start {
                    way.pop();
                }
                way.reverse();
                return Some(way);
            }
            if came_from[next].is_none() {
                came_from[next] = Some(node);
                open.push_back(next);
            }
        }
    }
    None
}
