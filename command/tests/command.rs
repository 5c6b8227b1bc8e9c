//! The `splinter` command as a process, as far as it needs no server: exit codes, what it says, the forms of
//! its output, extensions that are written and checked, graphs that are generated.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Runs the command in a directory, with nothing of the caller's environment that would change it.
fn splinter(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_splinter"))
        .args(arguments)
        .current_dir(directory)
        .env_clear()
        .env("HOME", directory)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn a_missing_secret_is_named_with_the_ways_to_give_it() {
    let directory = tempfile::tempdir().unwrap();
    let ran = splinter(directory.path(), &["--tenant", "acme", "table", "list"]);
    assert_eq!(ran.status.code(), Some(1));
    let said = text(&ran.stderr);
    assert!(said.contains("secret is not known") && said.contains("SPLINTER_SECRET"), "{said}");
    assert!(said.contains(".config/splinter/profile.toml"), "{said}");
}

#[test]
fn a_server_that_is_not_there_is_unreachable() {
    let directory = tempfile::tempdir().unwrap();
    let profile = directory.path().join(".config/splinter/profile.toml");
    fs::create_dir_all(profile.parent().unwrap()).unwrap();
    fs::write(&profile, "address = \"127.0.0.1:1\"\ntenant = \"acme\"\nsecret = \"s\"\n").unwrap();
    let ran = splinter(directory.path(), &["ping"]);
    assert_eq!(ran.status.code(), Some(6));
    assert!(text(&ran.stderr).contains("127.0.0.1:1") && text(&ran.stderr).contains("\nnext:  "));
    let ran = splinter(directory.path(), &["ping", "--output", "json"]);
    assert_eq!(ran.status.code(), Some(6));
    let said: serde_json::Value = serde_json::from_slice(&ran.stderr).unwrap();
    assert_eq!(said["exit_code"], 6);
}

#[test]
fn a_wrong_command_line_is_a_usage_error() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(splinter(directory.path(), &["tabel", "list"]).status.code(), Some(2));
    assert_eq!(splinter(directory.path(), &[]).status.code(), Some(2));
    assert_eq!(splinter(directory.path(), &["--help"]).status.code(), Some(0));
}

#[test]
fn the_durabilities_of_a_table_are_explained_and_no_other_is_taken() {
    let directory = tempfile::tempdir().unwrap();
    for command in ["create", "alter"] {
        let help = splinter(directory.path(), &["table", command, "--help"]);
        let said = text(&help.stdout);
        for word in ["memory:", "written:", "synced:"] {
            let line = said.lines().find(|line| line.contains(word)).unwrap_or_default();
            assert!(line.trim().len() > word.len() + 10, "{word} in {said}");
        }
        let ran = splinter(directory.path(), &["table", command, "t", "--durability", "disk"]);
        assert_eq!(ran.status.code(), Some(2));
        assert!(text(&ran.stderr).contains("memory, written, synced"), "{}", text(&ran.stderr));
    }
    let ran = splinter(directory.path(), &["table", "alter", "t"]);
    assert!(ran.status.code() == Some(2) && text(&ran.stderr).contains("--durability"));
}

#[test]
fn a_usage_error_is_json_where_that_is_asked_for_and_asks_for_nothing_that_is_set() {
    let directory = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_splinter"));
        command.args(arguments).env_clear().env("HOME", directory.path());
        command.env("SPLINTER_ADDRESS", "127.0.0.1:1").env("SPLINTER_TENANT", "acme");
        command.env("SPLINTER_SECRET", "s").env("SPLINTER_ADMIN_SECRET", "s");
        let ran = command.output().unwrap();
        assert_eq!(ran.status.code(), Some(2), "{arguments:?}");
        assert!(ran.stdout.is_empty());
        text(&ran.stderr).to_owned()
    };
    let said = run(&["put", "data"]);
    assert!(said.contains("<KEY>") && said.contains("Usage: splinter put"), "{said}");
    for set in ["--address", "--tenant", "--secret", "--admin-secret"] {
        assert!(!said.contains(set), "{set} is set: {said}");
    }
    for (arguments, word) in [
        (&["--output", "json", "put", "data"][..], "<KEY>"),
        (&["put", "data", "--output=json"], "<KEY>"),
        (&["tabel", "list", "--output", "json"], "tabel"),
        (&["table", "list", "--unknown", "--output", "json"], "--unknown"),
        (&["ping", "--count", "0", "--output", "json"], "--count"),
        (&["--output", "json"], "command"),
    ] {
        let said: serde_json::Value = serde_json::from_str(&run(arguments)).expect("one JSON value");
        assert_eq!(said["exit_code"], 2, "{said}");
        assert!(said["error"].as_str().unwrap().contains(word), "{said}");
        assert!(said["next"].as_str().unwrap().contains("splinter"), "{said}");
    }
}

#[test]
fn a_ping_of_no_round_trip_is_refused_before_anybody_is_asked() {
    let directory = tempfile::tempdir().unwrap();
    let ran = splinter(directory.path(), &["ping", "--count", "0"]);
    assert_eq!(ran.status.code(), Some(2), "{}", text(&ran.stderr));
    assert!(text(&ran.stderr).contains("--count"), "{}", text(&ran.stderr));
}

#[test]
fn a_new_extension_passes_the_check() {
    let directory = tempfile::tempdir().unwrap();
    let ran = splinter(directory.path(), &["ext", "new", "visits"]);
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
    let ran = splinter(directory.path(), &["ext", "check", "visits"]);
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
    assert!(text(&ran.stdout).starts_with("visits passes the check; it was not compiled\n"));
    assert!(text(&ran.stdout).contains("come with the installation") && text(&ran.stdout).contains("bwrap"));
    let again = splinter(directory.path(), &["ext", "new", "visits"]);
    assert_eq!(again.status.code(), Some(1));
    let escaping = splinter(directory.path(), &["ext", "new", "../visits"]);
    assert_eq!(escaping.status.code(), Some(1));
}

#[test]
fn a_refused_source_is_shown_with_place_and_remedy() {
    let directory = tempfile::tempdir().unwrap();
    splinter(directory.path(), &["ext", "new", "visits"]);
    let source = directory.path().join("visits/src/lib.rs");
    let good = fs::read_to_string(&source).unwrap();
    fs::write(&source, format!("{good}\nstatic COUNT: u32 = 0;\n")).unwrap();
    let ran = splinter(directory.path(), &["ext", "check", "visits"]);
    assert_eq!(ran.status.code(), Some(7));
    let place = format!("src/lib.rs:{}:", good.lines().count() + 2);
    let said = text(&ran.stderr);
    assert!(said.contains(&place) && said.contains("instead,"), "{said}");
}

#[test]
fn a_check_shows_what_the_compiler_would_say_at_the_installation() {
    let directory = tempfile::tempdir().unwrap();
    splinter(directory.path(), &["ext", "new", "visits"]);
    let source = directory.path().join("visits/src/lib.rs");
    let good = fs::read_to_string(&source).unwrap();
    // With the sandbox and the compiler of who runs the test at hand.
    let check = |source_text: &str| {
        fs::write(&source, source_text).unwrap();
        let folder = directory.path().join("temporary");
        fs::create_dir_all(&folder).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_splinter"));
        command.args(["ext", "check", "visits"]).current_dir(directory.path()).env("TMPDIR", &folder);
        let ran = command.output().unwrap();
        assert_eq!(fs::read_dir(folder).unwrap().count(), 0, "nothing stays behind");
        ran
    };
    let ran = check(&good);
    assert_eq!(
        text(&ran.stdout),
        "visits passes the check and compiles\nread  greet\n",
        "{}",
        text(&ran.stderr)
    );
    let ran = check(&good.replace("let name", "let unused = 1;\n    let name"));
    assert!(ran.status.success() && text(&ran.stdout).contains("unused variable: `unused`"));
    let ran = check(&good.replace("reply.write(b\", \")?;", "reply.write(b\", \");"));
    assert_eq!(ran.status.code(), Some(7));
    assert!(text(&ran.stderr).contains("unused `Result` that must be used"), "{}", text(&ran.stderr));
}

#[test]
fn the_shipped_extensions_pass_the_check() {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ext");
    for name in ["aggregate", "get", "put", "tao"] {
        let ran = splinter(&shipped, &["ext", "check", name, "--output", "json"]);
        assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
        let checked: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
        assert_eq!(checked["extension"], name);
        assert!(!checked["functions"].as_array().unwrap().is_empty());
    }
}

#[test]
fn a_generated_graph_is_an_edge_list_that_its_seed_repeats() {
    let directory = tempfile::tempdir().unwrap();
    let generate = |seed: &str| {
        let shape = ["--nodes", "50", "--edges-per-node", "3", "--seed", seed];
        splinter(directory.path(), &[&["tao", "generate"][..], &shape].concat())
    };
    let ran = generate("5");
    assert_eq!(ran.status.code(), Some(0));
    assert!(text(&ran.stdout).starts_with("# Generated by splinter tao generate, seed 5."));
    assert_eq!(text(&ran.stdout).lines().count(), 1 + 50 * 3 - 3 * 4 / 2);
    assert_eq!(generate("5").stdout, ran.stdout);
    assert_ne!(generate("6").stdout, ran.stdout);
    let file =
        splinter(directory.path(), &["tao", "generate", "graph.txt", "--nodes", "50", "--output", "json"]);
    let said: serde_json::Value = serde_json::from_slice(&file.stdout).unwrap();
    assert_eq!(said["nodes"], 50);
    assert!(directory.path().join("graph.txt").exists());
}

#[test]
fn files_that_are_no_graphs_are_refused_before_anybody_is_asked() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("text.txt"), "1 2\nnot an edge\n").unwrap();
    let ran = splinter(directory.path(), &["tao", "load", "text.txt"]);
    assert_eq!(ran.status.code(), Some(1));
    assert!(text(&ran.stderr).contains("text.txt:2: not an edge"));
    let ran = splinter(directory.path(), &["tao", "load", "no-such-file.txt"]);
    assert_eq!(ran.status.code(), Some(1));
}

#[test]
fn completions_and_manual_pages_know_every_command() {
    let directory = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let ran = splinter(directory.path(), &["completions", shell]);
        assert!(ran.status.success(), "{}", text(&ran.stderr));
        let script = text(&ran.stdout);
        assert!(["tenant", "migrate", "if-version"].iter().all(|word| script.contains(word)), "{shell}");
    }
    assert_eq!(splinter(directory.path(), &["completions", "tcsh"]).status.code(), Some(2));
    assert!(splinter(directory.path(), &["man", "pages"]).status.success());
    for page in ["splinter.1", "splinter-put.1", "splinter-cluster-migrate.1"] {
        let page = fs::read_to_string(directory.path().join("pages").join(page)).expect(page);
        assert!(page.starts_with(".ie \\n(.g"), "{page}");
    }
    fs::write(directory.path().join("file"), "").unwrap();
    assert_eq!(splinter(directory.path(), &["man", "file"]).status.code(), Some(1));
}
