//! Turns the source of an extension into an artefact: a shared object that a server can load, and, where the machine has
//! the tools, machine code of a WebAssembly module of the same source. Of a finished module comes machine code alone.
//!
//! ```text
//! Package -> check (sandbox) -> rustc (sandbox) -> check of MIR -> glue + link (sandbox) -> import check -> Artefact
//!                            -> rustc (sandbox) -> glue + link (sandbox) -> module check (sandbox) -> wasmc (sandbox)
//! finished module -> check of its list (sandbox) -----------------------> module check (sandbox) -> wasmc (sandbox)
//! ```
//!
//! The server links this crate to install extensions, the `splinter` command to check them without a server.
//! Guaranteed: an [`Artefact`] was made of sources that the allow-list check passed, by the compiler and SDK that its
//! hash names, and needs only a few memory functions of the process that loads it; or of a finished module, whose
//! source nobody checked ([`Code::Finished`]) and whose machine code stays within its linear memory. Not guaranteed: the
//! absence of unknown compiler bugs; docs/security.md states the consequences.
#![forbid(unsafe_code)]

mod artefact;
mod build;
mod check;
mod checked;
mod child;
mod elf;
mod error;
mod functions;
mod glue;
mod imports;
pub mod limits;
mod manifest;
mod mir;
mod module;
mod module_compiler;
mod name;
pub mod package;
pub mod refusal;
mod sandbox;
mod sdk;
mod target;
pub mod template;
mod toolchain;
#[cfg(feature = "unchecked")]
mod unchecked;
mod usage;
#[path = "../../store/src/weakened.rs"]
mod weakened;

pub use artefact::Artefact;
pub use artefact::Code;
pub use artefact::ModuleFile;
pub use artefact::sha256_of;
pub use check::check;
pub use checked::Checked;
pub use checked::Function;
pub use checked::Mode;
pub use checked::Source;
pub use checked::arguments_of;
pub use child::child_main;
pub use error::BuildError;
pub use module_compiler::ModuleCompiler;
pub use name::name_is_valid;
pub use package::Package;
pub use refusal::Refusal;
pub use toolchain::Toolchain;
