//! Programs that a bench starts and folders that it makes: both end with the run, however it ends.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::keeper::Keeper;

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

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
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
            if let Some(status) = self.ended() {
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

/// Runs a program to its end, and returns what it wrote to standard output; its standard error goes to a file of `folder`.
///
/// # Errors
/// When it does not start, does not end well, or not within `patience`; then it is killed.
pub fn output_of(
    name: &'static str,
    mut command: Command,
    folder: &Folder,
    patience: Duration,
) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("cannot start {name}: {error}");
    let log = folder.join(&format!("{name}.log"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&log).map_err(failed)?);
    let mut process = Process { child: command.spawn().map_err(failed)?, name };
    folder.outlives(&process)?;
    let mut output = process.child.stdout.take().ok_or("no standard output")?;
    let reader = thread::spawn(move || {
        let mut text = String::new();
        output.read_to_string(&mut text).map(|_| text)
    });
    let began = Instant::now();
    let status = loop {
        match process.ended() {
            Some(status) => break status,
            None if began.elapsed() > patience => {
                return Err(format!("{name} did not end within {} s", patience.as_secs()));
            }
            None => thread::sleep(LOOK_EVERY),
        }
    };
    if !status.success() {
        let words = last_words(&log).unwrap_or_else(|| format!("it ended: {status}"));
        return Err(format!("{name}: {words}"));
    }
    let text = reader.join().map_err(|_| "a thread panicked")?;
    text.map_err(|error| format!("{name} wrote no text: {error}"))
}

/// The last line of a log that is not empty.
pub fn last_words(log: &Path) -> Option<String> {
    let text = std::fs::read_to_string(log).ok()?;
    text.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}

/// A folder for temporary files; removed when it is dropped, or when the bench is killed.
pub struct Folder {
    path: PathBuf,
    keeper: Keeper,
}

impl Folder {
    /// Makes one that names the bench and this process.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn make(bench: &str) -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("splinter-bench-{bench}-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|error| format!("no folder {}: {error}", path.display()))?;
        let keeper = Keeper::start("rm -rf \"$1\"", &[&path.display().to_string()])?;
        Ok(Self { path, keeper })
    }

    /// Has a process that uses it end when the bench is killed.
    ///
    /// # Errors
    /// When there is nobody any more to do that.
    pub fn outlives(&self, process: &Process) -> Result<(), String> {
        self.keeper.watch(process.id())
    }

    /// What is called `name` in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
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
        "there is no {}: build it (cargo build --release -p splinter-server), or name it with --server",
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

#[cfg(test)]
mod tests {
    use super::{Folder, output_of};
    use std::process::Command;
    use std::time::Duration;

    fn shell(script: &str, patience: Duration) -> Result<String, String> {
        let folder = Folder::make(&format!("process-{}", fastrand::u64(..)))?;
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        output_of("shell", command, &folder, patience)
    }

    #[test]
    fn a_program_says_what_it_found_or_why_it_failed() {
        let long = Duration::from_secs(30);
        assert_eq!(shell("echo noise >&2; echo found", long), Ok("found\n".into()));
        assert_eq!(
            shell("echo first >&2; echo 'the reason' >&2; exit 1", long),
            Err("shell: the reason".into())
        );
        assert!(shell("kill -9 $$", long).is_err_and(|why| why.contains("signal: 9")));
        let why = shell("sleep 60", Duration::from_millis(100)).expect_err("it takes too long");
        assert!(why.contains("did not end"), "{why}");
    }
}
