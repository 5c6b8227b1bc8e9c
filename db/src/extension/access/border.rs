//! What the host calls of a module ask for: the same as those of a native extension ([`crate::extension::host`]).

use std::mem::MaybeUninit;

use guest::border::{CallKind, Host, LentPart};
use sandstorm::abi::{Code, RawEntry, RawListed, RawRange, RawRecord, RawScanned, RawSlice};
use sandstorm::{Condition, Error};

use super::Access;
use crate::extension::allowance::Limit;
use crate::extension::host::{condition_of, range_of};
use crate::limits::LENT_BYTES;

/// Tickets are not used: a call either has its answer at once, or does nothing and is repeated as a whole.
impl Host for Access {
    const HAS_TICKETS: bool = false;

    #[inline]
    fn is_observed(&self) -> bool {
        Self::is_observed(self)
    }

    fn note_call(&mut self, kind: CallKind, cycles: u64) {
        Self::note_call(self, kind, cycles);
    }

    fn stalls(&mut self) -> bool {
        Self::stalls(self)
    }

    #[inline]
    fn lent(&mut self) -> &mut LentPart {
        &mut self.lent
    }

    #[cold]
    fn lent_too_much(&mut self, bytes: usize) -> Error {
        let (start, next) = self.lent.used();
        let used = (next - start) as usize + bytes;
        self.spending.exceed(Limit::LentBytes, LENT_BYTES as u64, used as u64)
    }

    #[inline]
    fn get(
        &mut self,
        _ticket: &mut u64,
        table: u32,
        key: &[u8],
        found: &mut MaybeUninit<RawRecord>,
    ) -> Result<(), Code> {
        let answer = Self::get(self, table, key, found);
        answer.map_err(|error| self.code_of_error(error))
    }

    #[inline]
    unsafe fn get_many(
        &mut self,
        _ticket: &mut u64,
        table: u32,
        keys: &[RawSlice],
        found: *mut RawRecord,
    ) -> Result<(), Code> {
        // SAFETY: as the caller promises.
        let answer = unsafe { Self::get_many(self, table, keys, found) };
        answer.map_err(|error| self.code_of_error(error))
    }

    #[inline]
    unsafe fn scan(
        &mut self,
        _ticket: &mut u64,
        table: u32,
        range: &RawRange,
        entries: (*mut RawEntry, usize),
    ) -> Result<RawScanned, Code> {
        // SAFETY: as the caller promises.
        unsafe { Self::scan(self, table, range_of(range), entries) }.map_err(|error| error.code())
    }

    #[inline]
    unsafe fn enumerate(
        &mut self,
        _ticket: &mut u64,
        table: u32,
        cursor: &[u8],
        entries: (*mut RawEntry, usize),
    ) -> Result<RawListed, Code> {
        // SAFETY: as the caller promises.
        unsafe { Self::enumerate(self, table, cursor, entries) }.map_err(|error| error.code())
    }

    #[inline]
    fn write(
        &mut self,
        _ticket: &mut u64,
        table: u32,
        key: &[u8],
        value: Option<(&[u8], u64)>,
        condition: Condition,
    ) -> Result<(), Code> {
        let answer = Self::write(self, table, key, value, condition_of(condition));
        answer.map_err(|error| self.code_of_error(error))
    }

    #[inline]
    fn increment(&mut self, _ticket: &mut u64, table: u32, key: &[u8], delta: i64) -> Result<i64, Code> {
        let answer = Self::increment(self, table, key, delta);
        answer.map_err(|error| self.code_of_error(error))
    }

    #[inline]
    fn increment_float(
        &mut self,
        _ticket: &mut u64,
        table: u32,
        key: &[u8],
        delta: f64,
    ) -> Result<f64, Code> {
        let answer = Self::increment_float(self, table, key, delta);
        answer.map_err(|error| self.code_of_error(error))
    }

    fn table(&mut self, _ticket: &mut u64, name: &[u8]) -> Result<u32, Code> {
        self.table_named(name).map_err(|error| error.code())
    }

    fn log(&mut self, level: u32, text: &[u8]) {
        Self::log(self, level, text);
    }

    fn now_ms(&self) -> u64 {
        Self::now_ms(self)
    }

    fn keep_last_words(&mut self, text: RawSlice) {
        Self::keep_last_words(self, text);
    }
}

#[cfg(test)]
mod tests {
    use guest::border::imports;
    use guest::wasm::{Import, Type};
    use sandstorm::abi::wasm32::{self, Value};

    use super::Access;

    fn value(number: Type) -> Value {
        match number {
            Type::I32 => Value::I32,
            Type::I64 => Value::I64,
            Type::F64 => Value::F64,
        }
    }

    #[test]
    fn the_host_has_the_imports_that_the_builder_lets_pass() {
        let imports = imports::<Access>();
        assert_eq!(Import::MODULE, wasm32::IMPORT_MODULE);
        assert_eq!(imports.len(), wasm32::IMPORTS.len());
        for (import, passed) in imports.iter().zip(wasm32::IMPORTS) {
            let parameters: Vec<_> = import.parameters.iter().copied().map(value).collect();
            assert_eq!((import.name, &*parameters), (passed.name, passed.parameters));
            assert_eq!(import.result.map(value), passed.result, "{}", import.name);
        }
    }
}
