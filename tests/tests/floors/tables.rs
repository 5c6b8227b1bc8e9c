//! The rules of the floors test, as tables: who may import what, where `unsafe` may stand, how long and how
//! named files are.
//!
//! A change of the architecture is a change here, made on purpose. The tables follow ARCHITECTURE.md from
//! bottom to top.

/// A crate, the crates of ours it may import, and the packages from outside it may use.
pub struct Crate {
    /// Its name, which is its folder's.
    pub name: &'static str,
    /// Crates of ours that it may import; `*` for any.
    pub ours: &'static [&'static str],
    /// Packages from outside.
    pub outside: &'static [&'static str],
}

/// The crates, bottom to top. Development dependencies are checked against `DEVELOPMENT` as well.
pub const CRATES: &[Crate] = &[
    Crate { name: "wire", ours: &[], outside: &[] },
    Crate { name: "net", ours: &[], outside: &["libc", "fastrand", "bindgen", "cc", "pkg-config"] },
    Crate { name: "store", ours: &[], outside: &["libc", "crc32c", "once_cell", "xxhash-rust", "loom"] },
    Crate { name: "disk", ours: &[], outside: &["crc32c", "fastrand", "io-uring", "libc"] },
    Crate { name: "sandstorm", ours: &[], outside: &[] },
    Crate {
        name: "builder",
        ours: &[],
        outside: &[
            "data-encoding",
            "syn",
            "proc-macro2",
            "sha2",
            "toml",
            "serde",
            "serde_json",
            "wasmparser",
        ],
    },
    Crate { name: "control", ours: &["wire"], outside: &["rmp-serde", "serde"] },
    Crate { name: "tao", ours: &["sandstorm"], outside: &[] },
    Crate {
        name: "client",
        ours: &["control", "wire", "net", "sandstorm", "builder", "guest"],
        outside: &["tokio", "xxhash-rust"],
    },
    Crate {
        name: "command",
        ours: &["client", "sandstorm", "builder", "tao"],
        outside: &[
            "clap",
            "clap_complete",
            "clap_mangen",
            "data-encoding",
            "hdrhistogram",
            "indicatif",
            "jiff",
            "object_store",
            "serde",
            "serde_json",
            "sha2",
            "tokio",
            "toml",
            "unicode-width",
            "zstd",
        ],
    },
    Crate {
        name: "cluster",
        ours: &["control", "wire", "store"],
        outside: &[
            "data-encoding",
            "fastrand",
            "getrandom",
            "hmac",
            "libc",
            "redb",
            "serde",
            "serde_json",
            "sha2",
            "subtle",
            "tracing",
        ],
    },
    Crate { name: "guest", ours: &["wire", "sandstorm"], outside: &["libc", "tracing", "wasmtime"] },
    Crate {
        name: "db",
        ours: &["control", "wire", "net", "store", "disk", "sandstorm", "builder", "cluster", "guest"],
        outside: &[
            "arrayvec",
            "clap",
            "etcd-client",
            "httparse",
            "libc",
            "libloading",
            "loom",
            "sd-notify",
            "tokio",
            "tracing",
            "tracing-subscriber",
        ],
    },
    Crate {
        name: "benches",
        ours: &["client", "store", "tao", "wire", "net", "sandstorm", "builder"],
        outside: &[
            "clap",
            "fastrand",
            "hdrhistogram",
            "serde",
            "serde_json",
            "libc",
            "plotters",
            "tokio",
            // What the store is measured beside.
            "dashmap",
            "papaya",
            "scc",
        ],
    },
    Crate { name: "tests", ours: &["*"], outside: &["clap", "fastrand", "tempfile", "tokio"] },
];

/// Packages from outside that tests and benches of any crate may use besides.
pub const DEVELOPMENT: &[&str] =
    &["fastrand", "tempfile", "criterion", "loom", "redb", "serde_json", "wat", "proc-macro2", "syn"];

/// What an extension may depend on.
pub const EXTENSION_MAY_USE: &[&str] = &["sandstorm", "tao"];

/// The modules of the server, bottom to top. A module imports only from floors below its own. `tablet`
/// stands above `tenant`, since a table belongs to a tenant.
pub const SERVER_FLOORS: &[&[&str]] = &[
    &["limits", "clock", "sync", "weakened"],
    &["metrics", "config", "process"],
    &["sched", "tenant", "peer", "etcd", "durability"],
    &["tablet"],
    &["session"],
    &["ops"],
    &["extension"],
    &["view"],
    &["worker"],
    &["control_plane"],
    &["backups", "moving", "remote"],
    &["administration"],
    &["front"],
    &["boot"],
];

/// Files in which `unsafe` may stand. All other code is safe.
pub const UNSAFE_MAY_STAND_IN: &[&str] = &[
    // DPDK: its functions, its packets. Compiled with the feature `dpdk` alone.
    "net/src/dpdk/ethdev.rs",
    "net/src/dpdk/mbuf.rs",
    "net/src/dpdk/sys.rs",
    // The one clock that counts suspends.
    "cluster/src/moment.rs",
    // System calls on sockets, memory that is shared with a neighbour.
    "net/src/shm/descriptor.rs",
    "net/src/shm/region.rs",
    "net/src/sys.rs",
    "net/src/udp/control.rs",
    "net/src/udp/receive.rs",
    "net/src/udp/send.rs",
    // Memory of the store: mapping, segments, index, epochs; the processor's instruction for checksums.
    "store/src/checksum.rs",
    "store/src/directory.rs",
    "store/src/index.rs",
    "store/src/index/generation.rs",
    "store/src/index/growth.rs",
    "store/src/log.rs",
    "store/src/log/copy.rs",
    "store/src/log/durable.rs",
    "store/src/memory.rs",
    "store/src/ordered/node.rs",
    "store/src/reclaim.rs",
    "store/src/sync.rs",
    "store/src/sync/inbox.rs",
    "store/src/tests/versions.rs",
    // Memory that the kernel reads and writes, and that others may change meanwhile; a limit of the process, in a test.
    "disk/src/buffer.rs",
    "disk/src/file.rs",
    "disk/src/simulated.rs",
    "disk/src/transfer.rs",
    "disk/src/uring.rs",
    "disk/tests/full.rs",
    // The border between server and extension, on the extension's side.
    "sandstorm/src/abi.rs",
    "sandstorm/src/args.rs",
    "sandstorm/src/db.rs",
    "sandstorm/src/entry.rs",
    "sandstorm/src/operation.rs",
    "sandstorm/src/record.rs",
    "sandstorm/src/reply.rs",
    "sandstorm/src/enumerate.rs",
    "sandstorm/src/page.rs",
    "sandstorm/src/scan.rs",
    "sandstorm/src/testing.rs",
    "sandstorm/src/testing/host.rs",
    "sandstorm/src/testing/tests.rs",
    // What the builder links to an extension, and the sources that try to get `unsafe` past it.
    "builder/glue.rs",
    "builder/glue_runtime.rs",
    "builder/glue_wasm.rs",
    "builder/tests/",
    // The same border on the host's side: at the client, and in the server.
    "client/src/local/border.rs",
    "client/src/local/host.rs",
    "client/src/local/module_run.rs",
    "client/src/local/modules.rs",
    "db/src/extension/",
    "db/src/ops/transaction.rs",
    "db/src/ops/transaction/scans.rs",
    "db/src/ops/transaction/write_set.rs",
    // Stacks, arenas, signals; the queue of offers.
    "guest/benches/",
    "guest/src/",
    "db/src/sched.rs",
    "db/src/process.rs",
    "db/src/process/priority.rs",
    // Allocators that count, cycle counters.
    "client/tests/",
    "db/tests/",
    "benches/src/machine.rs",
];

/// Names that say nothing about what a file defines.
pub const FORBIDDEN_NAMES: &[&str] =
    &["mod", "util", "utils", "helper", "helpers", "common", "types", "manager", "misc"];

/// Types that may share a name within a crate.
pub const HOMONYMS: &[(&str, &str)] = &[
    // One of the two is compiled: loom's atomics cannot be made out of zeroed memory.
    ("store", "BucketArray"),
];

/// Lines after which a file gets a warning.
pub const FILE_LINES_WARN: usize = 450;

/// Lines that no file may pass.
pub const FILE_LINES_MAX: usize = 500;

/// Lines that no function may pass.
pub const FUNCTION_LINES_MAX: usize = 70;
