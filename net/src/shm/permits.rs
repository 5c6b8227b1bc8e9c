//! The places of a port's channels. Most ports have few channels and are polled constantly, so a poll follows the
//! bits.

/// Maximum channels of one port.
pub(super) const PLACES: usize = u64::BITS as usize;

/// The occupied places and their contents.
#[derive(Debug)]
pub(super) struct Places<T> {
    pub(super) all: Vec<Option<T>>,
    /// The occupied places, as bits.
    pub(super) taken: u64,
}

impl<T> Places<T> {
    pub(super) fn new() -> Self {
        Self { all: (0..PLACES).map(|_| None).collect(), taken: 0 }
    }

    /// Returns the occupied places in turn, beginning at `first` or after it.
    #[inline]
    pub(super) fn taken_from(&self, first: usize) -> impl Iterator<Item = usize> + use<T> {
        let mut left = self.taken.rotate_right(first as u32);
        std::iter::from_fn(move || {
            let next = (left != 0).then(|| (first + left.trailing_zeros() as usize) % PLACES);
            left &= left.wrapping_sub(1);
            next
        })
    }

    pub(super) fn set(&mut self, place: usize, one: Option<T>) {
        let bit = 1 << place;
        self.taken = if one.is_some() { self.taken | bit } else { self.taken & !bit };
        self.all[place] = one;
    }

    pub(super) fn in_use(&self) -> impl Iterator<Item = &T> {
        self.all.iter().flatten()
    }
}
