//! The linear memory of a module, as host calls see it.
//!
//! Every offset and every length comes from the module and is checked here, in 64 bits, where their sum cannot wrap.
//! A range that does not lie within the memory ends the invocation as wrong code does natively. Nothing that the module
//! wrote is ever read as a structure of the server: fields are little-endian words at the offsets of
//! [`sandstorm::abi::wasm32`].
//!
//! Slices of linear memory are used within one host call, during which the module does not run. Results are written
//! after the last of them was used, so ranges that overlap harm the module alone.

use sandstorm::abi::RawSlice;

use crate::stack::Cause;
use crate::wasm::Memory;
use crate::weakened;

/// A range that is not within the memory.
const OUTSIDE: Cause = Cause::WrongCode;

/// A module's linear memory during one host call.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinearMemory {
    base: *mut u8,
    bytes: usize,
}

impl LinearMemory {
    /// Creates a view of the memory.
    #[inline]
    pub(super) fn of(memory: &Memory) -> Self {
        Self { base: memory.base(), bytes: memory.bytes() }
    }

    /// Returns the address of `bytes` bytes from `at`.
    ///
    /// # Errors
    /// [`Cause::WrongCode`] if they are not all within the memory.
    #[inline]
    pub(super) fn address(self, at: u32, bytes: usize) -> Result<*mut u8, Cause> {
        match (at as usize).checked_add(bytes) {
            Some(end) if end <= self.bytes || weakened::by("offsets") && at as usize <= self.bytes => {
                // SAFETY: the offset lies within the memory or at its end.
                Ok(unsafe { self.base.add(at as usize) })
            }
            _ => Err(OUTSIDE),
        }
    }

    /// Returns `bytes` bytes from `at`.
    ///
    /// # Errors
    /// As for [`LinearMemory::address`].
    ///
    /// # Safety
    /// The slice is not used after the module runs again or the memory is written.
    #[inline]
    pub(super) unsafe fn slice<'m>(self, at: u32, bytes: u32) -> Result<&'m [u8], Cause> {
        let start = self.address(at, bytes as usize)?;
        // SAFETY: within the memory, which is mapped as long as its instance; the caller promises the rest.
        Ok(unsafe { std::slice::from_raw_parts(start, bytes as usize) })
    }

    /// Returns the native form of the slice structure at `at`.
    ///
    /// # Errors
    /// As for [`LinearMemory::address`], for the structure and for what it names.
    #[inline]
    pub(super) fn raw_slice(self, at: u32) -> Result<RawSlice, Cause> {
        let [start, bytes] = self.words(at)?;
        Ok(RawSlice { address: self.address(start, bytes as usize)?, bytes: bytes as usize })
    }

    /// Returns the `COUNT` words from `at`.
    ///
    /// # Errors
    /// As for [`LinearMemory::address`].
    #[inline]
    pub(super) fn words<const COUNT: usize>(self, at: u32) -> Result<[u32; COUNT], Cause> {
        let start = self.address(at, 4 * COUNT)?.cast::<[u8; 4]>();
        // SAFETY: that many words are within the memory; an array of bytes has no alignment.
        Ok(std::array::from_fn(|index| u32::from_le_bytes(unsafe { start.add(index).read() })))
    }

    /// Writes `bytes` from `at`.
    ///
    /// # Errors
    /// As for [`LinearMemory::address`]; nothing is written then.
    #[inline]
    pub(super) fn write<const COUNT: usize>(self, at: u32, bytes: [u8; COUNT]) -> Result<(), Cause> {
        let start = self.address(at, COUNT)?.cast::<[u8; COUNT]>();
        // SAFETY: within the memory; an array of bytes has no alignment.
        unsafe { start.write(bytes) };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::LinearMemory;
    use crate::stack::Cause;

    #[test]
    fn ranges_that_leave_the_memory_or_wrap_are_refused() {
        let mut place = [0u8; 64];
        let memory = LinearMemory { base: place.as_mut_ptr(), bytes: place.len() };
        for (at, bytes) in [(0, 64), (64, 0), (63, 1), (0, 0), (1, 63)] {
            assert!(memory.address(at, bytes).is_ok(), "{at} {bytes}");
        }
        for (at, bytes) in [
            (0, 65),
            (64, 1),
            (65, 0),
            (u32::MAX, 0),
            (u32::MAX, 1),
            (u32::MAX, 2),
            (1, u32::MAX as usize),
            (2, usize::MAX - 1),
            (u32::MAX, u32::MAX as usize),
        ] {
            assert_eq!(memory.address(at, bytes), Err(Cause::WrongCode), "{at} {bytes}");
        }
        assert_eq!(memory.words::<2>(60), Err(Cause::WrongCode));
        assert_eq!(memory.write(61, [0; 4]), Err(Cause::WrongCode));
        assert_eq!(memory.write(57, 7u32.to_le_bytes()), Ok(()));
        assert_eq!(memory.words::<1>(57), Ok([7]));
    }
}
