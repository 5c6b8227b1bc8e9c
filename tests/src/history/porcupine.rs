//! The same question, answered by porcupine, which others wrote and use: <https://github.com/anishathalye/porcupine>.
//!
//! A Go program in `tests/porcupine` with a model of its own, built once per test process; `scripts/setup` installs Go where
//! it is missing. It reads the text of a history and says of each whether it is linearizable.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use super::{Operation, to_text};

/// Where Go may be, besides the path.
const PLACES: [&str; 3] = ["go", "/usr/local/go/bin/go", "/usr/lib/go/bin/go"];

/// Whether each of these histories is linearizable.
///
/// # Panics
/// Where there is no Go, or the checker gives up.
pub fn judge(histories: &[&[Operation]]) -> Vec<bool> {
    let mut command = Command::new(program());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the checker starts");
    let mut input = child.stdin.take().expect("its input");
    let text: String = histories.iter().map(|history| to_text(history) + "\n").collect();
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = child.wait_with_output().expect("the checker ends");
    assert!(output.status.success(), "the checker gives up");
    writer.join().expect("no panic").expect("it reads everything");
    let text = String::from_utf8(output.stdout).expect("text");
    let verdicts: Vec<bool> = text.lines().map(|line| line == "linearizable").collect();
    assert_eq!(verdicts.len(), histories.len(), "{text}");
    verdicts
}

fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let test = std::env::current_exe().expect("a test is a file");
        let program = test.ancestors().nth(2).expect("it lies in a folder").join("porcupine-checker");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("porcupine");
        let works = |go: &&&str| Command::new(go).arg("version").output().is_ok_and(|it| it.status.success());
        let go = PLACES.iter().find(works).expect("Go is installed: scripts/setup does that");
        let mut command = Command::new(go);
        command.current_dir(source).args(["build", "-o"]).arg(&program).arg(".");
        let built = command.env("GOFLAGS", "-mod=readonly").output().expect("Go runs");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        program
    })
}
