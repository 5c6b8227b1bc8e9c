//! What an extension author sees.
#![no_std]
#![warn(missing_docs)]
pub mod abi;
