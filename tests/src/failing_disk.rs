//! A disk that hangs or fails under a real server, which moves its blocks by system calls (`--disk-io system-calls`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// In front of the C library: writes to the file of the log, and its syncs, wait while the file HANGS exists, and fail while
/// FAILS does. Syncs of the metadata fail while UNSYNCED exists.
const CALLS: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int is_there(const char *name) {
    const char *path = getenv(name);
    return path && access(path, F_OK) == 0;
}

static int is_named(int file, const char *name) {
    char link[32], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path), bytes = strlen(name);
    return length >= bytes && memcmp(path + length - bytes, name, bytes) == 0;
}

static int fails(int file) {
    if (!is_named(file, "/log")) return 0;
    while (is_there("HANGS")) usleep(1000);
    return is_there("FAILS");
}

#define WRITE(NAME) \
    ssize_t NAME(int file, const void *bytes, size_t count, off_t at) { \
        static ssize_t (*next)(int, const void *, size_t, off_t); \
        if (!next) next = dlsym(RTLD_NEXT, #NAME); \
        if (fails(file)) { errno = EIO; return -1; } \
        return next(file, bytes, count, at); \
    }

WRITE(pwrite)
WRITE(pwrite64)

#define SYNC(NAME) \
    int NAME(int file) { \
        static int (*next)(int); \
        if (!next) next = dlsym(RTLD_NEXT, #NAME); \
        int is_lost = is_there("UNSYNCED") && is_named(file, "/metadata.redb"); \
        if (fails(file) || is_lost) { errno = EIO; return -1; } \
        return next(file); \
    }

SYNC(fsync)
SYNC(fdatasync)
"#;

/// What a server's disk does.
#[derive(Debug)]
pub struct FailingDisk {
    directory: TempDir,
    library: PathBuf,
}

impl FailingDisk {
    /// Compiles the calls; the disk works at first.
    pub fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let library = compile(directory.path());
        Self { directory, library }
    }

    /// The command that the server is to be started through.
    pub fn wrapper(&self) -> Vec<String> {
        let variable = |name: &str, path: PathBuf| format!("{name}={}", path.display());
        let library = variable("LD_PRELOAD", self.library.clone());
        vec![
            "env".to_owned(),
            library,
            variable("HANGS", self.file("hangs")),
            variable("FAILS", self.file("fails")),
            variable("UNSYNCED", self.file("unsynced")),
        ]
    }

    /// Lets writes wait from now on.
    pub fn hang(&self) {
        fs::write(self.file("hangs"), "").expect("a temporary directory");
    }

    /// Lets writes fail from now on, also those that wait.
    pub fn fail(&self) {
        fs::write(self.file("fails"), "").expect("a temporary directory");
        let _ = fs::remove_file(self.file("hangs"));
    }

    /// Lets syncs of the metadata fail from now on, though what was written can be read.
    pub fn fail_metadata(&self) {
        fs::write(self.file("unsynced"), "").expect("a temporary directory");
    }

    /// Lets writes pass again.
    pub fn work(&self) {
        ["fails", "hangs", "unsynced"].into_iter().for_each(|name| {
            let _ = fs::remove_file(self.file(name));
        });
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

impl Default for FailingDisk {
    fn default() -> Self {
        Self::new()
    }
}

fn compile(directory: &Path) -> PathBuf {
    let (source, library) = (directory.join("failing.c"), directory.join("failing.so"));
    fs::write(&source, CALLS).expect("a temporary directory");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl");
    let compiled = compiler.output().expect("the C compiler, which links Rust, runs");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    library
}
