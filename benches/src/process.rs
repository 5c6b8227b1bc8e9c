//! Programs that a bench starts and folders that it makes: both end with the run, however it ends.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long a program may take to come up.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks whether it has.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A program that runs; killed when it is dropped.
pub struct Process {
    child: Child,
    name: &'static str,
}

impl Process {
    /// Starts it without standard output; `None` where there is no such program.
    ///
    /// # Errors
    /// When it is there and cannot be started.
    pub fn start(name: &'static str, mut command: Command) -> Result<Option<Self>, String> {
        match command.stdin(Stdio::null()).stdout(Stdio::null()).spawn() {
            Ok(child) => Ok(Some(Self { child, name })),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("cannot start {name}: {error}")),
        }
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Looks until there is something, the program has ended, or patience has.
    ///
    /// # Errors
    /// In the last two cases.
    pub fn wait_for<T>(&mut self, mut look: impl FnMut() -> Option<T>) -> Result<T, String> {
        let began = Instant::now();
        loop {
            if let Some(found) = look() {
                return Ok(found);
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("{} ended: {status}", self.name));
            }
            if began.elapsed() > PATIENCE {
                return Err(format!("{} does not come up", self.name));
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that has ended by itself is gone too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder for temporary files; removed when it is dropped.
pub struct Folder(PathBuf);

impl Folder {
    /// Makes one that names the bench and this process.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn make(bench: &str) -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("splinter-bench-{bench}-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|error| format!("no folder {}: {error}", path.display()))?;
        Ok(Self(path))
    }

    /// What is called `name` in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed now is the system's to clean.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The program of this name in the folder of the one that runs.
///
/// # Errors
/// When there is none.
pub fn beside_this(name: &str) -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| format!("which program is this? {error}"))?;
    let program = own.with_file_name(name);
    if program.is_file() {
        return Ok(program);
    }
    Err(format!(
        "there is no {}: build it (cargo build --release -p db), or name it with --server",
        program.display()
    ))
}

/// The address in the file that our server writes when it is ready.
pub fn address_in(ready: &Path) -> Option<SocketAddr> {
    let text = std::fs::read_to_string(ready).ok()?;
    text.split_whitespace().find_map(|word| word.strip_prefix("tcp=")?.parse().ok())
}

/// An address on loopback that nobody listens at, for a program that cannot choose one itself.
///
/// # Errors
/// When there is none.
pub fn free_address() -> Result<SocketAddr, String> {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    free.map_err(|error| format!("no free port: {error}"))
}
