//! Runs one program in a sandbox: no network, a read-only tree of named files, a cleared environment, limits of
//! processor time, memory, file size, processes and wall time.
//!
//! The sandbox is `bwrap` (namespaces) with `prlimit` inside, where the process limit counts only the sandbox. The
//! checker and the compiler run in it, because crafted input can crash both, or worse.

use std::ffi::OsString;
use std::io::Read;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::ExitStatus;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use crate::BuildError;
use crate::limits;
use crate::usage::processor_ms;

/// Folders of the system's shared libraries; existing ones are visible in the sandbox.
const LIBRARY_FOLDERS: [&str; 3] = ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64"];
/// The interval between checks of a running program.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// SIGXCPU, then SIGKILL: the signals by which the processor limit ends a program.
const CPU_LIMIT_SIGNALS: [i32; 2] = [24, 9];
/// How the messages of the sandbox's own programs begin, after which they exit with 1.
const OWN_MESSAGES: [&[u8]; 2] = [b"bwrap: ", b"prlimit: "];

/// A program to run in a sandbox.
pub(crate) struct Job {
    /// The description of its purpose, for messages: "compiling hello".
    pub(crate) step: String,
    /// The program's path in the sandbox.
    pub(crate) program: String,
    /// Its arguments.
    pub(crate) arguments: Vec<OsString>,
    /// Visible files and folders: path on the machine, path in the sandbox.
    pub(crate) shown: Vec<(PathBuf, String)>,
    /// Variables of its environment.
    pub(crate) environment: Vec<(&'static str, &'static str)>,
    /// The working folder in the sandbox.
    pub(crate) folder: String,
    /// A folder of the machine that appears, writable, as `/out`.
    pub(crate) output: Option<PathBuf>,
    /// Its standard input.
    pub(crate) input: Vec<u8>,
    /// Its limit of processor time.
    pub(crate) cpu_seconds: u64,
    /// Its limit of address space.
    pub(crate) memory_bytes: u64,
}

/// The outcome of a program.
pub(crate) struct Outcome {
    pub(crate) status: ExitStatus,
    pub(crate) printed: Vec<u8>,
    pub(crate) errors: Vec<u8>,
}

impl Outcome {
    /// Returns the beginning of what the program said in the end, or how it ended.
    pub(crate) fn said(&self) -> String {
        let text = String::from_utf8_lossy(&self.errors);
        let text: String = text.trim().chars().take(limits::CRASH_CHARACTERS_MAX).collect();
        if text.is_empty() { self.status.to_string() } else { text }
    }

    /// Returns whether a signal ended the program.
    pub(crate) fn was_killed(&self) -> bool {
        signal_of(self.status).is_some()
    }

    /// Returns the error of a step that a signal ended.
    pub(crate) fn killed(&self, step: &str) -> BuildError {
        BuildError::Killed { step: step.into(), how: self.said() }
    }

    /// Returns whether the sandbox itself failed, so that the program did not run.
    fn is_of_the_sandbox(&self) -> bool {
        self.status.code() == Some(1) && OWN_MESSAGES.iter().any(|message| self.errors.starts_with(message))
    }
}

/// A sandbox that was tested to work.
#[derive(Clone, Debug)]
pub(crate) struct Sandbox {
    bwrap: PathBuf,
    prlimit: PathBuf,
    spent_ms: Arc<AtomicU64>,
}

impl Sandbox {
    /// Finds the programs and tries them.
    pub(crate) fn open() -> Result<Sandbox, BuildError> {
        let find = |name: &str| {
            find_program(name)
                .ok_or_else(|| BuildError::SandboxMissing { why: format!("{name} is not on the PATH") })
        };
        let sandbox = Sandbox { bwrap: find("bwrap")?, prlimit: find("prlimit")?, spent_ms: Arc::default() };
        let outcome = sandbox.run(Job {
            step: "trying the sandbox".into(),
            program: "/box/prlimit".into(),
            arguments: vec!["--version".into()],
            shown: Vec::new(),
            environment: Vec::new(),
            folder: "/".into(),
            output: None,
            input: Vec::new(),
            cpu_seconds: limits::CPU_SECONDS_MAX,
            memory_bytes: limits::ADDRESS_SPACE_BYTES_MAX,
        })?;
        if outcome.status.success() {
            return Ok(sandbox);
        }
        Err(BuildError::SandboxMissing { why: String::from_utf8_lossy(&outcome.errors).trim().into() })
    }

    /// Returns the same sandbox with a separate count.
    pub(crate) fn counting(&self) -> Sandbox {
        Sandbox { spent_ms: Arc::default(), ..self.clone() }
    }

    /// Returns the processor time used by programs in it, in milliseconds.
    pub(crate) fn spent_ms(&self) -> u64 {
        self.spent_ms.load(Ordering::Relaxed)
    }

    /// Runs a program to its end or to a limit.
    pub(crate) fn run(&self, job: Job) -> Result<Outcome, BuildError> {
        let mut command = self.command(&job);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| BuildError::io(format!("run {}", self.bwrap.display()), &error))?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let outcome = thread::scope(|scope| {
            scope.spawn(move || {
                // A program that ends without reading everything has reported why.
                let _ = stdin.map(|mut stdin| stdin.write_all(&job.input));
            });
            let printed = scope.spawn(move || stdout.map(read_limited).unwrap_or_default());
            let errors = scope.spawn(move || stderr.map(read_limited).unwrap_or_default());
            let status = self.wait(&mut child, Instant::now());
            let printed = printed.join().unwrap_or_default();
            let errors = errors.join().unwrap_or_default();
            status.map(|status| status.map(|status| Outcome { status, printed, errors }))
        });
        let outcome = outcome.map_err(|error| BuildError::io("wait for the sandbox", &error))?;
        match outcome {
            Some(outcome) if outcome.is_of_the_sandbox() => {
                Err(BuildError::SandboxMissing { why: outcome.said() })
            }
            Some(outcome) if !hit_cpu_limit(outcome.status) => Ok(outcome),
            _ => Err(BuildError::TimedOut { step: job.step }),
        }
    }

    /// Waits for the end and counts the usage; `None` when the program had to be killed.
    fn wait(&self, child: &mut Child, begun: Instant) -> std::io::Result<Option<ExitStatus>> {
        let mut spent_ms = 0;
        let ended = loop {
            spent_ms = processor_ms(child.id()).max(spent_ms);
            if let Some(status) = child.try_wait()? {
                break Some(status);
            }
            if begun.elapsed() >= limits::WALL_TIME_MAX {
                child.kill()?;
                child.wait()?;
                break None;
            }
            thread::sleep(POLL_INTERVAL);
        };
        if spent_ms == 0 {
            // Too short to be measured: counts its wall time, an upper bound.
            spent_ms = begun.elapsed().as_millis() as u64;
        }
        self.spent_ms.fetch_add(spent_ms, Ordering::Relaxed);
        Ok(ended)
    }

    /// Returns the command line of the sandbox around a job.
    fn command(&self, job: &Job) -> Command {
        let mut command = Command::new(&self.bwrap);
        command.env_clear();
        command.args(["--unshare-all", "--unshare-user", "--die-with-parent", "--new-session", "--clearenv"]);
        command.args(["--cap-drop", "ALL", "--uid", "65534", "--gid", "65534", "--hostname", "box"]);
        for folder in LIBRARY_FOLDERS {
            command.args(["--ro-bind-try", folder, folder]);
        }
        command.arg("--ro-bind").arg(&self.prlimit).arg("/box/prlimit");
        for (from, to) in &job.shown {
            command.arg("--ro-bind").arg(from).arg(to);
        }
        if let Some(output) = &job.output {
            command.arg("--bind").arg(output).arg("/out");
        }
        command.args(["--dev", "/dev", "--size", "67108864", "--tmpfs", "/tmp"]);
        command.args(["--remount-ro", "/", "--chdir", &job.folder, "--setenv", "LD_LIBRARY_PATH", "/tc/lib"]);
        for (name, value) in &job.environment {
            command.args(["--setenv", name, value]);
        }
        command.args(["--", "/box/prlimit", "--core=0"]);
        command.arg(format!("--cpu={}", job.cpu_seconds));
        command.arg(format!("--as={}", job.memory_bytes));
        command.arg(format!("--fsize={}", limits::OUTPUT_FILE_BYTES_MAX));
        command.arg(format!("--nproc={}", limits::PROCESSES_MAX));
        command.arg(&job.program).args(&job.arguments);
        command
    }
}

/// Finds a program of the PATH.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|program| is_program(program))
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// Returns whether the processor limit ended the program.
fn hit_cpu_limit(status: ExitStatus) -> bool {
    signal_of(status).is_some_and(|signal| CPU_LIMIT_SIGNALS.contains(&signal))
}

/// Returns the signal that ended a program; `bwrap` reports it as 128 + its number.
fn signal_of(status: ExitStatus) -> Option<i32> {
    status.signal().or_else(|| status.code().map(|code| code - 128).filter(|signal| *signal > 0))
}

/// Reads to the end, and keeps the first part.
fn read_limited(mut source: impl Read) -> Vec<u8> {
    let mut kept = Vec::new();
    let limit = limits::PRINTED_BYTES_MAX as u64;
    // A broken pipe has no more output; the exit status tells the rest.
    let _ = source.by_ref().take(limit).read_to_end(&mut kept);
    let _ = std::io::copy(&mut source, &mut std::io::sink());
    kept
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::Job;
    use super::Sandbox;
    use super::find_program;
    use crate::BuildError;
    use crate::limits;

    fn shell(script: &str) -> Result<(bool, String), BuildError> {
        let shell = find_program("sh").expect("a shell");
        let outcome = Sandbox::open().expect("a working bwrap").run(Job {
            step: "a script".into(),
            program: "/box/sh".into(),
            arguments: ["-c", script].map(OsString::from).to_vec(),
            shown: vec![(shell, "/box/sh".into())],
            environment: Vec::new(),
            folder: "/".into(),
            output: None,
            input: b"input\n".to_vec(),
            cpu_seconds: 1,
            memory_bytes: limits::ADDRESS_SPACE_BYTES_MAX,
        })?;
        Ok((outcome.status.success(), String::from_utf8_lossy(&outcome.printed).into_owned()))
    }

    #[test]
    fn the_box_shows_nothing_of_the_machine() {
        let (good, text) = shell("read line; echo $line; set; for f in /*; do echo $f; done").unwrap();
        assert!(good && text.starts_with("input\n"), "{text}");
        for hidden in ["HOME=", "/etc\n", "/home\n", "/proc\n", "/root\n", "/usr/bin\n"] {
            assert!(!text.contains(hidden), "{hidden} is visible:\n{text}");
        }
        assert_eq!(shell("echo x > /box/sh || echo x > /new").unwrap(), (false, String::new()));
    }

    #[test]
    fn the_processor_limit_ends_a_loop() {
        assert_eq!(shell("while :; do :; done"), Err(BuildError::TimedOut { step: "a script".into() }));
    }

    #[test]
    fn what_a_program_uses_is_counted_whether_it_ends_well_or_not() {
        let sandbox = Sandbox::open().expect("a working bwrap");
        let (first, second) = (sandbox.counting(), sandbox.counting());
        let job = |script: &str, cpu_seconds| Job {
            step: "a script".into(),
            program: "/box/sh".into(),
            arguments: ["-c", script].map(OsString::from).to_vec(),
            shown: vec![(find_program("sh").expect("a shell"), "/box/sh".into())],
            environment: Vec::new(),
            folder: "/".into(),
            output: None,
            input: Vec::new(),
            cpu_seconds,
            memory_bytes: limits::ADDRESS_SPACE_BYTES_MAX,
        };
        assert!(first.run(job("while :; do :; done", 1)).is_err());
        // If other programs have the processors, the time since the last reading is missed.
        assert!((300..1_500).contains(&first.spent_ms()), "{}", first.spent_ms());
        let loops = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
        assert!(second.run(job(loops, 10)).is_ok_and(|outcome| outcome.status.success()));
        assert!((10..9_000).contains(&second.spent_ms()), "{}", second.spent_ms());
    }
}
