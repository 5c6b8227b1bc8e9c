//! The two forms in which an extension is compiled, and the flags of each.
//!
//! Both come of the same sources by the same compiler. The flags that keep the optimizer's mistakes away are the same
//! too: a module cannot leave its memory, whatever is compiled wrong, but its results shall be the shared object's.

/// A form of an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A shared object of this machine.
    Native,
    /// A WebAssembly module.
    Module,
}

/// The flags for everything in an artefact, of whichever form.
///
/// MIR is not optimized: its passes cause most miscompilations of safe code (#158206, and see `tests/soundness.tsv`),
/// and LLVM does the same optimizations. The two `-Z` flags require [`UNSTABLE`]; they permit no feature.
///
/// The other flags keep off LLVM passes that let safe code read or write beyond an array, or fault, by mistake:
/// `tests/good/miscompiled.rs` has a source for each of them. LLVM accepts unknown names of passes silently.
/// IndVarSimplify and LoopDeletion take facts from loops that have ended for true (rustc #153222, LLVM #197240); IPSCCP
/// forgets arguments of recursive calls (LLVM #219503); MemCpyOpt lowers an alignment that is relied on (LLVM #208092);
/// ConstraintElimination takes facts for contradictory (LLVM #218569); CorrelatedValuePropagation keeps the range of a
/// minimum that it has replaced (LLVM #221274); a vectorized loop may lack the check that an index does not wrap (LLVM
/// #191382), so no loop is vectorized that needs one. JumpThreading and LoopIdiomRecognize are kept off because of bugs
/// that are known and that no safe code is known to meet (LLVM #203868, and stale facts about loops as above).
const FLAGS: [&str; 15] = [
    "--sysroot=/sr",
    "--edition=2024",
    "-Copt-level=3",
    "-Ccodegen-units=1",
    "-Cpanic=abort",
    "-Cdebuginfo=0",
    "-Cembed-bitcode=no",
    "--color=never",
    "-Ldependency=/sdk",
    "-Zallow-features=",
    "-Zmir-opt-level=0",
    "-Cllvm-args=-opt-disable=ipsccp,memcpyopt,indvars,loop-deletion,jump-threading,loop-idiom,correlated-propagation",
    "-Cllvm-args=-vectorize-scev-check-threshold=0",
    "-Cllvm-args=-loop-load-elimination-scev-check-threshold=0",
    "-Cllvm-args=-enable-constraint-elimination=false",
];
/// The flag for everything in a module.
const MODULE_FLAG: &str = "--target=wasm32-unknown-unknown";
/// Additional flags for the SDK, whose warnings a tenant cannot fix.
const SDK_FLAGS: [&str; 3] = ["--crate-type=rlib", "--crate-name=sandstorm", "-Awarnings"];
/// Additional flags for the tenant's crates.
const TENANT_FLAGS: [&str; 4] =
    ["--crate-type=rlib", "-Funsafe_code", "-Flong_running_const_eval", "-Ldependency=/in"];
/// Those of the shared object alone, whose MIR is checked.
const TENANT_NATIVE_FLAGS: [&str; 2] = ["--emit=link,mir=/out/crate.mir", "-Zmir-include-spans=on"];
/// That of the module alone: the other form has warned already.
const TENANT_MODULE_FLAG: &str = "-Awarnings";
/// The lint that refuses an installation and only warns afterwards: a future or a `Result` that is dropped unused
/// silently loses a write. It is forbidden, not denied, so that no `#![allow(unused)]` disables it.
const INSTALL_FLAG: &str = "-Funused_must_use";
/// Additional flags for linking.
const LINK_FLAGS: [&str; 5] = [
    "--crate-type=cdylib",
    "-Awarnings",
    "--crate-name=splinter_artefact",
    "-Cstrip=symbols",
    "-Ldependency=/in",
];
const LINK_NATIVE_FLAGS: [&str; 2] = ["-Clinker-flavor=ld", "-Clinker=/tc/bin/ld.lld"];
/// The memory of a module, as `sandstorm::abi::wasm32` lays it out: the stack first, so that its overflow traps, then
/// the call block, for which the linker leaves room, then data. The memory cannot grow.
const LINK_MODULE_FLAGS: [&str; 8] = [
    "-Clinker-flavor=wasm-ld",
    "-Clinker=/tc/bin/wasm-ld",
    "-Clink-arg=-zstack-size=65408",
    "-Clink-arg=--stack-first",
    "-Clink-arg=--global-base=65536",
    "-Clink-arg=--initial-memory=16777216",
    "-Clink-arg=--max-memory=16777216",
    "-Clink-arg=--export=__heap_base",
];

/// All flags, for the hash of this way of building.
pub(crate) fn all_flags() -> impl Iterator<Item = &'static str> {
    [Target::Native, Target::Module].into_iter().flat_map(|target| {
        let parts = [target.flags(), target.sdk_flags(), target.tenant_flags(true), target.link_flags()];
        parts.into_iter().flatten()
    })
}

impl Target {
    /// Returns the flags for every crate.
    pub(crate) fn flags(self) -> Vec<&'static str> {
        match self {
            Target::Native => FLAGS.to_vec(),
            Target::Module => [&FLAGS[..], &[MODULE_FLAG]].concat(),
        }
    }

    /// Returns the additional flags for the SDK.
    pub(crate) fn sdk_flags(self) -> Vec<&'static str> {
        SDK_FLAGS.to_vec()
    }

    /// Returns the additional flags for the tenant's crates; `strict` is an installation's.
    pub(crate) fn tenant_flags(self, strict: bool) -> Vec<&'static str> {
        match self {
            Target::Native if strict => [&TENANT_FLAGS[..], &TENANT_NATIVE_FLAGS, &[INSTALL_FLAG]].concat(),
            Target::Native => [&TENANT_FLAGS[..], &TENANT_NATIVE_FLAGS].concat(),
            Target::Module => [&TENANT_FLAGS[..], &[TENANT_MODULE_FLAG]].concat(),
        }
    }

    /// Returns the additional flags for linking.
    pub(crate) fn link_flags(self) -> Vec<&'static str> {
        match self {
            Target::Native => [&LINK_FLAGS[..], &LINK_NATIVE_FLAGS].concat(),
            Target::Module => [&LINK_FLAGS[..], &LINK_MODULE_FLAGS].concat(),
        }
    }

    /// Returns the name of what the linker writes.
    pub(crate) fn output(self) -> &'static str {
        match self {
            Target::Native => "artefact.so",
            Target::Module => "artefact.wasm",
        }
    }

    /// Returns the name of the folder of its compiled SDK.
    pub(crate) fn folder(self) -> &'static str {
        match self {
            Target::Native => "native",
            Target::Module => "module",
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::module::wasm32;

    use super::LINK_MODULE_FLAGS;

    #[test]
    fn the_linker_lays_memory_out_as_the_border_says() {
        for (flag, value) in [
            ("-zstack-size=", wasm32::STACK_BYTES),
            ("--global-base=", wasm32::DATA_AT),
            ("--initial-memory=", wasm32::MEMORY_BYTES),
            ("--max-memory=", wasm32::MEMORY_BYTES),
        ] {
            assert!(LINK_MODULE_FLAGS.contains(&&*format!("-Clink-arg={flag}{value}")), "{flag}");
        }
        assert!(LINK_MODULE_FLAGS.contains(&&*format!("-Clink-arg=--export={}", wasm32::HEAP_BASE)));
    }
}
