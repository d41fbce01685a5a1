//! Merging a node with its right sibling.

use super::layout::{SLOTS, fence_prefix};
use super::read::NodeRef;
use super::write::{Builder, NodeMut};

/// Length of the prefix of the merged node.
fn merged_prefix(left: NodeRef<'_>, right: NodeRef<'_>) -> usize {
    fence_prefix(left.lower_fence(), right.upper_fence())
}

impl NodeRef<'_> {
    /// Bytes that this node would take with its right sibling merged into it; compare with the page size.
    pub fn merged_size(self, right: NodeRef<'_>) -> usize {
        let prefix_len = merged_prefix(self, right);
        let inner = usize::from(self.is_inner());
        let lengthened = |node: NodeRef<'_>| {
            let entries = node.count().saturating_sub(inner);
            node.entries_bytes() + entries * (node.prefix().len() - prefix_len)
        };
        // The right sibling's first key is stored nowhere but in its fence.
        let first =
            if self.is_inner() && right.count() > 0 { right.lower_fence().len() - prefix_len } else { 0 };
        let fences = self.lower_fence().len() + right.upper_fence().map_or(0, <[u8]>::len);
        SLOTS + fences + lengthened(self) + lengthened(right) + first
    }

    /// Whether `right` is this node's right sibling and fits into it.
    pub fn can_merge(self, right: NodeRef<'_>) -> bool {
        self.check_merge(right).is_ok()
    }

    fn check_merge(self, right: NodeRef<'_>) -> Result<(), String> {
        if self.level() != right.level()
            || self.tree() != right.tree()
            || self.page().len() != right.page().len()
        {
            return Err("nodes of different levels or trees".into());
        }
        if self.upper_fence() != Some(right.lower_fence()) {
            return Err("the nodes are not neighbours".into());
        }
        if self.is_inner() && self.count() == 0 {
            return Err("an inner node without its first entry".into());
        }
        if self.merged_size(right) > self.page().len() {
            return Err("the merged node would overflow".into());
        }
        Ok(())
    }
}

impl NodeMut<'_> {
    /// Takes over the entries and the upper fence of the right sibling.
    pub fn merge_from_right(&mut self, right: NodeRef<'_>) -> Result<(), String> {
        self.view().check_merge(right)?;
        let old = self.view().page().to_vec();
        let left = NodeRef::new(&old);
        let prefix_len = merged_prefix(left, right);
        let mut builder =
            Builder::begin(self.page_mut(), left.level(), left.lower_fence(), right.upper_fence());
        for node in [left, right] {
            let prefix_rest = &node.prefix()[prefix_len..];
            for entry in node.entries(0..node.count()) {
                let first_of_inner = builder.is_empty() && left.is_inner();
                let suffix = if first_of_inner { [&[][..], &[]] } else { [prefix_rest, entry.suffix] };
                builder.push(suffix, entry.payload);
            }
        }
        builder.finish().assert_sound();
        Ok(())
    }
}
