//! How leaves lie in the file, told by their parents, which list them in the order of their keys.

use crate::node::NodeRef;
use crate::space::EXTENT_PAGES;
use gannet_base::PageId;

/// Steps from leaves to the next ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Steps {
    pub(super) steps: u64,
    /// To an extent that is neither the same nor the one behind.
    pub(super) scattered: u64,
    /// Back in the file.
    pub(super) backward: u64,
}

impl Steps {
    pub(super) fn step(&mut self, from: PageId, to: PageId) {
        let (here, there) = (from.0 / EXTENT_PAGES, to.0 / EXTENT_PAGES);
        self.steps += 1;
        self.scattered += u64::from(there != here && there != here + 1);
        self.backward += u64::from(to < from);
    }

    /// Steps between the children of a parent of leaves.
    pub(super) fn of_parent(node: NodeRef<'_>) -> Self {
        let mut steps = Steps::default();
        for slot in 1..node.count() {
            steps.step(node.child(slot - 1), node.child(slot));
        }
        steps
    }

    pub(super) fn add(&mut self, other: &Steps) {
        self.steps += other.steps;
        self.scattered += other.scattered;
        self.backward += other.backward;
    }
}
