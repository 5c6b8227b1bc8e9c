//! The functions that a module may call, as data: so that the host need not know Wasmtime.
//!
//! A call crosses in an array of [`Value`]s, which holds the arguments and afterwards the result. Numbers come as the
//! module gave them: an address or a length is any 32-bit number, and the host checks it against the memory.

use wasmtime::{Engine, FuncType, ValRaw, ValType};

use super::memory::Memory;
use crate::stack::Cause;

/// A function that the host offers to modules, under the module name [`Import::MODULE`].
#[derive(Clone, Copy, Debug)]
pub struct Import {
    /// Its name.
    pub name: &'static str,
    /// The types of its parameters, at most [`Import::PARAMETERS_MAX`].
    pub parameters: &'static [Type],
    /// The type of its result.
    pub result: Option<Type>,
    /// Reads the arguments from the values, in order, and writes the result to the first of them. An error ends the run
    /// with that cause. Runs as a host call on the module's stack: it owns nothing when it returns, never leaves the
    /// stack, and must not panic, since a panic here ends the process: there is nothing below it that could catch one.
    ///
    /// # Safety
    /// The values are those of a call of this function, and the memory is that of the module that calls.
    pub call: unsafe fn(memory: &Memory, values: &mut [Value]) -> Result<(), Cause>,
}

impl Import {
    /// The name that modules import from.
    pub const MODULE: &'static str = "splinter";

    /// Parameters of an import at most.
    pub const PARAMETERS_MAX: usize = 16;

    /// Returns its type for Wasmtime.
    pub(super) fn function_type(&self, engine: &Engine) -> FuncType {
        let parameters = self.parameters.iter().map(|parameter| parameter.value_type());
        FuncType::new(engine, parameters, self.result.map(Type::value_type))
    }
}

/// The type of a number that crosses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// 32 bits, signed or not.
    I32,
    /// 64 bits, signed or not.
    I64,
    /// A floating-point number of 64 bits.
    F64,
}

impl Type {
    const fn value_type(self) -> ValType {
        match self {
            Self::I32 => ValType::I32,
            Self::I64 => ValType::I64,
            Self::F64 => ValType::F64,
        }
    }
}

/// A number that crosses. It does not know its type, which the [`Import`] tells: reading another one returns bytes
/// without meaning.
#[repr(transparent)]
pub struct Value(ValRaw);

impl Value {
    /// Returns the number as 32 bits.
    #[inline]
    #[must_use]
    pub fn as_u32(&self) -> u32 {
        self.0.get_u32()
    }

    /// Returns the number as 64 bits.
    #[inline]
    #[must_use]
    pub fn as_u64(&self) -> u64 {
        self.0.get_u64()
    }

    /// Returns the floating-point number.
    #[inline]
    #[must_use]
    pub fn as_f64(&self) -> f64 {
        f64::from_bits(self.0.get_f64())
    }

    /// Sets a number of 32 bits.
    #[inline]
    pub fn set_u32(&mut self, number: u32) {
        self.0 = ValRaw::u32(number);
    }

    /// Sets a number of 64 bits.
    #[inline]
    pub fn set_u64(&mut self, number: u64) {
        self.0 = ValRaw::u64(number);
    }

    /// Sets a floating-point number.
    #[inline]
    pub fn set_f64(&mut self, number: f64) {
        self.0 = ValRaw::f64(number.to_bits());
    }
}
