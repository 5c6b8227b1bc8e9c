//! Programs that a bench starts and folders that it makes: both end with the run, however it ends.
//!
//! A shell, the keeper, reads a pipe that the bench holds. When the pipe ends without a word, the bench was killed: the
//! shell kills the processes that it was told of and runs what else it was given. When the bench clears up itself it says
//! so before. The shell is in a process group of its own, so that what a terminal sends to the bench does not end it
//! first.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long a program may take to come up.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks whether it has.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Reads numbers of processes, and `done`.
const SCRIPT: &str = "pids= is_done=; while read -r word; do case $word in done) is_done=1 ;; *) pids=\"$pids $word\" ;; esac; done; \
                      [ -n \"$is_done\" ] || [ -z \"$pids\" ] || kill -9 $pids 2>/dev/null; ";

/// A program that runs; killed when it is dropped.
pub struct Process {
    child: Child,
    name: &'static str,
}

impl Process {
    /// Starts it without standard output; `None` where there is no such program.
    pub fn start(name: &'static str, mut command: Command) -> Result<Option<Self>, String> {
        match command.stdin(Stdio::null()).stdout(Stdio::null()).spawn() {
            Ok(child) => Ok(Some(Self { child, name })),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("cannot start {name}: {error}")),
        }
    }

    /// Starts it and waits until it listens; `None` without such program.
    pub fn listening(
        name: &'static str,
        command: Command,
        address: SocketAddr,
    ) -> Result<Option<Self>, String> {
        let Some(mut process) = Self::start(name, command)? else { return Ok(None) };
        process.wait_for(|| TcpStream::connect(address).ok())?;
        Ok(Some(process))
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

/// What clears away what a killed bench has left.
pub struct Keeper(Child);

impl Keeper {
    /// Starts its shell. At the end, whichever it is, it runs `clear`, where `$1` and so on are `words`.
    pub fn start(clear: &str, words: &[&str]) -> Result<Self, String> {
        let shell = Command::new("sh")
            .args(["-c", &format!("{SCRIPT}{clear}"), "keeper"])
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        shell.map(Self).map_err(|error| format!("no shell: {error}"))
    }

    /// Has it kill a process as well, if the bench does not.
    pub fn watch(&self, process: u32) -> Result<(), String> {
        self.say(&format!("{process}\n"))
    }

    fn say(&self, line: &str) -> Result<(), String> {
        let mut pipe = self.0.stdin.as_ref().ok_or("its pipe is closed")?;
        pipe.write_all(line.as_bytes()).map_err(|error| format!("the keeper is gone: {error}"))
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // What was started has been ended by who started it.
        let _ = self.say("done\n");
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// A folder for temporary files; removed when it is dropped, or when the bench is killed.
pub struct Folder {
    path: PathBuf,
    keeper: Keeper,
}

impl Folder {
    /// Makes one that names the bench and this process.
    pub fn make(bench: &str) -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("splinter-bench-{bench}-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|error| format!("no folder {}: {error}", path.display()))?;
        let keeper = Keeper::start("rm -rf \"$1\"", &[&path.display().to_string()])?;
        Ok(Self { path, keeper })
    }

    /// Has a process that uses it end when the bench is killed.
    pub fn outlives(&self, process: &Process) -> Result<(), String> {
        self.keeper.watch(process.id())
    }

    /// What is called `name` in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

/// Returns a command that runs `program` behind these words.
pub fn command_within(words: &[String], program: &Path) -> Command {
    let Some((first, others)) = words.split_first() else { return Command::new(program) };
    let mut command = Command::new(first);
    command.args(others).arg(program);
    command
}

/// The program that runs.
pub fn this_program() -> Result<PathBuf, String> {
    std::env::current_exe().map_err(|error| format!("which program is this? {error}"))
}

/// The program of this name in the folder of the one that runs.
pub fn beside_this(name: &str) -> Result<PathBuf, String> {
    let program = this_program()?.with_file_name(name);
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

/// Loopback.
pub const LOOPBACK: &str = "127.0.0.1";

/// A port of this address that nobody listens at, for a program that cannot choose one itself.
pub fn free_address(host: &str) -> Result<SocketAddr, String> {
    let free = TcpListener::bind((host, 0)).and_then(|listener| listener.local_addr());
    free.map_err(|error| format!("no free port: {error}"))
}

#[cfg(test)]
mod tests {
    use super::{Folder, Keeper, output_of};
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

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

    fn sleeper() -> std::process::Child {
        Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().expect("a process")
    }

    #[test]
    fn what_a_killed_bench_left_is_ended_and_cleared_away() {
        let path = std::env::temp_dir().join(format!("splinter-keeper-{}", fastrand::u64(..)));
        std::fs::create_dir(&path).expect("a folder");
        let name = path.display().to_string();
        let mut keeper = Keeper::start("rmdir \"$1\"", &[&name]).expect("a shell");
        let mut left = sleeper();
        keeper.watch(left.id()).expect("it listens");
        // As when this process is gone.
        drop(keeper.0.stdin.take());
        assert!(!left.wait().expect("a child of ours").success(), "it was killed");
        let began = Instant::now();
        while path.exists() {
            assert!(began.elapsed() < Duration::from_secs(30), "{name} stays");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn who_clears_up_by_itself_has_nothing_killed() {
        let mut left = sleeper();
        let keeper = Keeper::start("", &[]).expect("a shell");
        keeper.watch(left.id()).expect("it listens");
        drop(keeper);
        assert!(left.try_wait().expect("a child of ours").is_none(), "it runs on");
        left.kill().expect("it is ours");
        left.wait().expect("it ends");
    }
}
