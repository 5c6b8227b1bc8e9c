//! Checks and builds the extension of a folder, or a finished module, without a server:
//! `splinter-build FOLDER CACHE [MODULE]`.
//!
//! With a third argument it also writes there the module as the module compiler gets it, to be read with other tools.
//! Prints the artefact's paths and the compiler's warnings, or the reason why there is none. The builder's own tests
//! also start this program again as the checker.

use std::path::Path;
use std::process::ExitCode;

use builder::Package;
use builder::Toolchain;

fn main() -> ExitCode {
    builder::child_main();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (folder, cache, module) = match &arguments[..] {
        [folder, cache] => (folder, cache, None),
        [folder, cache, module] => (folder, cache, Some(module)),
        _ => {
            eprintln!("usage: splinter-build FOLDER CACHE [MODULE]");
            return ExitCode::FAILURE;
        }
    };
    let package = Package::from_path(Path::new(folder), None).map_err(|error| error.to_string());
    let built = package.and_then(|package| {
        let toolchain = Toolchain::prepare(Path::new(cache)).map_err(|error| error.to_string())?;
        if let Some(path) = module {
            let module = toolchain.build_module(&package).map_err(|error| error.to_string())?;
            std::fs::write(path, module).map_err(|error| error.to_string())?;
        }
        toolchain.build(&package).map_err(|error| error.to_string())
    });
    match built {
        Ok(artefact) => {
            if let Some(object) = artefact.code.object() {
                println!("{}", object.display());
            }
            match artefact.code.module() {
                Ok(module) => println!("{}", module.path.display()),
                Err(why) => println!("{why}"),
            }
            for function in artefact.functions {
                println!("{:?} {}: {}", function.mode, function.name, function.doc);
            }
            if !artefact.warnings.is_empty() {
                eprintln!("{}", artefact.warnings);
            }
            eprintln!("{} ms", artefact.compile_ms);
            ExitCode::SUCCESS
        }
        Err(what) => {
            eprintln!("{what}");
            ExitCode::FAILURE
        }
    }
}
