//! Bytes of a file: sparse, in shared chunks, so that the many images a crash test makes cost little.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Unit of allocation in bytes, as of common file systems.
pub(super) const BLOCK: u64 = 4096;

/// A file's size, bytes and allocated blocks. Bytes never written read as zero.
#[derive(Clone, Default)]
pub(super) struct Content {
    len: u64,
    chunks: BTreeMap<u64, Arc<[u8; BLOCK as usize]>>,
    blocks: Blocks,
}

impl Content {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Copies bytes out; what lies behind the end reads as zero too, the caller knows the size.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) {
        for (index, start, range) in pieces(offset, buffer.len()) {
            let piece = &mut buffer[range];
            match self.chunks.get(&index) {
                Some(chunk) => piece.copy_from_slice(&chunk[start..start + piece.len()]),
                None => piece.fill(0),
            }
        }
    }

    /// Stores bytes and gives them blocks. Leaves the size alone: it is metadata with a fate of its own.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (index, start, range) in pieces(offset, bytes.len()) {
            let chunk = self.chunks.entry(index).or_insert_with(|| Arc::new([0; BLOCK as usize]));
            let piece = &bytes[range];
            Arc::make_mut(chunk)[start..start + piece.len()].copy_from_slice(piece);
        }
        self.blocks.insert(block_range(offset, bytes.len() as u64));
    }

    pub(super) fn grow(&mut self, len: u64) {
        self.len = self.len.max(len);
    }

    /// Sets the size and drops every byte and block behind it.
    pub(super) fn set_len(&mut self, len: u64) {
        self.len = len;
        let whole = len.div_ceil(BLOCK);
        self.chunks.split_off(&whole);
        self.blocks.truncate(whole);
        if !len.is_multiple_of(BLOCK)
            && let Some(chunk) = self.chunks.get_mut(&(len / BLOCK))
        {
            Arc::make_mut(chunk)[(len % BLOCK) as usize..].fill(0);
        }
    }

    pub(super) fn allocate(&mut self, offset: u64, len: u64) {
        self.blocks.insert(block_range(offset, len));
        self.grow(offset + len);
    }

    /// Bytes of blocks that a write or allocation of this range would newly need.
    pub(super) fn missing_bytes(&self, offset: u64, len: u64) -> u64 {
        self.blocks.missing(block_range(offset, len)) * BLOCK
    }

    pub(super) fn allocated_bytes(&self) -> u64 {
        self.blocks.count * BLOCK
    }

    pub(super) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len as usize];
        self.read(0, &mut bytes);
        bytes
    }
}

/// Splits a range of the file at chunk borders: (chunk, first byte inside it, range of the caller's buffer).
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let position = offset + done as u64;
        let start = (position % BLOCK) as usize;
        let size = (BLOCK as usize - start).min(len - done);
        let piece = (position / BLOCK, start, done..done + size);
        done += size;
        (size > 0).then_some(piece)
    })
}

fn block_range(offset: u64, len: u64) -> (u64, u64) {
    (offset / BLOCK, (offset + len).div_ceil(BLOCK))
}

/// A set of block numbers as disjoint ranges `start → end`, never touching each other.
#[derive(Clone, Default)]
struct Blocks {
    ranges: BTreeMap<u64, u64>,
    count: u64,
}

impl Blocks {
    fn missing(&self, (start, end): (u64, u64)) -> u64 {
        let inside: u64 = self
            .ranges
            .range(..end)
            .rev()
            .take_while(|(_, range_end)| **range_end > start)
            .map(|(range_start, range_end)| end.min(*range_end) - start.max(*range_start))
            .sum();
        end.saturating_sub(start) - inside
    }

    fn insert(&mut self, (mut start, mut end): (u64, u64)) {
        if start >= end {
            return;
        }
        self.count += self.missing((start, end));
        while let Some((&range_start, &range_end)) = self.ranges.range(..=end).next_back() {
            if range_end < start {
                break;
            }
            self.ranges.remove(&range_start);
            start = start.min(range_start);
            end = end.max(range_end);
        }
        self.ranges.insert(start, end);
    }

    fn truncate(&mut self, end: u64) {
        for (start, range_end) in self.ranges.split_off(&end) {
            self.count -= range_end - start;
        }
        if let Some((_, range_end)) = self.ranges.iter_mut().next_back()
            && *range_end > end
        {
            self.count -= *range_end - end;
            *range_end = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_base::sim::Generator;

    #[test]
    fn content_agrees_with_a_plain_vector() {
        let mut random = Generator::new(7);
        let (mut content, mut model) = (Content::default(), Vec::new());
        let mut blocks = std::collections::BTreeSet::new();
        for step in 0..2000u32 {
            let offset = random.below(40_000);
            let len = random.below(9_000);
            let touched = offset / BLOCK..(offset + len).div_ceil(BLOCK);
            match random.below(4) {
                0 => {
                    content.set_len(offset);
                    model.resize(offset as usize, 0);
                    blocks.retain(|b| *b < offset.div_ceil(BLOCK));
                }
                1 if len > 0 => {
                    let new = touched.clone().filter(|b| !blocks.contains(b)).count() as u64;
                    assert_eq!(content.missing_bytes(offset, len), new * BLOCK);
                    content.allocate(offset, len);
                    model.resize(model.len().max((offset + len) as usize), 0);
                    blocks.extend(touched);
                }
                _ if len > 0 => {
                    content.write(offset, &vec![step as u8; len as usize]);
                    content.grow(offset + len);
                    model.resize(model.len().max((offset + len) as usize), 0);
                    model[offset as usize..(offset + len) as usize].fill(step as u8);
                    blocks.extend(touched);
                }
                _ => {}
            }
            assert!(content.to_vec() == model, "step {step}");
            assert_eq!(content.allocated_bytes(), blocks.len() as u64 * BLOCK, "step {step}");
        }
    }
}
