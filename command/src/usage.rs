//! What the definition of the command line yields: errors of command lines in the output format that the command
//! requested, completions of shells, and manual pages.

use super::failure::{Failure, FailureKind};
use super::options::Options;
use super::output::{Answer, Output, print_failure};
use clap::CommandFactory;
use clap::builder::Resettable;
use clap::error::{Error, ErrorKind};
use clap_complete::Shell;
use serde_json::json;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// Prints the error of a command line, or the requested help.
pub fn refused(error: Error, line: Vec<OsString>) -> ExitCode {
    if !error.use_stderr() {
        error.exit();
    }
    let output = if asks_for_json(&line) { Output::Json } else { Output::Text };
    let error = without_environment(&line).unwrap_or(error);
    match output {
        Output::Text => error.exit(),
        Output::Json => {
            let failure = failure_of(&error);
            print_failure(&failure, output);
            failure.exit_code()
        }
    }
}

/// Returns the error without the environment: clap lists options set by the environment as missing on the line.
fn without_environment(line: &[OsString]) -> Option<Error> {
    let command = Options::command().mut_args(|argument| argument.env(Resettable::Reset));
    command.try_get_matches_from(line).err()
}

/// Returns whether the line requests JSON, as clap would have parsed it.
fn asks_for_json(line: &[OsString]) -> bool {
    let mut words = line.iter().map_while(|word| word.to_str().filter(|word| *word != "--"));
    let mut json = false;
    while let Some(word) = words.next() {
        match word.strip_prefix("--output") {
            Some("") => json = words.next() == Some("json"),
            Some(value) => json = value == "=json",
            None => {}
        }
    }
    json
}

/// Splits clap's text into the error and the usage.
fn failure_of(error: &Error) -> Failure {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return Failure::new(FailureKind::Usage, "a command is missing")
            .next("list them with `splinter --help`");
    }
    let text = error.render().to_string();
    let (what, behind) = text.split_once("\n\nUsage: ").unwrap_or((text.as_str(), ""));
    let what = what.strip_prefix("error: ").unwrap_or(what);
    let what = what.split("\n\nFor more information").next().unwrap_or(what).trim();
    let next = match behind.lines().next() {
        Some(usage) => format!("write {usage}; see --help"),
        None => "list the commands with `splinter --help`".to_owned(),
    };
    Failure::new(FailureKind::Usage, what).next(next)
}

/// Returns the completions of a shell.
pub fn completions(shell: Shell) -> Answer {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Options::command(), "splinter", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    let value = json!({ "shell": shell.to_string(), "script": script });
    Answer::new(script, value)
}

/// Writes a manual page for each command into a directory.
pub fn man_pages(directory: &Path) -> Result<Answer, Failure> {
    let written = std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(Options::command(), directory));
    written.map_err(|error| {
        Failure::new(FailureKind::Local, format!("cannot write to {}: {error}", directory.display()))
    })?;
    let text = format!("wrote the manual pages to {}", directory.display());
    Ok(Answer::new(text, json!({ "directory": directory })))
}

#[cfg(test)]
mod tests {
    use super::asks_for_json;

    #[test]
    fn json_is_asked_for_anywhere_before_the_end_of_options() {
        let asks = |line: &str| asks_for_json(&line.split(' ').map(Into::into).collect::<Vec<_>>());
        assert!(asks("splinter --output json get") && asks("splinter get t --output=json"));
        assert!(
            !asks("splinter get t k") && !asks("splinter get --output text") && !asks("splinter --output")
        );
        assert!(
            !asks("splinter get t -- --output json") && !asks("splinter --output json get --output text")
        );
    }
}
