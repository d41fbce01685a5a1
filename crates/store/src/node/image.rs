//! A node's image: its page without the hole, for log records.
//!
//! Layout: page bytes 16..24 (tree, kind), the node header, the slots, the heap with the fences. The heap is laid out
//! without garbage, in slot order; the slots' offsets hold for the restored page.

use super::layout::{Header, SLOT_LEN, SLOTS, Slot, WORD_COUNTS, slot_offset};
use super::read::NodeRef;
use super::verify::verify_structure;
use super::write::NodeMut;
use crate::page::get_u16;

/// First page byte in an image; checksum and LSN before it are the page's own.
const IMAGE_START: usize = 16;

impl NodeRef<'_> {
    /// Appends the node's image to `image`.
    pub fn image(self, image: &mut Vec<u8>) {
        let page = self.page();
        let count = self.count();
        let header = self.header();
        let heap_len = self.entries_bytes() - count * SLOT_LEN + header.fences_len();
        let mut offset = page.len() - heap_len;
        image.reserve(slot_offset(count) - IMAGE_START + heap_len);
        image.extend_from_slice(&page[IMAGE_START..WORD_COUNTS]);
        image.extend_from_slice(&Header { heap_start: offset as u16, garbage: 0, ..header }.encode());
        for i in 0..count {
            image.extend_from_slice(&Slot { offset, ..self.slot(i) }.encode());
            offset += self.cell_len(i);
        }
        for i in 0..count {
            let start = self.slot(i).offset;
            image.extend_from_slice(&page[start..start + self.cell_len(i)]);
        }
        image.extend_from_slice(&page[page.len() - header.fences_len()..]);
    }
}

impl<'a> NodeMut<'a> {
    /// Restores a node from its image. Checksum and LSN of `page` stay. After an error the page holds no node.
    pub fn from_image(page: &'a mut [u8], image: &[u8]) -> Result<Self, String> {
        let node_header = WORD_COUNTS - IMAGE_START;
        if image.len() < SLOTS - IMAGE_START || image.len() > page.len() - IMAGE_START {
            return Err(format!("an image of {} bytes", image.len()));
        }
        let count = usize::from(get_u16(image, node_header + 2));
        let slots_end = slot_offset(count);
        let Some(heap) = image.get(slots_end - IMAGE_START..) else {
            return Err(format!("an image of {} bytes with {count} entries", image.len()));
        };
        let heap_start = page.len() - heap.len();
        page[IMAGE_START..slots_end].copy_from_slice(&image[..slots_end - IMAGE_START]);
        page[slots_end..heap_start].fill(0);
        page[heap_start..].copy_from_slice(heap);
        let restored = verify_structure(page, page.len()).and_then(|()| {
            let stored = usize::from(NodeRef::new(page).header().heap_start);
            if stored == heap_start {
                Ok(())
            } else {
                Err(format!("the heap starts at {stored}, not {heap_start}"))
            }
        });
        if let Err(what) = restored {
            page[IMAGE_START..].fill(0);
            return Err(format!("the image is no node: {what}"));
        }
        Ok(NodeMut::new(page))
    }
}
