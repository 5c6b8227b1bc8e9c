//! The part of a module's linear memory that the host alone fills.

use crate::limits::LENT_BYTES;

/// The part of a module's linear memory in which host calls lend: offsets, filled from the start on.
///
/// The host alone moves the cursor, and what was lent stays until the invocation ends; only a page of a scan or an
/// enumeration uses the memory of the page before it.
#[derive(Clone, Copy, Debug, Default)]
pub struct LentPart {
    start: u32,
    next: u32,
    end: u32,
}

impl LentPart {
    /// Creates an unused part of [`LENT_BYTES`] from `start`.
    #[must_use]
    pub const fn new(start: u32) -> Self {
        Self { start, next: start, end: start + LENT_BYTES as u32 }
    }

    /// Returns the offsets that were lent.
    #[inline]
    #[must_use]
    pub const fn used(self) -> (u32, u32) {
        (self.start, self.next)
    }

    /// Reserves `bytes` more; `None` when there is no room.
    #[inline]
    pub(super) fn take(&mut self, bytes: usize) -> Option<u32> {
        if bytes > (self.end - self.next) as usize {
            return None;
        }
        let at = self.next;
        self.next += bytes as u32;
        Some(at)
    }

    /// Reserves `bytes` for a page, in the memory of `before` if that is large enough or the latest. Returns offset and
    /// bytes of the page.
    pub(super) fn take_page(&mut self, before: (u32, u32), bytes: usize) -> Option<(u32, usize)> {
        let (at, had) = (before.0, before.1 as usize);
        let is_ours = at >= self.start && at <= self.next && had <= (self.next - at) as usize;
        if !is_ours || had == 0 {
            return self.take(bytes).map(|at| (at, bytes));
        }
        if bytes <= had {
            return Some((at, had));
        }
        if at as usize + had == self.next as usize {
            self.take(bytes - had)?;
            return Some((at, bytes));
        }
        self.take(bytes).map(|at| (at, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::LentPart;
    use crate::limits::LENT_BYTES;

    const START: u32 = 8 << 20;
    const END: u32 = START + LENT_BYTES as u32;

    #[test]
    fn no_more_is_lent_than_the_limit() {
        let mut part = LentPart::new(START);
        assert_eq!(part.take(LENT_BYTES + 1), None);
        assert_eq!(part.take(usize::MAX), None);
        assert_eq!(part.take(LENT_BYTES - 8), Some(START));
        assert_eq!(part.take(9), None);
        assert_eq!(part.take_page((0, 0), 9), None);
        assert_eq!(part.take(8), Some(END - 8));
        assert_eq!((part.take(1), part.take(0)), (None, Some(END)));
        assert_eq!(part.used(), (START, END));
        assert_eq!(LentPart::default().take(1), None, "nothing is lent to native code");
    }

    #[test]
    fn a_page_takes_the_place_of_the_page_before_it_only_where_the_host_has_lent_it() {
        let mut part = LentPart::new(START);
        assert_eq!(part.take_page((0, 0), 64), Some((START, 64)));
        assert_eq!(part.take_page((START, 64), 16), Some((START, 64)), "it keeps what it had");
        assert_eq!(part.take_page((START, 64), 128), Some((START, 128)), "the latest grows in place");
        assert_eq!(part.take(8), Some(START + 128));
        assert_eq!(part.take_page((START, 128), 136), Some((START + 136, 136)), "another one does not");
        let used = part.used();
        for forged in
            [(START - 8, 64), (START, LENT_BYTES as u32), (START + 264, 64), (END, 8), (u32::MAX, u32::MAX)]
        {
            let next = part.used().1;
            assert_eq!(part.take_page(forged, 8), Some((next, 8)), "{forged:?}");
        }
        assert_eq!(part.used().1, used.1 + 5 * 8);
        let left = LENT_BYTES - (part.used().1 - START) as usize;
        assert_eq!(part.take_page((START, 128), left + 1), None);
        let last = part.used().1 - 8;
        assert_eq!(part.take_page((last, 8), left + 8), Some((last, left + 8)));
        assert_eq!(part.used(), (START, END));
    }
}
