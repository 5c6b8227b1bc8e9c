//! The places of a port's links. Most ports have few links, and are looked at all the time: so who looks goes by the bits.

/// Links of one port.
pub(super) const PLACES: usize = u64::BITS as usize;

/// What stands in which place.
#[derive(Debug)]
pub(super) struct Places<T> {
    pub(super) all: Vec<Option<T>>,
    /// A bit for each place that is taken.
    pub(super) taken: u64,
}

impl<T> Places<T> {
    pub(super) fn new() -> Self {
        Self { all: (0..PLACES).map(|_| None).collect(), taken: 0 }
    }

    /// The places that are taken, in turn, with `first` or the one behind it first.
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
