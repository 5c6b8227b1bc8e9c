//! The main job: a graph is loaded, TAO is installed from source, and the answers that come back in one
//! round trip are those that the edge list itself gives.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use client::Client;
use fastrand::Rng;
use tao::entry::Run;
use tao::key::{AssocType, ListId, ObjectId};
use tao::message::{Call, FriendsOfFriends, decode_count};
use tests::server::{Server, Settings, Tenant};

/// The association type that `splinter tao load` and the demo use for friends.
const FRIEND: AssocType = AssocType(1);

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests lies in the root")
}

/// A real graph where there is one, else a generated one.
fn graph(folder: &Path) -> PathBuf {
    let real = root().join("../shared/data/facebook_combined.txt");
    if real.exists() {
        return real;
    }
    let path = folder.join("graph.txt");
    let mut random = Rng::with_seed(5);
    let edges: BTreeSet<(u64, u64)> = (0..40_000)
        .map(|_| (random.u64(0..2_000), random.u64(0..2_000)))
        .filter(|(left, right)| left < right)
        .collect();
    let lines: Vec<String> = edges.iter().map(|(left, right)| format!("{left} {right}")).collect();
    fs::write(&path, lines.join("\n")).unwrap();
    path
}

/// The neighbours of every node, as the file says.
fn neighbours(path: &Path) -> BTreeMap<u64, BTreeSet<u64>> {
    let mut found: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    let text = fs::read_to_string(path).unwrap();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let mut ends = line.split_whitespace().map(|end| end.parse::<u64>().unwrap());
        let (left, right) = (ends.next().unwrap(), ends.next().unwrap());
        found.entry(left).or_default().insert(right);
        found.entry(right).or_default().insert(left);
    }
    found
}

/// Runs the `splinter` command as the tenant.
fn splinter(server: &Server, tenant: &Tenant, arguments: &[&str]) -> Output {
    let output = server.command(tenant).args(arguments).current_dir(root()).output();
    let output = output.expect("the command runs");
    let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "splinter {arguments:?}: {out}\n{error}");
    output
}

fn ask(client: &mut Client, table: u32, call: &Call<'_>) -> Vec<u8> {
    let (mut key, mut arguments) = (Vec::new(), Vec::new());
    call.encode(&mut key, &mut arguments);
    client.invoke(&format!("tao.{}", call.function()), table, &key, &arguments).expect("an answer")
}

#[test]
fn answers_in_one_round_trip_are_those_of_the_edge_list() {
    let server = Server::start_with(Settings { memory: "1GiB".into(), ..Settings::default() });
    let tenant = server.tenant("acme");
    let path = graph(server.directory());
    let expected = neighbours(&path);
    splinter(&server, &tenant, &["ext", "install", "ext/tao"]);
    splinter(&server, &tenant, &["table", "create", "graph"]);
    splinter(&server, &tenant, &["tao", "load", path.to_str().unwrap(), "--table", "graph"]);

    let mut client = server.client(&tenant);
    let table = client.table_open("graph").unwrap();
    let mut random = Rng::with_seed(9);
    let nodes: Vec<u64> = expected.keys().copied().collect();
    for node in (0..200).map(|_| nodes[random.usize(0..nodes.len())]) {
        let list = ListId { id1: ObjectId(node), atype: FRIEND };
        let count = ask(&mut client, table, &Call::AssocCount(list));
        assert_eq!(decode_count(&count), Some(expected[&node].len() as u64), "friends of {node}");
        let range = ask(&mut client, table, &Call::AssocRange { list, position: 0, limit: 6_000 });
        assert_eq!(ends(&range), expected[&node], "friends of {node}");
        assert!(!ask(&mut client, table, &Call::ObjGet(ObjectId(node))).is_empty());
    }
    for node in (0..20).map(|_| nodes[random.usize(0..nodes.len())]) {
        friends_of_friends_are_counted(&mut client, table, &expected, node);
    }
}

/// The other ends of a run of associations.
fn ends(run: &[u8]) -> BTreeSet<u64> {
    let mut rest = Run::new(run);
    let mut found = BTreeSet::new();
    while let Some(entry) = rest.take_first() {
        found.insert(entry.id2.0);
    }
    found
}

fn friends_of_friends_are_counted(
    client: &mut Client,
    table: u32,
    expected: &BTreeMap<u64, BTreeSet<u64>>,
    node: u64,
) {
    let list = ListId { id1: ObjectId(node), atype: FRIEND };
    let call = Call::FriendsOfFriends { list, limit: 10, visits: 0, objects: false };
    let reply = ask(client, table, &call);
    let answer = FriendsOfFriends::decode(&reply).expect("an answer");
    let mut paths: BTreeMap<u64, u32> = BTreeMap::new();
    for friend in &expected[&node] {
        for end in expected[friend].iter().filter(|end| **end != node && !expected[&node].contains(end)) {
            *paths.entry(*end).or_default() += 1;
        }
    }
    assert!(answer.complete, "every edge around {node} was visited");
    assert_eq!(answer.distinct as usize, paths.len(), "friends of friends of {node}");
    let mut ranked: Vec<(u64, u32)> = paths.into_iter().collect();
    ranked.sort_by_key(|(id, count)| (std::cmp::Reverse(*count), *id));
    ranked.truncate(10);
    let answered: Vec<(u64, u32)> = answer.ranked.iter().map(|(id, count)| (id.0, *count)).collect();
    assert_eq!(answered, ranked, "friends of friends of {node}");
}

#[test]
fn the_demo_finds_equal_answers_three_ways() {
    let server = Server::start_with(Settings { memory: "1GiB".into(), ..Settings::default() });
    let tenant = server.tenant("acme");
    let path = graph(server.directory());
    splinter(&server, &tenant, &["ext", "install", "ext/tao"]);
    splinter(&server, &tenant, &["ext", "install", "ext/aggregate"]);
    let json = server.directory().join("demo.json");
    let arguments = ["demo", "--quick", "--graph", path.to_str().unwrap(), "--json", json.to_str().unwrap()];
    splinter(&server, &tenant, &arguments);
    let report: serde_json::Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(report["answers_equal"], true);
    assert!(report["questions"].as_array().is_some_and(|questions| questions.len() >= 4), "{report}");
}

#[test]
fn a_load_without_the_extension_makes_no_table() {
    let server = Server::start();
    let tenant = server.tenant("acme");
    let path = graph(server.directory());
    let path = path.to_str().expect("a path of letters");
    for arguments in [&["tao", "load", path][..], &["demo", "--quick", "--graph", path]] {
        let refused = server.command(&tenant).args(arguments).current_dir(root()).output().expect("it runs");
        assert_eq!(refused.status.code(), Some(3), "{arguments:?}");
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(said.contains("splinter ext install ext/tao"), "{said}");
    }
    assert!(server.client(&tenant).table_list().expect("tables").is_empty());
}
