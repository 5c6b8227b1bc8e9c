//! The administrator's secret: a file of mode 0600 in the data directory, created at the first start.
//!
//! The file holds the secret itself, because only the administrator may read it; the server keeps a hash in memory.
//! The file is written atomically: into a new file beside it, synced, then renamed. To rotate the secret, remove the
//! file and start again.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use cluster::secret::{SecretHash, generate};

/// Name of the file.
pub const FILE_NAME: &str = "admin.secret";

/// Reads the secret of `directory`, creating it if it is missing, and returns its hash.
///
/// # Errors
/// If the file cannot be read or written, is empty, or is readable by others.
pub fn open(directory: &Path) -> io::Result<SecretHash> {
    let path = directory.join(FILE_NAME);
    let secret = match fs::read_to_string(&path) {
        Ok(secret) => secret,
        Err(error) if error.kind() == io::ErrorKind::NotFound => create(directory, &path)?,
        Err(error) => return Err(error),
    };
    if fs::metadata(&path)?.permissions().mode() & 0o077 != 0 {
        let text = format!("{} is accessible to other users: run chmod 600 on it", path.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    let secret = secret.trim();
    if secret.is_empty() {
        let text = format!("{} is empty: remove it, and the server creates a new one", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    SecretHash::of(secret.as_bytes()).map_err(io::Error::other)
}

fn create(directory: &Path, path: &Path) -> io::Result<String> {
    let secret = generate().map_err(io::Error::other)?;
    let fresh = directory.join("admin.secret.new");
    // A file left by an interrupted start may have another mode.
    let _ = fs::remove_file(&fresh);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
    writeln!(file, "{secret}")?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    File::open(directory)?.sync_all()?;
    tracing::info!(path = %path.display(), "created the administrator's secret");
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::{FILE_NAME, open};

    #[test]
    fn the_secret_is_made_once_and_is_private() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(FILE_NAME);
        let first = open(directory.path()).expect("a fresh secret");
        let secret = fs::read_to_string(&path).expect("the file");
        assert_eq!(fs::metadata(&path).expect("the file").permissions().mode() & 0o777, 0o600);
        assert!(first.matches(secret.trim().as_bytes()));
        let second = open(directory.path()).expect("the same secret");
        assert!(second.matches(secret.trim().as_bytes()));
    }

    #[test]
    fn a_secret_that_others_may_read_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        open(directory.path()).expect("a fresh secret");
        let path = directory.path().join(FILE_NAME);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("ours to change");
        assert!(open(directory.path()).is_err());
    }
}
