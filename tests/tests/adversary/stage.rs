//! A server of one core, an attacker's tenant with `ext/misbehave`, and the neighbours.
//!
//! The extensions of `ext` are compiled once for all tests of this process: each server begins with a copy of
//! what the first one has compiled, found by the hash of the same source.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use benches::machine;
use builder::Package;
use client::{Client, Completion, Error, PackageFile, Status};
use tests::server::{Server, Settings, Tenant};

use super::neighbours::Neighbours;

/// The key that misdeeds write to.
pub const MARK: &[u8] = b"mark";
/// A key of the attacker's that stands all the time.
pub const KEPT: &[u8] = b"kept";
/// What the log says of a worker that is long in an extension, by the clock on the wall: no fault where others had its core.
const LATE: &str = "a worker does not come back from an extension";

/// What a test of the attacker plays on.
pub struct Stage {
    pub neighbours: Neighbours,
    pub server: Server,
    pub mallory: Tenant,
    pub client: Client,
    /// Mallory's table.
    pub table: u32,
}

impl Stage {
    /// A server whose core everybody shares; the neighbours have begun.
    pub fn new() -> Self {
        Self::with_memory("256MiB", "8MiB")
    }

    /// As [`Stage::new`], with memory for the store and bytes of a segment.
    pub fn with_memory(memory: &str, segment: &str) -> Self {
        let settings = Settings { memory: memory.into(), segment: segment.into(), ..Settings::default() };
        let directory = tempfile::tempdir().expect("a temporary directory");
        for (path, bytes) in compiled() {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().expect("a file lies in a folder")).expect("a folder");
            fs::write(path, bytes).expect("a file");
        }
        let server = Server::start_in(directory, settings).expect("the server starts");
        let mallory = server.tenant("mallory");
        // Where one wall alone stands: modules have tests of their own.
        server.set_sandbox("mallory", 0);
        let mut client = server.client(&mallory);
        let table = client.table_create("data").expect("a table");
        client.put(table, KEPT, b"kept").expect("the server takes a put");
        install_folder(&mut client, "misbehave");
        let neighbours = Neighbours::begin(&server);
        Self { neighbours, server, mallory, client, table }
    }

    /// Mallory's calls of a function of `ext/misbehave`; its mark is the arguments.
    pub fn misdeed(&mut self, function: &str) -> Result<Vec<u8>, Error> {
        self.client.invoke(&format!("misbehave.{function}"), self.table, MARK, b"left behind")
    }

    /// Nothing is left behind, the server serves the attacker, and the neighbours never saw a wrong answer.
    pub fn ends_unharmed(mut self) {
        assert_eq!(self.client.get(self.table, MARK).expect("an answer"), None, "a mark was left behind");
        assert_eq!(self.client.get(self.table, KEPT).unwrap().unwrap().value, b"kept");
        let objects = self.client.table_stat("data").expect("an answer").objects;
        assert_eq!(objects, 1, "what a misdeed wrote was left behind");
        self.neighbours.end();
        assert!(self.server.is_running(), "{}", self.server.log());
        let log = self.server.log();
        let (late, wrong): (Vec<&str>, Vec<&str>) = log
            .lines()
            .filter(|line| line.contains("ERROR") || line.contains("panicked"))
            .partition(|line| line.contains(LATE));
        assert!(wrong.is_empty(), "{log}");
        if !late.is_empty() {
            println!("{} times a worker was away for so long, as on a busy machine: {}", late.len(), late[0]);
        }
    }

    /// Bytes of memory that the server has in use.
    pub fn resident_bytes(&self) -> u64 {
        machine::resident_bytes(self.server.process()).expect("the server runs")
    }
}

/// What a server keeps of the extensions of `ext` once it has compiled them, with paths below its data.
fn compiled() -> &'static [(PathBuf, Vec<u8>)] {
    static COMPILED: OnceLock<Vec<(PathBuf, Vec<u8>)>> = OnceLock::new();
    COMPILED.get_or_init(|| {
        let server = Server::start();
        let mut client = server.client(&server.tenant("author"));
        for name in ["misbehave", "checksum", "ycsbt", "auth"] {
            install_folder(&mut client, name);
        }
        let mut files = Vec::new();
        collect(server.directory(), Path::new("extensions"), &mut files);
        files
    })
}

/// The files of a folder, and of those in it.
fn collect(root: &Path, folder: &Path, files: &mut Vec<(PathBuf, Vec<u8>)>) {
    for entry in fs::read_dir(root.join(folder)).expect("a folder").flatten() {
        let path = folder.join(entry.file_name());
        if entry.path().is_dir() {
            collect(root, &path, files);
        } else {
            files.push((path, fs::read(entry.path()).expect("a file")));
        }
    }
}

/// The folder of an extension of ours.
fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests lies in the root").join("ext").join(name)
}

/// Installs an extension from `ext`.
pub fn install_folder(client: &mut Client, name: &str) {
    let package = Package::from_directory(&folder(name)).expect("a package");
    let files = package.files().map(|(path, bytes)| PackageFile { path, bytes }).collect();
    client.extension_install(name, files).expect("it is installed");
}

/// Status and text of a refusal.
pub fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> (Status, String) {
    match result.expect_err("the server refuses") {
        Error::Refused { status, text } => (status, text),
        Error::ExtensionFailed { code, message } => {
            (Status::ExtensionError, format!("{code} {}", String::from_utf8_lossy(&message)))
        }
        error => (error.status().unwrap_or_else(|| panic!("no answer: {error}")), String::new()),
    }
}

/// Whether an invocation was ended for its age: where others have the processors for long, any can be.
pub fn grew_old(text: &str) -> bool {
    text.contains("the limit invocation_wall_us")
}

/// Calls a function again when it grew old before it was done, which leaves nothing behind. That is excused where the
/// servers had to wait for a processor since the last time, not where they had it and served somebody else.
pub fn in_time(mut call: impl FnMut() -> Result<Vec<u8>, Error>) -> Result<Vec<u8>, Error> {
    loop {
        match call() {
            Err(Error::Refused { status: Status::ExtensionKilled, text }) if grew_old(&text) => {
                let waited_ms = servers_waited_ms();
                let before_ms = WAITED_MS.swap(waited_ms, Ordering::Relaxed);
                // What servers waited that have ended meanwhile is no longer counted.
                let since_ms = waited_ms.checked_sub(before_ms).unwrap_or(waited_ms);
                println!("once more, {since_ms} ms without a processor: {text}");
                assert!(since_ms >= STARVED_MS, "neither starved nor served in time: {text}");
            }
            answer => return answer,
        }
    }
}

/// What the servers must have waited for a processor for an invocation to grow old by that.
const STARVED_MS: u64 = 200;

/// What they had waited when one was excused last.
static WAITED_MS: AtomicU64 = AtomicU64::new(0);

/// How long the threads of the servers of this process were ready to run and did not, together, as the kernel counts it.
fn servers_waited_ms() -> u64 {
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    let tasks = |process: &str| fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let children: String = tasks("self").map(|task| read(&task.path().join("children"))).collect();
    let threads = children.split_whitespace().flat_map(tasks);
    let waited_ns = threads.filter_map(|task| {
        read(&task.path().join("schedstat")).split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    waited_ns.sum::<u64>() / 1_000_000
}

/// The status of a completion; a request without an answer is a failure of the test.
pub fn answered(completion: &Completion<'_>) -> Status {
    completion.status.unwrap_or_else(|error| panic!("no answer: {error:?}"))
}
