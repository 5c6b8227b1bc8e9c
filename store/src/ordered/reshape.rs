//! Changes the shape of the tree: splits a leaf that is too full, joins or removes one that is too empty.
//!
//! One thread at a time does this, under a lock that is only tried: a thread that finds it taken leaves the leaf as
//! it is, and the next edit there tries again. The branch over the leaf is frozen slot by slot, so that no edit is
//! lost. Then another branch replaces it, and if that has too many children or none, its parent is replaced the same
//! way, up to the root. A branch with few children is joined with a neighbour in the same way, and a root over one
//! branch is replaced by it. Slots of branches over branches change only under the lock and are not frozen. Writers
//! that meet a frozen slot wait for the few instructions that this takes.

use std::ops::Range;

use crate::epoch::EpochPin;
use crate::limits::{
    ORDERED_BRANCH_BYTES_MAX, ORDERED_CHILDREN_FEW, ORDERED_CHILDREN_MAX, ORDERED_DEPTH_MAX,
    ORDERED_KEYS_FEW, ORDERED_KEYS_MAX, ORDERED_LEAF_BYTES_MAX,
};
use crate::ordered::OrderedKeys;
use crate::ordered::node::{Keys, Node, NodeGarbage, NodeSlot, hung, unhung};

/// The branches above a leaf, from the root down, each with the number of the child.
struct Path<'p> {
    branches: [(Option<&'p Node>, usize); ORDERED_DEPTH_MAX],
    depth: usize,
    pin: &'p EpochPin<'p>,
}

/// The contents of a branch: children that the tree owns, and a key between each two.
struct Children {
    keys: Keys,
    nodes: Vec<*mut Node>,
}

/// Returns whether a leaf should be split.
pub(super) fn is_too_full(keys: &Keys) -> bool {
    keys.len() > ORDERED_KEYS_MAX || (keys.len() > 1 && keys.key_bytes() > ORDERED_LEAF_BYTES_MAX)
}

/// Returns whether two leaves make one that is not soon split again.
fn fit(left: &Keys, right: &Keys) -> bool {
    left.len() + right.len() <= ORDERED_KEYS_MAX / 2
        && left.key_bytes() + right.key_bytes() <= ORDERED_LEAF_BYTES_MAX / 2
}

impl OrderedKeys {
    /// Reshapes the leaf of `key`, which has become too full or too empty. Returns the growth of the tree in bytes,
    /// as a wrapping difference.
    #[cold]
    pub(super) fn reshape(&self, pin: &EpochPin<'_>, key: &[u8], garbage: &mut NodeGarbage) -> u64 {
        let Some(_reshaping) = self.reshaping.try_lock() else { return 0 };
        let path = self.path_of(pin, key);
        let (branch, at) = path.parent();
        let leaf_of = |at: usize| branch.children[at].load(pin).0;
        let leaf = leaf_of(at);
        let is_empty = leaf.keys.len() == 0 && (branch.children.len() > 1 || path.depth > 1);
        let neighbours = [at.checked_sub(1), Some(at + 1).filter(|&right| right < branch.children.len())];
        let is_small = leaf.keys.len() < ORDERED_KEYS_FEW;
        let joined = neighbours.into_iter().flatten().find(|&other| fit(&leaf.keys, &leaf_of(other).keys));
        let joined = joined.filter(|_| is_small && !is_empty);
        if !is_too_full(&leaf.keys) && !is_empty && joined.is_none() {
            return 0;
        }
        let mut children = Children::of(branch, NodeSlot::freeze);
        // The slots no longer change. The leaves may have changed since they were examined above.
        let (first, last) = joined.map_or((at, at), |other| (at.min(other), at.max(other)));
        let old: Vec<&Node> = (first..=last).map(leaf_of).collect();
        let (separator, new) = leaves_for(&old, last + 1 == branch.children.len());
        let mut bytes = new.iter().map(|node| node.bytes()).sum::<u64>();
        bytes = old.iter().fold(bytes, |bytes, node| bytes.wrapping_sub(node.bytes()));
        let old = children.splice(first..last + 1, separator, new);
        bytes = bytes.wrapping_add(self.hang(&path, path.depth - 1, children, garbage));
        old.into_iter().for_each(|node| garbage.add(unhung(node)));
        bytes
    }

    fn path_of<'p>(&self, pin: &'p EpochPin<'p>, key: &[u8]) -> Path<'p> {
        let mut path = Path { branches: [(None, 0); ORDERED_DEPTH_MAX], depth: 0, pin };
        let mut node = self.root.load(pin).0;
        while !node.is_leaf() {
            let child = node.child_of(key);
            path.branches[path.depth] = (Some(node), child);
            path.depth += 1;
            node = node.children[child].load(pin).0;
        }
        path
    }

    /// Replaces the branch at `level` of the path by branches over `children`. Called by the holder of the lock.
    fn hang(&self, path: &Path<'_>, level: usize, children: Children, garbage: &mut NodeGarbage) -> u64 {
        if let Some(sibling) = path.sibling_to_join(level, &children) {
            return self.hang_joined(path, level, (children, sibling), garbage);
        }
        let (separator, mut nodes) = children.into_branches(path.depth < ORDERED_DEPTH_MAX);
        let mut bytes = nodes.iter().map(|node| node.bytes()).sum::<u64>();
        bytes = bytes.wrapping_sub(path.branch(level).bytes());
        let slot = match level.checked_sub(1) {
            Some(parent) if nodes.len() == 1 => &path.branch(parent).children[path.branches[parent].1],
            Some(parent) => {
                let at = path.branches[parent].1;
                let mut children = Children::of(path.branch(parent), NodeSlot::pointer);
                let old = children.splice(at..at + 1, separator, nodes);
                bytes = bytes.wrapping_add(self.hang(path, parent, children, garbage));
                old.into_iter().for_each(|node| garbage.add(unhung(node)));
                return bytes;
            }
            None => {
                if nodes.is_empty() {
                    let (root, root_bytes) = empty_root();
                    nodes.push(root);
                    bytes = bytes.wrapping_add(root_bytes);
                } else if nodes.len() > 1 {
                    let nodes_below = nodes.drain(..).map(hung).collect();
                    let root = Children { keys: separator, nodes: nodes_below }.into_branch();
                    bytes = bytes.wrapping_add(root.bytes());
                    nodes.push(root);
                } else {
                    bytes = bytes.wrapping_add(path.lower(&mut nodes[0], garbage));
                }
                &self.root
            }
        };
        let new = nodes.pop().expect("one node hangs in one slot");
        debug_assert!(nodes.is_empty(), "no node is lost");
        let replaced = slot.replace(path.branch(level), Box::new(new)).ok();
        garbage.add(replaced.expect("slots of branches change under the lock alone"));
        bytes
    }

    /// As [`OrderedKeys::hang`], for a branch small enough to be joined with a neighbour.
    fn hang_joined(
        &self,
        path: &Path<'_>,
        level: usize,
        (children, sibling): (Children, usize),
        garbage: &mut NodeGarbage,
    ) -> u64 {
        let (parent, at) = (path.branch(level - 1), path.branches[level - 1].1);
        let beside = parent.children[sibling].load(path.pin).0;
        let beside_children = Children::of_left(beside, path.pin);
        let (first, last) = (at.min(sibling), at.max(sibling));
        let (left, right) =
            if sibling < at { (beside_children, children) } else { (children, beside_children) };
        let joined = left.join((&parent.keys, first), right).into_branch();
        let bytes = joined.bytes().wrapping_sub(path.branch(level).bytes()).wrapping_sub(beside.bytes());
        let mut above = Children::of(parent, NodeSlot::pointer);
        let old = above.splice(first..last + 1, Keys::default(), vec![joined]);
        let bytes = bytes.wrapping_add(self.hang(path, level - 1, above, garbage));
        old.into_iter().for_each(|node| garbage.add(unhung(node)));
        bytes
    }

    /// Takes the first branch over leaves out of a tree without editors. Returns the growth of the tree in bytes, as
    /// a wrapping difference; `None` if the tree is empty.
    pub(super) fn prune(&self, pin: &EpochPin<'_>, garbage: &mut NodeGarbage) -> Option<u64> {
        let _reshaping = self.reshaping.try_lock()?;
        let path = self.path_of(pin, &[]);
        let (branch, _) = path.parent();
        if path.depth == 1 && branch.children.len() == 1 && branch.children[0].load(pin).0.keys.len() == 0 {
            return None;
        }
        let leaves = branch.children.iter().map(|slot| slot.load(pin).0.bytes()).sum::<u64>();
        let nodes: Vec<_> = branch.children.iter().map(NodeSlot::pointer).collect();
        let nothing = Children { keys: Keys::default(), nodes: Vec::new() };
        let bytes = self.hang(&path, path.depth - 1, nothing, garbage);
        nodes.into_iter().for_each(|node| garbage.add(unhung(node)));
        Some(bytes.wrapping_sub(leaves))
    }
}

/// Creates a root over one empty leaf; returns it with the bytes of both.
pub(super) fn empty_root() -> (Node, u64) {
    let leaf = Node::leaf(Keys::default());
    let leaf_bytes = leaf.bytes();
    let root = Node::branch(Keys::default(), &[hung(leaf)]);
    let bytes = root.bytes() + leaf_bytes;
    (root, bytes)
}

/// Returns zero to two leaves with the keys of neighbouring leaves, and the key between two. Splits in the middle,
/// but leaves the left leaf nearly full at the end of a branch, where keys that grow with time are added.
fn leaves_for(old: &[&Node], at_end: bool) -> (Keys, Vec<Node>) {
    let pieces: Vec<_> = old.iter().map(|node| (&node.keys, 0..node.keys.len())).collect();
    let keys = Keys::collect(&pieces);
    if keys.len() == 0 {
        return (Keys::default(), Vec::new());
    }
    if !is_too_full(&keys) {
        return (Keys::default(), vec![Node::leaf(keys)]);
    }
    let middle = if at_end { keys.len() - keys.len() / 8 } else { keys.len() / 2 };
    let middle = middle.clamp(1, keys.len() - 1);
    let (left, right) = (keys.get(middle - 1), keys.get(middle));
    // The shortest key above the left keys and not above the right ones.
    let common = left.iter().zip(right).take_while(|(left, right)| left == right).count();
    let separator = Keys::one(&right[..common + 1]);
    debug_assert!(
        left < separator.get(0) && separator.get(0) <= right,
        "the key between two leaves divides them"
    );
    let leaf = |range: Range<usize>| Node::leaf(Keys::collect(&[(&keys, range)]));
    (separator, vec![leaf(0..middle), leaf(middle..keys.len())])
}

impl<'p> Path<'p> {
    fn branch(&self, level: usize) -> &'p Node {
        self.branches[level].0.expect("the path has come by")
    }

    /// Returns the branch over the leaf, and the number of the leaf in it.
    fn parent(&self) -> (&'p Node, usize) {
        (self.branch(self.depth - 1), self.branches[self.depth - 1].1)
    }

    /// Returns the neighbour to join with the branch at `level`, if `children` are few and the joined branch is not
    /// soon split again.
    fn sibling_to_join(&self, level: usize, children: &Children) -> Option<usize> {
        let few = 1..=ORDERED_CHILDREN_FEW;
        let (parent, at) = (self.branch(level.checked_sub(1)?), self.branches[level - 1].1);
        let fits = |sibling: &usize| {
            let beside = parent.children[*sibling].load(self.pin).0;
            let key_bytes = beside.keys.key_bytes() + children.keys.key_bytes() + parent.keys.key_bytes();
            beside.children.len() + children.nodes.len() <= ORDERED_CHILDREN_MAX / 2
                && key_bytes <= ORDERED_BRANCH_BYTES_MAX / 2
        };
        let siblings = [at.checked_sub(1), Some(at + 1).filter(|&right| right < parent.children.len())];
        siblings.into_iter().flatten().filter(|_| few.contains(&children.nodes.len())).find(fits)
    }

    /// Replaces a future root by its only child, as long as that child is a branch. Returns the growth of the tree in
    /// bytes, as a wrapping difference.
    fn lower(&self, root: &mut Node, garbage: &mut NodeGarbage) -> u64 {
        let mut bytes = 0_u64;
        while let [slot] = &*root.children {
            let child = slot.load(self.pin).0;
            if child.is_leaf() {
                break;
            }
            let lower = Children::of_left(child, self.pin).into_branch();
            bytes = bytes.wrapping_add(lower.bytes()).wrapping_sub(root.bytes()).wrapping_sub(child.bytes());
            let left = slot.pointer();
            *root = lower;
            garbage.add(unhung(left));
        }
        bytes
    }
}

impl Children {
    fn of(branch: &Node, node_of: impl Fn(&NodeSlot) -> *mut Node) -> Children {
        let keys = Keys::collect(&[(&branch.keys, 0..branch.keys.len())]);
        Children { keys, nodes: branch.children.iter().map(node_of).collect() }
    }

    /// Returns the contents of a branch that is about to be replaced; its slots are frozen if its children are leaves.
    fn of_left(branch: &Node, pin: &EpochPin<'_>) -> Children {
        let is_over_leaves = branch.children[0].load(pin).0.is_leaf();
        Children::of(branch, if is_over_leaves { NodeSlot::freeze } else { NodeSlot::pointer })
    }

    /// Joins these contents with those of the branch to the right; `parent` has the key between them at `at`.
    fn join(mut self, (parent, at): (&Keys, usize), right: Children) -> Children {
        let (left_keys, right_keys) = (self.keys.len(), right.keys.len());
        let keys =
            Keys::collect(&[(&self.keys, 0..left_keys), (parent, at..at + 1), (&right.keys, 0..right_keys)]);
        self.nodes.extend(right.nodes);
        Children { keys, nodes: self.nodes }
    }

    /// Replaces some children by `new` ones and returns them. If `new` is empty, a key beside them is removed too.
    fn splice(&mut self, range: Range<usize>, between: Keys, new: Vec<Node>) -> Vec<*mut Node> {
        debug_assert!(range.start < range.end && range.end <= self.nodes.len(), "some children are replaced");
        let mut gone = range.start..range.end - 1;
        if new.is_empty() {
            if gone.end < self.keys.len() {
                gone.end += 1;
            } else if gone.start > 0 {
                gone.start -= 1;
            }
        }
        let (all, new_keys) = (self.keys.len(), between.len());
        self.keys = Keys::collect(&[
            (&self.keys, 0..gone.start),
            (&between, 0..new_keys),
            (&self.keys, gone.end..all),
        ]);
        let old: Vec<*mut Node> = self.nodes.splice(range, new.into_iter().map(hung)).collect();
        debug_assert!(
            self.nodes.is_empty() || self.keys.len() + 1 == self.nodes.len(),
            "a key between two children"
        );
        old
    }

    fn into_branch(self) -> Node {
        Node::branch(self.keys, &self.nodes)
    }

    /// Returns zero or one branch, or two if there are too many children for one, and the key between two.
    fn into_branches(mut self, may_split: bool) -> (Keys, Vec<Node>) {
        let count = self.nodes.len();
        if count == 0 {
            return (Keys::default(), Vec::new());
        }
        let is_too_large = self.keys.key_bytes() > ORDERED_BRANCH_BYTES_MAX;
        if !may_split || !(count > ORDERED_CHILDREN_MAX || count > 3 && is_too_large) {
            return (Keys::default(), vec![self.into_branch()]);
        }
        let middle = count / 2;
        let part = |range: Range<usize>| Keys::collect(&[(&self.keys, range)]);
        let (left, between, right) = (part(0..middle - 1), part(middle - 1..middle), part(middle..count - 1));
        let nodes = self.nodes.split_off(middle);
        let right = Children { keys: right, nodes };
        let left = Children { keys: left, nodes: self.nodes };
        (between, vec![left.into_branch(), right.into_branch()])
    }
}
