//! The process' one engine, and whether modules may run at all.
//!
//! The engine holds what all modules share: the settings, the types of functions, the table that finds a trap. It is
//! made once. Nothing is loaded before [`start`](super::start) tested that modules run as they must on this machine;
//! where they do not, [`Unavailable`] says why.

use std::fmt;
use std::sync::{Arc, OnceLock};

use wasmtime::Engine;

use super::memory::SuppliedMemories;
use super::settings;

static ENGINE: OnceLock<Result<Engine, Unavailable>> = OnceLock::new();
static TESTED: OnceLock<Result<(), Unavailable>> = OnceLock::new();

/// Why modules cannot run in this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable(pub(super) String);

impl fmt::Display for Unavailable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "WebAssembly is unavailable: {}", self.0)
    }
}

impl std::error::Error for Unavailable {}

/// Returns the engine, tested or not.
pub(super) fn untested() -> Result<&'static Engine, Unavailable> {
    ENGINE.get_or_init(make).as_ref().map_err(Unavailable::clone)
}

/// Returns the engine once [`start`](super::start) has succeeded.
pub(super) fn tested() -> Result<&'static Engine, Unavailable> {
    match TESTED.get() {
        Some(Ok(())) => untested(),
        Some(Err(reason)) => Err(reason.clone()),
        None => Err(Unavailable("it has not been started".to_owned())),
    }
}

/// Returns the result of `test`, which runs once in the process.
pub(super) fn test_once(test: impl FnOnce() -> Result<(), Unavailable>) -> Result<(), Unavailable> {
    TESTED.get_or_init(test).clone()
}

fn make() -> Result<Engine, Unavailable> {
    let mut config = settings::config();
    config.with_host_memory(Arc::new(SuppliedMemories));
    // SAFETY: the function returns true only for features that the processor and the kernel support.
    unsafe { config.detect_host_feature(has_feature) };
    Engine::new(&config).map_err(|error| Unavailable(format!("no engine: {error:#}")))
}

/// Returns whether the processor has a feature that compiled code may use; `None` if the name is unknown, and then the
/// module that uses it is refused.
fn has_feature(name: &str) -> Option<bool> {
    macro_rules! detect {
        ($($feature:tt)*) => {
            match name {
                $($feature => Some(std::arch::is_x86_feature_detected!($feature)),)*
                _ => None,
            }
        };
    }
    detect!(
        "cmpxchg16b" "sse3" "ssse3" "sse4.1" "sse4.2" "popcnt" "avx" "avx2" "fma" "bmi1" "bmi2" "lzcnt" "avxvnni"
        "avx512bitalg" "avx512dq" "avx512f" "avx512vl" "avx512vbmi" "avx512vnni"
    )
}
