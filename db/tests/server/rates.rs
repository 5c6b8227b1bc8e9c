//! Operations a second through the whole server: what is beyond a tenant's own limit is answered so, comes again,
//! runs once, and is nobody else's business.

use wire::{
    Changes, CommitWrite, CompletionError, Condition, Request, Requester, RequesterConfig, Status, reply,
};

use super::Site;
use super::client::Client;
use super::exposition::patient_tenant;

fn limit(site: &Site, tenant: &str, per_second: Option<u64>) {
    site.limit(tenant, "operations_per_second", per_second);
}

/// A client of ann's that waits for answers no longer than this.
fn impatient(site: &Site, secret: &str, call_timeout_us: u64) -> Client {
    let config = RequesterConfig { call_timeout_us, ..RequesterConfig::default() };
    let mut ann = Client::open(site, "ann", secret).expect("the right secret");
    ann.requester = Requester::new(ann.opened.token, ann.opened.next_sequence, ann.opened.credits, config);
    ann
}

/// Gets of a key, all outstanding at once; how each ended.
fn gets(client: &mut Client, table: u32, count: u64) -> Vec<Result<Status, CompletionError>> {
    for tag in 0..count {
        assert!(client.submit(tag, &Request::Get { table, key: b"k" }), "the window is open");
    }
    let mut statuses = Vec::new();
    while (statuses.len() as u64) < count {
        client.step(&mut |_, (status, _)| statuses.push(status));
    }
    statuses
}

#[test]
fn a_tenant_beyond_its_rate_waits_and_others_are_not_held_off() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 2);
    // They send nothing twice, so that what was counted is not counted again later.
    let [(mut ann, of_ann), (mut bob, of_bob)] = ["ann", "bob"].map(|name| patient_tenant(&site, name));
    assert_eq!(gets(&mut ann, of_ann, 200), vec![Ok(Status::NotFound); 200]);
    assert_eq!(site.counter("throttled"), 0, "nobody has a limit");
    limit(&site, "ann", Some(100));
    assert_eq!(gets(&mut ann, of_ann, 60), vec![Ok(Status::NotFound); 60], "all are served in the end");
    let held_off = site.counter("throttled");
    assert!(held_off > 0);
    assert_eq!(gets(&mut bob, of_bob, 250), vec![Ok(Status::NotFound); 250]);
    assert_eq!(site.counter("throttled"), held_off, "bob has no limit");
    limit(&site, "ann", None);
    assert_eq!(gets(&mut ann, of_ann, 250), vec![Ok(Status::NotFound); 250]);
    assert_eq!(site.counter("throttled"), held_off, "the limit has ended");
}

#[test]
fn what_is_held_off_until_its_deadline_says_why() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let secret = site.create_tenant("ann");
    let table = site.client("ann", &secret).create_table("t");
    limit(&site, "ann", Some(1));
    // On a machine so slow that nothing is answered by then, with more time; no more than what is told to them to wait.
    let says_why = |call_timeout_us| {
        let mut ann = impatient(&site, &secret, call_timeout_us);
        let statuses = gets(&mut ann, table, 100);
        statuses.iter().filter(|status| **status == Err(CompletionError::Throttled)).count() > 90
    };
    assert!([300_000, 600_000, 900_000].into_iter().any(says_why));
}

#[test]
fn each_write_of_a_commit_is_an_operation() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let secret = site.create_tenant("ann");
    let table = site.client("ann", &secret).create_table("t");
    limit(&site, "ann", Some(1));
    let mut ann = impatient(&site, &secret, 300_000);
    let keys: Vec<[u8; 1]> = (0..60).map(|key| [key]).collect();
    let write = |key| CommitWrite { table, key, value: Some(b"value"), ttl_ms: None };
    let writes: Vec<CommitWrite<'_>> = keys.iter().map(|key| write(key)).collect();
    let commit = Request::Commit { changes: Changes::listed(&[], &[], &writes) };
    let mut ended = Vec::new();
    while !ended.contains(&Ok(Status::Ok)) {
        assert!(ann.submit(0, &commit), "the window is open");
        let before = ended.len();
        while ended.len() == before {
            ann.step(&mut |_, (status, _)| ended.push(status));
        }
    }
    // It would be admitted a second later, were the commit one operation.
    for _ in 0..6 {
        assert_eq!(gets(&mut ann, table, 1), [Err(CompletionError::Throttled)]);
    }
}

#[test]
fn what_is_held_off_executes_once_and_a_copy_of_what_ran_gets_its_answer() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let (mut ann, table) = site.tenant_with_table("ann");
    limit(&site, "ann", Some(100));
    let increment = Request::Increment { table, key: b"sum", delta: 1 };
    for tag in 0..40 {
        assert!(ann.submit(tag, &increment), "the window is open");
    }
    let (mut ended, mut last) = (0, Vec::new());
    while ended < 40 {
        ann.step(&mut |tag, (status, body)| {
            assert_eq!(status, Ok(Status::Ok));
            ended += 1;
            if tag == 39 {
                last = body;
            }
        });
    }
    limit(&site, "ann", None);
    let get = ann.control.request(ann.requester.first_unacknowledged(), &Request::Get { table, key: b"sum" });
    let sum = 40_i64.to_le_bytes();
    assert_eq!(reply::Object::decode(&get.expect("an object")).expect("an object").value, &sum[..]);
    assert!(site.counter("throttled") > 0);
    limit(&site, "ann", Some(1));
    // Uses up what there is, so that the copy is beyond the rate.
    while ann.control.request(ann.requester.first_unacknowledged(), &Request::Ping).is_ok() {}
    assert_eq!(ann.control.request(40, &increment).expect("the stored reply"), last);
}

#[test]
fn a_stream_is_held_off_by_the_same_limit() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let (mut ann, table) = site.tenant_with_table("ann");
    limit(&site, "ann", Some(1));
    let put = Request::Put { table, key: b"k", value: b"v", condition: Condition::Always };
    let refused = (1..1_000).find_map(|sequence| ann.control.request(sequence, &put).err());
    let (status, body) = refused.expect("two in a second are too many");
    assert_eq!(status, Status::Throttled);
    let throttled = reply::Throttled::decode(&body).expect("a time and a name");
    assert_eq!(throttled.limit, b"operations_per_second");
    assert!(throttled.after_us > 0);
}
