//! The second wall tests the first: generated programs that pass the check and the compiler as safe code run in both forms.
//!
//! Programs are changed extensions and changed sources of holes. One whose forms differ, or that ends by a fault, is a
//! hole of the first wall, or of the forms' likeness. Its source is kept in the target folder.
//!
//! Programs run in processes of their own, as a hole may end the process that runs it: that is a finding too.
//! `SPLINTER_SEED` and `SPLINTER_PROGRAM` (a number) repeat one program. With `SPLINTER_FULL=1` it takes five minutes.

mod corpus;
mod driver;
mod mutation;
#[path = "../support/pair.rs"]
mod pair;
mod places;
#[path = "../support/seed.rs"]
mod seed;
mod trial;
#[path = "../support/worker.rs"]
#[allow(unused_macros, reason = "both forms run here at once")]
mod worker;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use corpus::Corpus;
use fastrand::Rng;
use mutation::Made;
use trial::{Bench, Outcome};

/// Programs of a short run.
const PROGRAMS: u64 = 12;
/// Duration of a long run, in seconds.
const FULL_SECONDS: u64 = 300;
/// Processes side by side.
const CHILDREN: u64 = 2;
/// Of all programs in a long run as many run in both forms, in percent.
const RAN_PERCENT_MIN: u64 = 10;
/// Characters of a finding's text that are shown.
const FINDING_CHARS: usize = 300;
/// Holes that the second wall sees, of those that a short run tries.
const SEEN: [&str; 4] =
    ["rustc_160598", "rustc_161578_by_an_operand", "rustc_161578_by_a_trait", "rustc_135246"];

/// What a child does with its numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Task {
    Programs,
    Holes,
}

/// The numbers of one child: from the first on, each `CHILDREN`th, before the end.
struct Numbers {
    task: Task,
    child: u64,
    first: u64,
    end: u64,
    seconds: u64,
}

/// The words that children said, by number.
type Said = BTreeMap<u64, String>;

fn is_full() -> bool {
    env::var("SPLINTER_FULL").is_ok_and(|value| value == "1")
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("walls");
    fs::create_dir_all(&folder).expect("a folder for findings");
    folder
}

/// The file of a program while it runs, which stays there if it is a finding.
fn file_of(seed: u64, index: u64) -> PathBuf {
    folder().join(format!("{seed}-{index}.rs"))
}

#[test]
fn programs_that_pass_the_first_wall_do_the_same_in_both_forms() {
    // A short run makes the same programs every time: it says that all of this works, and a long one looks for holes.
    let seed = if is_full() || number("SPLINTER_SEED").is_some() { seed::seed() } else { 1 };
    let (first, end) = match number("SPLINTER_PROGRAM") {
        Some(index) => (index, index + 1),
        None => (0, if is_full() { u64::MAX } else { PROGRAMS }),
    };
    let seconds = number("SPLINTER_SECONDS").unwrap_or(FULL_SECONDS);
    let said = in_children(seed, Task::Programs, first, end, seconds);
    let count = |word: &str| said.values().filter(|said| said.starts_with(word)).count() as u64;
    let ran = count("equal") + count("finding");
    println!(
        "{} programs: {} refused by the check, {} in the MIR, {} by the compiler, {} without a module, {ran} ran: {} \
         equal, {} of them until a limit, {} findings",
        said.len(),
        count("refused by the check"),
        count("refused in the MIR"),
        count("refused by the compiler"),
        count("without a module"),
        count("equal"),
        count("equal until"),
        count("finding"),
    );
    let findings: Vec<String> = said
        .iter()
        .filter(|(_, said)| said.starts_with("finding"))
        .map(|(index, said)| {
            let file = file_of(seed, *index);
            format!("SPLINTER_SEED={seed} SPLINTER_PROGRAM={index} {}:\n{said}", file.display())
        })
        .collect();
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
    let percent = if is_full() { RAN_PERCENT_MIN } else { 1 };
    assert!(first > 0 || ran * 100 >= said.len() as u64 * percent, "only {ran} of {} ran", said.len());
}

/// What this test would see of the holes that the check keeps off, if it did not.
#[test]
fn holes_that_the_check_would_let_pass_are_seen() {
    let seed = 1;
    let names = holes();
    let said = in_children(seed, Task::Holes, 0, names.len() as u64, u64::MAX);
    let mut seen = Vec::new();
    for (index, said) in &said {
        let (name, _) = &names[*index as usize];
        println!("{name}: {said}");
        if said.starts_with("finding") {
            seen.push(name.as_str());
            let _ = fs::remove_file(file_of(seed, *index));
        }
    }
    let compiled = said.values().filter(|said| !said.starts_with("refused")).count();
    println!("{} of {compiled} holes that compile, of {} in all, are seen", seen.len(), names.len());
    for name in SEEN {
        assert!(seen.contains(&name), "{name} is not seen");
    }
}

/// Names and texts of the compiler's known holes; a few of them in a short run.
fn holes() -> Vec<(String, String)> {
    let holes = Corpus::read().refused.into_iter();
    let tried = |name: &str| if is_full() { name.starts_with("rustc_") } else { SEEN.contains(&name) };
    holes
        .filter(|hole| tried(&hole.origin))
        .map(|hole| (hole.origin.clone(), hole.text().to_owned()))
        .collect()
}

/// Runs children side by side; returns what they said.
fn in_children(seed: u64, task: Task, first: u64, end: u64, seconds: u64) -> Said {
    thread::scope(|scope| {
        let children: Vec<_> = (0..CHILDREN)
            .map(|child| {
                let numbers = Numbers { task, child, first: first.saturating_add(child), end, seconds };
                scope.spawn(move || follow(seed, numbers))
            })
            .collect();
        children.into_iter().flat_map(|child| child.join().expect("its thread ends")).collect()
    })
}

/// Runs the numbers of one child, in another process after each that ended one.
fn follow(seed: u64, mut numbers: Numbers) -> Said {
    let (mut all, began) = (Said::new(), Instant::now());
    while numbers.first < numbers.end && began.elapsed().as_secs() < numbers.seconds {
        let left = numbers.seconds.saturating_sub(began.elapsed().as_secs());
        let mut child = Command::new(env::current_exe().expect("a test knows its program"))
            .args(["--exact", "child", "--ignored", "--nocapture"])
            .env("SPLINTER_SEED", seed.to_string())
            .env(
                "SPLINTER_CHILD",
                format!(
                    "{} {} {} {} {left}",
                    u8::from(numbers.task == Task::Holes),
                    numbers.child,
                    numbers.first,
                    numbers.end
                ),
            )
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a child");
        let errors = child.stderr.take().expect("a pipe");
        let errors = thread::spawn(move || BufReader::new(errors).lines().map_while(Result::ok).last());
        let mut running = None;
        for line in BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok) {
            // What libtest says may stand before it.
            let Some((_, line)) = line.split_once("walls: ") else { continue };
            let (index, word) = line.split_once(' ').expect("a number and words");
            let index: u64 = index.parse().expect("a number");
            if word == "begins" {
                running = Some(index);
            } else {
                all.insert(index, word.to_owned());
                running = None;
                numbers.first = index + CHILDREN;
            }
        }
        let (status, last) = (child.wait().expect("it ended"), errors.join().expect("it reads"));
        match running {
            Some(index) => {
                all.insert(index, format!("finding: the process ended: {status}, {last:?}"));
                numbers.first = index + CHILDREN;
            }
            None => {
                assert!(status.success(), "a child failed before its programs: {status}, {last:?}");
                break;
            }
        }
    }
    all
}

#[test]
#[ignore = "the other test here starts it"]
fn child() {
    let Ok(numbers) = env::var("SPLINTER_CHILD") else { return };
    let numbers: Vec<u64> = numbers.split(' ').map(|word| word.parse().expect("a number")).collect();
    let [task, child, first, end, seconds] = numbers[..] else { panic!("five numbers") };
    let (seed, began) = (seed::seed(), Instant::now());
    let bench = Bench::new(&folder().join(format!("cache-{task}-{child}")));
    let (corpus, holes) = (Corpus::read(), if task == 1 { holes() } else { Vec::new() });
    for index in (first..end).step_by(CHILDREN as usize) {
        if began.elapsed() >= Duration::from_secs(seconds) {
            break;
        }
        let mut random = Rng::with_seed(seed ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let file = file_of(seed, index);
        println!("walls: {index} begins");
        let outcome = if task == 1 {
            let (_, text) = &holes[index as usize];
            fs::write(&file, text).expect("a source");
            bench.trial_unchecked(text, &mut random)
        } else {
            match mutation::make(&corpus, &mut random) {
                Made::Refused => {
                    println!("walls: {index} refused by the check");
                    continue;
                }
                Made::Accepted(program) => {
                    let text = format!("// {} {}\n{}", program.origin, program.path(), program.text());
                    fs::write(&file, text).expect("a source");
                    bench.trial(&program, &mut random)
                }
            }
        };
        if !matches!(outcome, Outcome::Finding(_)) && number("SPLINTER_PROGRAM").is_none() {
            let _ = fs::remove_file(&file);
        }
        println!("walls: {index} {}", words(&outcome));
    }
}

fn words(outcome: &Outcome) -> String {
    match outcome {
        Outcome::RefusedInMir => "refused in the MIR".into(),
        Outcome::RefusedByCompiler => "refused by the compiler".into(),
        Outcome::WithoutModule => "without a module".into(),
        Outcome::Equal => "equal".into(),
        Outcome::EqualUntilLimit => "equal until a limit".into(),
        Outcome::Finding(what) => {
            let line: String = what.replace('\n', " ").chars().take(FINDING_CHARS).collect();
            format!("finding: {line}")
        }
    }
}
