//! What is left of a bench that is killed, and who clears it away.
//!
//! A shell reads a pipe that the bench holds. When the pipe ends without a word, the bench was killed: the shell kills the
//! processes that it was told of and runs what else it was given. When the bench clears up itself it says so before. The
//! shell is in a process group of its own, so that what a terminal sends to the bench does not end it first.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// Reads numbers of processes, and `done`.
const SCRIPT: &str = "pids= is_done=; while read -r word; do case $word in done) is_done=1 ;; *) pids=\"$pids $word\" ;; esac; done; \
                      [ -n \"$is_done\" ] || [ -z \"$pids\" ] || kill -9 $pids 2>/dev/null; ";

/// The shell.
pub struct Keeper(Child);

impl Keeper {
    /// Starts it. At the end, whichever it is, it runs `clear`, where `$1` and so on are `words`.
    ///
    /// # Errors
    /// When there is no shell.
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
    ///
    /// # Errors
    /// When it is gone.
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

#[cfg(test)]
mod tests {
    use super::Keeper;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

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
