//! Files of machine code that are not what the builder wrote: none is ever loaded.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use db::extension::allowance::Sandbox;
use db::extension::invocation::LimitOverrides;
use db::extension::native::Library;
use db::extension::registry::Registry;
use db::extension::{Extension, Provenance};
use wire::Status;

use crate::stage::{Stage, rounds, toolchain};
use crate::worker::{self, Worker};

fn source(number: u64) -> String {
    format!(
        "#![no_std]\nuse sandstorm::{{Args, Db, Error, Reply}};\nsandstorm::extension! {{ read say }}\n\
         async fn say(_: &Db<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {{\n\
         reply.u64({number}) }}\n"
    )
}

/// Installs the extension that says `number` at a new registry, as after a restart.
fn install(cache: &Path, number: u64) -> (Registry, Arc<Extension>) {
    let registry = worker::registry(cache);
    let installed =
        worker::install(&registry, "say", &source(number), 1, 1).unwrap_or_else(|e| panic!("{e}"));
    let extension = Arc::clone(&installed.extension);
    (registry, extension)
}

fn says(extension: &Arc<Extension>) -> (Status, Vec<u8>) {
    let mut worker =
        Worker::with_budget(LimitOverrides { sandbox: Some(Sandbox::Wasm), ..Default::default() });
    let mut answer = None;
    worker.run(extension, "say", b"key", b"", &mut |status, body| answer = Some((status, body.to_vec())));
    answer.expect("an answer")
}

fn with_suffix(cache: &Path, suffix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(cache.join("artefacts")).expect("the folder of artefacts");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|found| found == suffix));
    paths.sort();
    paths
}

#[test]
fn a_file_that_was_changed_or_swapped_is_never_loaded() {
    let cache = tempfile::tempdir().expect("a folder");
    let own = |number: u64| (Status::Ok, number.to_le_bytes().to_vec());
    for number in [1, 2] {
        let (_registry, extension) = install(cache.path(), number);
        assert_eq!(says(&extension), own(number));
    }
    let [modules, objects] = ["cwasm", "so"].map(|suffix| with_suffix(cache.path(), suffix));
    assert_eq!((modules.len(), objects.len()), (2, 2));
    let right: Vec<_> = modules.iter().map(|path| fs::read(path).expect("a module")).collect();
    let object = fs::read(&objects[0]).expect("a shared object");
    let random = &mut fastrand::Rng::with_seed(7);
    let mut wrongs = vec![(right[1].clone(), right[0].clone()), (Vec::new(), object)];
    for _ in 0..rounds() / 10 {
        let mut flipped = right.clone();
        for code in &mut flipped {
            let place = random.usize(..code.len());
            code[place] ^= 1 << random.u8(..8);
        }
        wrongs.push((flipped[0].clone(), flipped[1].clone()));
    }
    wrongs.push((right[0][..right[0].len() / 2].to_vec(), b"#!/bin/sh".to_vec()));
    for (first, second) in wrongs {
        fs::write(&modules[0], &first).expect("a file");
        fs::write(&modules[1], &second).expect("a file");
        for number in [1, 2] {
            let (_registry, extension) = install(cache.path(), number);
            assert_eq!(says(&extension), own(number));
        }
        for (path, right) in modules.iter().zip(&right) {
            assert!(fs::read(path).expect("a module") == *right, "it was built again");
        }
    }
}

#[test]
fn a_file_changed_after_it_was_found_is_refused_when_it_is_read() {
    let files = worker::package("say", &source(3));
    let package = builder::Package::new("say", files).expect("a package");
    let artefact = toolchain().build(&package).expect("an artefact");
    let module = artefact.code.module().expect("a module");
    let right = module.read().expect("the file");
    for place in [0, right.len() / 3, right.len() - 1] {
        let mut flipped = right.clone();
        flipped[place] ^= 0x40;
        fs::write(&module.path, &flipped).expect("a file");
        assert!(module.read().is_err_and(|why| why.contains("is not the file that was built")));
    }
    fs::write(&module.path, &right).expect("a file");
    assert!(module.read().is_ok());
}

#[test]
fn what_is_no_module_of_this_compiler_is_refused_by_the_runtime_too() {
    drop(Stage::new());
    let function = builder::Function { name: "say".into(), mode: builder::Mode::Read, doc: String::new() };
    for bytes in [&b""[..], b"\0asm\x01\0\0\0", b"\x7fELF", &[0xff; 4096]] {
        // SAFETY: none of these is machine code, and the runtime finds no header of its own.
        let loaded =
            unsafe { Library::of_module(std::slice::from_ref(&function), bytes, Provenance::Unknown) };
        assert!(loaded.is_err());
    }
}
