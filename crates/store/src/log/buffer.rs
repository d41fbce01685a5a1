//! The ring that holds the log's newest bytes between append and device. A position in the log is at the same
//! position in the ring, modulo its size, for as long as it is there.

/// A ring of a power-of-two number of bytes.
pub(crate) struct Ring {
    bytes: Vec<u8>,
    mask: u64,
}

impl Ring {
    /// A ring of `len` zero bytes; `len` is a power of two.
    pub(crate) fn new(len: usize) -> Self {
        assert!(len.is_power_of_two());
        Ring { bytes: vec![0; len], mask: len as u64 - 1 }
    }

    /// Number of bytes.
    pub(crate) fn len(&self) -> u64 {
        self.mask + 1
    }

    /// Where `at` is in the ring, and how many bytes follow it before the wrap.
    fn locate(&self, at: u64) -> (usize, usize) {
        let offset = (at & self.mask) as usize;
        (offset, self.bytes.len() - offset)
    }

    /// Puts `data` at position `at`.
    pub(crate) fn put(&mut self, at: u64, data: &[u8]) {
        let (offset, room) = self.locate(at);
        let (first, second) = data.split_at(room.min(data.len()));
        self.bytes[offset..offset + first.len()].copy_from_slice(first);
        self.bytes[..second.len()].copy_from_slice(second);
    }

    /// Puts `len` zero bytes at position `at`.
    pub(crate) fn put_zeros(&mut self, at: u64, len: usize) {
        let (offset, room) = self.locate(at);
        let first = room.min(len);
        self.bytes[offset..offset + first].fill(0);
        self.bytes[..len - first].fill(0);
    }

    /// Copies the bytes at position `at` to `out`.
    pub(crate) fn get(&self, at: u64, out: &mut [u8]) {
        let (offset, room) = self.locate(at);
        let (first, second) = out.split_at_mut(room.min(out.len()));
        first.copy_from_slice(&self.bytes[offset..offset + first.len()]);
        second.copy_from_slice(&self.bytes[..second.len()]);
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ring({} bytes)", self.bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_the_wrap() {
        let mut ring = Ring::new(16);
        ring.put(12, &[1, 2, 3, 4, 5, 6, 7]);
        let mut out = [0; 7];
        ring.get(12, &mut out);
        assert_eq!(out, [1, 2, 3, 4, 5, 6, 7]);
        ring.put_zeros(14, 4);
        ring.get(12, &mut out);
        assert_eq!(out, [1, 2, 0, 0, 0, 0, 7]);
    }
}
