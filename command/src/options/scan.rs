//! The command line of `splinter scan`.

use crate::bytes::Bytes;
use clap::Args;

/// The options of `splinter scan`.
#[derive(Args, Clone, Debug)]
pub struct ScanOptions {
    /// Name of the table, or OWNER/TABLE for a granted one.
    pub table: String,
    /// Only keys with this prefix: text, 0xHEX or @FILE.
    #[arg(long, value_name = "KEY")]
    pub prefix: Option<Bytes>,
    /// Only keys from this one on.
    #[arg(long, value_name = "KEY")]
    pub from: Option<Bytes>,
    /// Only keys below this one.
    #[arg(long, value_name = "KEY")]
    pub to: Option<Bytes>,
    /// Scan from the largest key to the smallest.
    #[arg(long)]
    pub reverse: bool,
    /// Maximum number of objects.
    #[arg(long, default_value_t = 100)]
    pub limit: u64,
    /// Omit the values.
    #[arg(long)]
    pub keys_only: bool,
    /// Continue where an earlier scan of the same range ended: the hex that it printed.
    #[arg(long, value_name = "CURSOR", default_value = "", hide_default_value = true)]
    pub cursor: String,
}
