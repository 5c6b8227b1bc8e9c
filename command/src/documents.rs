//! Completions of shells and manual pages, generated from the definition of the command line.

use super::failure::{Failure, FailureKind};
use super::options::Options;
use super::output::Answer;
use clap::CommandFactory;
use clap_complete::Shell;
use serde_json::json;
use std::path::Path;

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
