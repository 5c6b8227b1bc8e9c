//! The command line of `splinter archive`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// The commands of `splinter archive`.
#[derive(Debug, Subcommand)]
pub enum ArchiveCommand {
    /// Archive a tenant while it is in use, as of one moment: objects of its durable tables, extensions, limits, grants.
    /// With the administrator's secret the tenant of --tenant, or all.
    Create {
        /// Where to: a directory, or s3://BUCKET/PREFIX (credentials and endpoint as AWS_... in the environment). What an
        /// earlier archive has there is not sent again.
        #[arg(long, value_name = "DIR|URL")]
        to: String,
    },
    /// List the archives in a place.
    List(ArchivePlace),
    /// Read an archive, or all in a place, and check every file and object against the checksums. Asks no server.
    Verify {
        /// Name of the archive, as `list` shows it; default: all.
        name: Option<String>,
        #[command(flatten)]
        place: ArchivePlace,
    },
    /// Restore an archive: the administrator makes a new tenant of it, a tenant the tables of its own.
    Restore {
        /// Name of the archive, as `list` shows it.
        name: String,
        #[command(flatten)]
        place: ArchivePlace,
        /// Name of the new tenant (administrator); default: the archived tenant's.
        #[arg(long = "as", value_name = "NEWNAME")]
        new_name: Option<String>,
        /// Write the new tenant's secret to this file (mode 0600) instead of printing it (administrator).
        #[arg(long)]
        secret_file: Option<PathBuf>,
        /// Let the new tenant's extensions run as machine code if the archive says sandbox=native (administrator). Without it
        /// that is left out: whoever can write the place could have written it.
        #[arg(long)]
        native: bool,
    },
}

/// A place with archives.
#[derive(Args, Clone, Debug)]
pub struct ArchivePlace {
    /// Where the archives are: a directory, or s3://BUCKET/PREFIX.
    #[arg(long, value_name = "DIR|URL")]
    pub from: String,
}
