//! Which blocks of a region are lent.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::layout::Layout;

/// Where the kernel says whether memory files have huge pages, of one size or of all.
const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage";

/// The blocks of a region whose pages packets may refer to.
pub(crate) struct LentBlocks {
    /// Empty: the region lends nothing.
    pub(crate) lent: Box<[AtomicBool]>,
    /// The producer of this process uses this mapping, so that it sees what is lent.
    pub(crate) has_producer: AtomicBool,
    /// Some block may be lent.
    pub(crate) any: AtomicBool,
}

impl LentBlocks {
    /// `is_used`: a former producer may have lent any block.
    pub(crate) fn new(layout: &Layout, has_file: bool, is_used: bool) -> Self {
        let count = if has_file && has_own_pages(layout) { layout.config.blocks } else { 0 };
        let lent = (0..count).map(|_| AtomicBool::new(is_used)).collect();
        let any = AtomicBool::new(count > 0 && is_used);
        Self { lent, has_producer: AtomicBool::new(false), any }
    }

    pub(crate) fn set_producer(&self, has_producer: bool) {
        self.has_producer.store(has_producer, Ordering::Release);
    }

    pub(crate) fn is_lent(&self, block: u32) -> bool {
        self.lent.get(block as usize).is_some_and(|lent| lent.load(Ordering::Relaxed))
    }
}

/// Whether no page has bytes of two blocks, and each is replaced alone. A part of a huge page that is in use cannot be: the kernel
/// clears it in place.
//= spec/ring.md R-LEND-3
fn has_own_pages(layout: &Layout) -> bool {
    let page = rustix::param::page_size() as u64;
    layout.arena_offset.is_multiple_of(page)
        && u64::from(layout.block_stride).is_multiple_of(page)
        && layout.block_stride == layout.config.block_bytes
        && !has_huge_pages(HUGE_PAGES)
}

/// Whether the kernel may give memory files huge pages unasked. A kernel without the settings has none.
fn has_huge_pages(settings: &str) -> bool {
    let sizes = fs::read_dir(settings).into_iter().flatten().flatten().map(|entry| entry.path());
    sizes.chain([settings.into()]).any(|size| {
        let chosen = fs::read_to_string(size.join("shmem_enabled")).unwrap_or_default();
        ["[always]", "[within_size]", "[force]"].iter().any(|unasked| chosen.contains(unasked))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "no files under Miri")]
    fn huge_pages_are_found_in_each_setting() {
        let folder = std::env::temp_dir().join(format!("freshwire-huge-{}", std::process::id()));
        let one = folder.join("hugepages-64kB");
        fs::create_dir_all(&one).unwrap();
        let settings = folder.to_str().unwrap();
        assert!(!has_huge_pages(settings), "a kernel without them");
        for (all, size, has) in [
            (
                "always within_size advise [never] deny force",
                "always inherit within_size advise [never]",
                false,
            ),
            (
                "always within_size [advise] never deny force",
                "always [inherit] within_size advise never",
                false,
            ),
            (
                "[always] within_size advise never deny force",
                "always inherit within_size advise [never]",
                true,
            ),
            (
                "always within_size advise [never] deny force",
                "always inherit [within_size] advise never",
                true,
            ),
            (
                "always within_size advise never deny [force]",
                "always inherit within_size advise [never]",
                true,
            ),
        ] {
            fs::write(folder.join("shmem_enabled"), all).unwrap();
            fs::write(one.join("shmem_enabled"), size).unwrap();
            assert_eq!(has_huge_pages(settings), has, "{all}, {size}");
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
