//! Which order serves which purpose.

use super::Planner;
use super::path::{OrderKey, Wanted};
use crate::logical::ColumnId;

impl Planner<'_> {
    /// How many keys of a wanted order an order provides, at best.
    pub(super) fn usefulness(&self, order: &[OrderKey], wanted: &Wanted) -> usize {
        let sorts = wanted.sorts.iter().map(|keys| self.ordered_by(order, keys)).max().unwrap_or(0);
        let groups = wanted.groups.iter().filter(|columns| self.grouped_by(order, columns)).count();
        sorts.max(groups.min(1))
    }

    /// How many of the wanted keys an order provides. Constant columns count as any order.
    pub(super) fn ordered_by(&self, order: &[OrderKey], wanted: &[OrderKey]) -> usize {
        let mut provided = order.iter();
        for (count, key) in wanted.iter().enumerate() {
            if self.is_constant(key.column)
                || wanted[..count].iter().any(|other| self.equal(other.column, key.column))
            {
                continue;
            }
            let Some(next) = provided.by_ref().find(|next| !self.is_constant(next.column)) else {
                return count;
            };
            let nulls = next.nulls_first.is_none()
                || key.nulls_first.is_none()
                || next.nulls_first == key.nulls_first;
            if !self.equal(next.column, key.column) || next.descending != key.descending || !nulls {
                return count;
            }
        }
        wanted.len()
    }

    /// Whether rows of equal values in these columns stand together in an order.
    pub(super) fn grouped_by(&self, order: &[OrderKey], columns: &[ColumnId]) -> bool {
        let mut left: Vec<ColumnId> = columns.iter().copied().filter(|id| !self.is_constant(*id)).collect();
        for key in order.iter().filter(|key| !self.is_constant(key.column)) {
            if left.is_empty() {
                break;
            }
            let before = left.len();
            left.retain(|id| !self.equal(*id, key.column));
            if left.len() == before {
                return false;
            }
        }
        left.is_empty()
    }
}

/// The order of a walk from the end.
pub(super) fn reversed(order: &[OrderKey]) -> Vec<OrderKey> {
    order
        .iter()
        .map(|key| OrderKey {
            descending: !key.descending,
            nulls_first: key.nulls_first.map(|first| !first),
            ..*key
        })
        .collect()
}
