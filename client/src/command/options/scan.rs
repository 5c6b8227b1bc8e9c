//! The command line of `splinter scan`.

use crate::command::bytes::Bytes;
use clap::Args;

/// Which keys of an ordered table, and how many.
#[derive(Args, Clone, Debug)]
pub struct ScanOptions {
    /// Name of the table, or OWNER/TABLE of one that is granted.
    pub table: String,
    /// Only keys that begin so: text, 0xHEX or @FILE.
    #[arg(long, value_name = "KEY")]
    pub prefix: Option<Bytes>,
    /// Only keys from this one on.
    #[arg(long, value_name = "KEY")]
    pub from: Option<Bytes>,
    /// Only keys below this one.
    #[arg(long, value_name = "KEY")]
    pub to: Option<Bytes>,
    /// From the largest key to the smallest.
    #[arg(long)]
    pub reverse: bool,
    /// How many objects at most.
    #[arg(long, default_value_t = 100)]
    pub limit: u64,
    /// Leave out the values.
    #[arg(long)]
    pub keys_only: bool,
    /// Go on where another scan of the same range has ended: the hex that it printed.
    #[arg(long, value_name = "CURSOR", default_value = "", hide_default_value = true)]
    pub cursor: String,
}
