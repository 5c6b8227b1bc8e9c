//! demo
use clap::Args;
use std::path::PathBuf;
use super::failure::Failure;
use super::output::Answer;
use super::settings::Settings;
/// x
#[derive(Args, Debug)]
pub struct DemoOptions { #[arg(long)] graph: Option<PathBuf> }
/// x
pub fn run(_: &Settings, o: &DemoOptions) -> Result<Answer, Failure> { let _ = &o.graph; Ok(Answer::new("", serde_json::Value::Null)) }
