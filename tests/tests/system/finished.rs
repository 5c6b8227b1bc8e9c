//! Extensions in other languages: a module in C, installed by the command, survives a restart, is described as what it
//! is, and reaches other servers of the cluster.

use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;
use tests::cluster::Cluster;
use tests::patience::comes;
use tests::server::{Server, Settings, Tenant};

/// The folder of `get` in C as its script builds it, or `None` where there is no clang, with a message.
fn get_in_c() -> Option<TempDir> {
    if Command::new("clang").arg("--version").output().is_err() {
        eprintln!(
            "SKIPPED: there is no clang (scripts/setup installs it), so nothing of ext/get_c is tested"
        );
        return None;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ext/get_c/build.sh");
    let out = TempDir::new().expect("a folder");
    let built = Command::new("sh").arg(script).arg(out.path().join("get_c")).output().expect("a shell");
    assert!(built.status.success(), "{}", said(&built));
    Some(out)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

fn splinter(server: &Server, tenant: &Tenant, line: &[&str]) -> Output {
    server.command(tenant).args(line).output().expect("the program runs")
}

fn done(server: &Server, tenant: &Tenant, line: &[&str]) -> String {
    let output = splinter(server, tenant, line);
    assert!(output.status.success(), "splinter {line:?}: {}", said(&output));
    said(&output)
}

#[test]
fn a_module_in_c_is_installed_described_invoked_and_there_again_after_a_restart() {
    let Some(built) = get_in_c() else { return };
    let module = built.path().join("get_c/module.wasm");
    let module = module.to_str().expect("a path of ASCII");
    let mut server = Server::start();
    let acme = server.tenant("acme");
    let checked = done(&server, &acme, &["ext", "check", module]);
    assert!(checked.contains("read  get\n") && checked.contains("the source was not checked"), "{checked}");
    let installed = done(&server, &acme, &["ext", "install", module]);
    assert!(installed.contains("installed get_c@1"), "{installed}");
    assert!(installed.contains("module only: the source was not checked"), "{installed}");
    done(&server, &acme, &["table", "create", "data"]);
    for restarts in [false, true] {
        if restarts {
            server.stop();
            server.restart();
            done(&server, &acme, &["table", "list"]);
        }
        done(&server, &acme, &["put", "data", "key", "value"]);
        let answer = done(&server, &acme, &["invoke", "get_c.get", "--table", "data", "--key", "key"]);
        assert_eq!(answer.trim_end(), "value");
        let absent = splinter(&server, &acme, &["invoke", "get_c.get", "--table", "data", "--key", "none"]);
        assert!(!absent.status.success() && said(&absent).contains("no such object"), "{}", said(&absent));
        let described = done(&server, &acme, &["ext", "describe", "get_c"]);
        assert!(described.contains("version 1: module only: the source was not checked"), "{described}");
        assert!(described.contains("Replies with the value under the key"), "{described}");
    }
}

#[test]
fn a_module_that_no_server_runs_is_refused_with_the_reason() {
    let server = Server::start();
    let acme = server.tenant("acme");
    let place = TempDir::new().expect("a folder");
    let folder = place.path().join("f");
    std::fs::create_dir(&folder).expect("a folder");
    let list = "border = 1\n[[function]]\nname = \"f\"\nmode = \"read\"\n";
    std::fs::write(folder.join("functions.toml"), list).expect("a list");
    // A module with nothing in it.
    std::fs::write(folder.join("module.wasm"), b"\0asm\x01\0\0\0").expect("a module");
    let path = folder.to_str().expect("a path of ASCII");
    for line in [&["ext", "check", path][..], &["ext", "install", path]] {
        let refused = splinter(&server, &acme, line);
        let text = said(&refused);
        assert!(
            !refused.status.success() && text.contains("module.wasm: the module has no memory"),
            "{text}"
        );
        assert!(text.contains("docs/modules.md"), "{text}");
    }
}

#[test]
fn a_module_that_one_server_got_answers_at_another() {
    let Some(built) = get_in_c() else { return };
    let cluster = Cluster::start(2, &Settings { memory: "192MiB".into(), ..Settings::default() });
    let acme = cluster.servers[0].tenant("acme");
    comes("both servers know the tenant", || {
        let tables = |server: &Server| splinter(server, &acme, &["table", "list"]).status.success();
        cluster.servers.iter().all(tables).then_some(())
    });
    let [first, second] = &cluster.servers[..] else { panic!("two servers") };
    let path = built.path().join("get_c");
    let path = path.to_str().expect("a path of ASCII");
    done(first, &acme, &["ext", "install", path, "--name", "other"]);
    done(first, &acme, &["table", "create", "data", "--tablets", "2"]);
    for number in 0..20 {
        let key = format!("key-{number}");
        done(first, &acme, &["put", "data", &key, &key]);
        let answer = comes("an answer", || {
            let output = splinter(second, &acme, &["invoke", "other.get", "--table", "data", "--key", &key]);
            output.status.success().then(|| said(&output))
        });
        assert_eq!(answer.trim_end(), key);
    }
    let described = comes("the description at the other", || {
        let output = splinter(second, &acme, &["ext", "describe", "other"]);
        output.status.success().then(|| said(&output))
    });
    assert!(described.contains("module only"), "{described}");
}
