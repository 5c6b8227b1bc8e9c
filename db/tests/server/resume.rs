//! Clients that resume their sessions: after a restart of the server, and while it runs.

use std::path::Path;
use std::thread;

use cluster::peer::ClusterSecret;
use control::{AdminRequest, Durability, TableId, TableOptions};
use store::{CompletionReply, FoundCompletion, FoundCompletions, RequestId};
use wire::{Body, Condition, LoggedReply, OpenRequest, Opened, Request, Status};

use super::Site;
use super::client::{Client, ControlStream, Refused};

/// What a client keeps of its session.
struct Identity {
    tenant: &'static str,
    secret: String,
    opened: Opened,
}

impl Identity {
    /// Of a fresh tenant with a table in memory.
    fn create(site: &Site, tenant: &'static str) -> (Self, Client, u32) {
        let secret = site.create_tenant(tenant);
        let mut client = site.client(tenant, &secret);
        let options = TableOptions { durability: Some(Durability::Memory), ..TableOptions::default() };
        let created = client.control.ask(&AdminRequest::TableCreate { name: "t", options });
        let table = control::decode::<TableId>(&created.expect("a fresh name")).expect("an id").id;
        (Self { tenant, secret, opened: client.opened.clone() }, client, table)
    }

    fn request(&self, first_unacknowledged: u64) -> OpenRequest<'_> {
        OpenRequest::Resume {
            tenant: self.tenant,
            secret: &self.secret,
            client_id: self.opened.client_id,
            first_unacknowledged,
            proof: self.opened.proof.expect("a proof"),
        }
    }

    fn resume(&self, site: &Site, first_unacknowledged: u64) -> Result<(ControlStream, Opened), Refused> {
        let (stream, answer) = ControlStream::open(site.server.tcp(), &self.request(first_unacknowledged))?;
        Ok((stream, Opened::decode(&answer).expect("an opened session")))
    }

    fn refusal(&self, site: &Site) -> Status {
        self.resume(site, 1).err().expect("a refusal").0
    }
}

fn restarted(site: Site, directory: &Path) -> Site {
    site.server.stop();
    Site::start(directory, 1, 2)
}

fn revoke(site: &Site, client_id: u64) {
    site.administrator().ask(&AdminRequest::SessionRevoke { client_id }).expect("an open session");
}

#[test]
fn a_client_of_an_earlier_run_gets_its_answers_or_one_execution() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 2);
    let (ann, mut client, table) = Identity::create(&site, "ann");
    let increment = Request::Increment { table, key: b"k", delta: 1 };
    for sequence in 1..=4 {
        client.control.request(sequence, &increment).expect("it is executed");
    }

    let site = restarted(site, directory.path());
    // As the log would for a durable table.
    let reply = |sequence, body: &[u8]| LoggedReply { sequence, status: Status::Ok, body: body.into() };
    let found = [reply(1, b"one"), reply(3, b"three"), reply(4, &[4; 3_000])];
    found.into_iter().for_each(|reply| {
        site.server.control().completions.recovered(ann.opened.client_id, reply, u64::MAX);
    });
    let (mut stream, opened) = ann.resume(&site, 2).expect("the client comes back");
    assert_eq!((opened.client_id, opened.next_sequence), (ann.opened.client_id, 5));
    assert_eq!(opened.proof, ann.opened.proof);
    assert_ne!(opened.token, ann.opened.token);
    assert_eq!(stream.request(3, &increment).expect("a kept answer"), b"three");
    assert_eq!(stream.request(4, &increment).expect("a kept answer"), [4; 3_000]);
    let answer = stream.request(2, &increment).expect("it was lost with its table");
    assert_eq!(answer[8..], 1_i64.to_le_bytes());
    assert_eq!(stream.request(2, &increment).expect("the same answer"), answer);
    assert_eq!(stream.request(1, &increment).expect_err("acknowledged").0, Status::Expired);
    assert_eq!(stream.request(5, &increment).expect("a new one")[8..], 2_i64.to_le_bytes());
    assert!(site.server.control().completions.is_needed(opened.client_id, 3));
    assert!(!site.server.control().completions.is_needed(opened.client_id, 1));

    // Again, from the same run: its session is open.
    let (_other, again) = ann.resume(&site, 2).expect("the session is open");
    assert_eq!((again.token, again.next_sequence), (opened.token, 6));
    let other = site.client("ann", &ann.secret);
    assert!(other.opened.client_id > opened.client_id, "ids are not given again");
    drop(stream);

    let site = restarted(site, directory.path());
    let (mut stream, third) = ann.resume(&site, 6).expect("it comes back after each restart");
    assert_eq!((third.client_id, third.next_sequence), (ann.opened.client_id, 6));
    assert_eq!(stream.request(6, &increment).expect("an empty table")[8..], 1_i64.to_le_bytes());
    revoke(&site, third.client_id);
    assert_eq!(ann.refusal(&site), Status::BadToken, "it ended while this server ran");
}

#[test]
fn a_session_is_resumed_while_it_is_open_and_never_after_its_end() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let (ann, mut client, table) = Identity::create(&site, "ann");
    let put = Request::Put { table, key: b"k", value: b"v", condition: Condition::Absent };
    client.control.request(7, &put).expect("it is executed");
    let (mut stream, opened) = ann.resume(&site, 7).expect("the session is open");
    assert_eq!((opened.token, opened.client_id), (ann.opened.token, ann.opened.client_id));
    assert_eq!(opened.next_sequence, 8);
    stream.request(7, &put).expect("a copy gets the answer of the first");
    revoke(&site, opened.client_id);
    assert_eq!(ann.refusal(&site), Status::BadToken);
    let never = Identity { opened: Opened { client_id: 1 << 40, ..ann.opened.clone() }, ..ann };
    assert_eq!(never.refusal(&site), Status::BadSecret, "nobody has its proof");
}

#[test]
fn only_the_client_resumes_its_session() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let (ann, _client, _) = Identity::create(&site, "ann");
    let (bob, _other, _) = Identity::create(&site, "bob");
    let refused = |site: &Site| {
        for place in [0, 31] {
            let mut proof = ann.opened.proof.expect("a proof");
            proof[place] ^= 1;
            let opened = Opened { proof: Some(proof), ..ann.opened.clone() };
            let wrong = Identity { opened, secret: ann.secret.clone(), ..ann };
            assert_eq!(wrong.refusal(site), Status::BadSecret);
        }
        // Another tenant with a client's id and proof; a tenant's own secret with another client's proof.
        let thief = Identity { opened: ann.opened.clone(), secret: bob.secret.clone(), ..bob };
        assert_eq!(thief.refusal(site), Status::BadSecret);
        let opened = Opened { client_id: bob.opened.client_id, ..ann.opened.clone() };
        assert_eq!(Identity { opened, secret: ann.secret.clone(), ..ann }.refusal(site), Status::BadSecret);
        let without = Identity { secret: "wrong".to_owned(), opened: ann.opened.clone(), ..ann };
        assert_eq!(without.refusal(site), Status::BadSecret);
    };
    refused(&site);
    let site = restarted(site, directory.path());
    refused(&site);
    ann.resume(&site, 1).expect("the right proof");
    site.administrator().ask(&AdminRequest::TenantDrop { name: "bob" }).expect("a tenant");
    site.create_tenant("bob");
    assert_eq!(bob.refusal(&site), Status::BadSecret, "another tenant of that name");
}

#[test]
fn wrong_proofs_are_slowed_down_like_wrong_secrets() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let (ann, _client, _) = Identity::create(&site, "ann");
    let wrong = Identity { opened: Opened { proof: Some([0; 32]), ..ann.opened.clone() }, ..ann };
    let answers: Vec<Status> = (0..200).map(|_| wrong.refusal(&site)).collect();
    assert!(answers.iter().all(|status| matches!(status, Status::BadSecret | Status::Retry)));
    assert!(answers.contains(&Status::Retry), "guessing is slow");
    let right = Identity { opened: Opened { proof: ann.opened.proof, ..wrong.opened }, ..wrong };
    right.resume(&site, 1).expect("the right proof is never slowed down");
}

#[test]
fn a_recovered_log_answers_the_clients_of_its_server_until_it_is_written_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let (ann, _client, _) = Identity::create(&site, "ann");
    let control = site.server.control();
    let tenant = control.metadata.tenant_find("ann").expect("an answer").expect("it is there").id;
    let secret = ClusterSecret(control.metadata.cluster_secret().expect("an answer"));
    let ask = |server: u32, first_unacknowledged: u64| {
        let (proof, client_id) = (secret.session_proof(server, tenant, 70_000), 70_000);
        let (tenant, secret) = (ann.tenant, &*ann.secret);
        let request = OpenRequest::Replies { tenant, secret, client_id, first_unacknowledged, proof };
        let (_, answer) = ControlStream::open(site.server.tcp(), &request).map_err(|refused| refused.0)?;
        Ok(Vec::<LoggedReply>::decode(&answer).expect("replies"))
    };
    let mut found = FoundCompletions::default();
    for (client, sequence, reply) in [
        (70_000, 4, CompletionReply::Bytes([&[Status::Ok as u8][..], &[7; 1_000]].concat().into())),
        (70_000, 2, CompletionReply::Version(9)),
        (70_001, 3, CompletionReply::Version(8)),
        // A copy by the cleaner.
        (70_000, 2, CompletionReply::Version(9)),
    ] {
        found.add(FoundCompletion { request: RequestId { client, sequence }, reply });
    }
    assert_eq!(ask(7, 1), Err(Status::Unavailable));
    let row = control.metadata.replicas_begin(7, 2, true).expect("room");
    control.recovered_replies.add(&row, found.clone(), control.clock.now_us());
    let reply = |sequence, body: &[u8]| LoggedReply { sequence, status: Status::Ok, body: body.into() };
    let [two, four] = [reply(2, &9_u64.to_le_bytes()), reply(4, &[7; 1_000])];
    assert_eq!(ask(7, 1), Ok(vec![two, four.clone()]));
    assert_eq!((ask(7, 3), ask(7, 5)), (Ok(vec![four.clone()]), Ok(vec![])));
    assert_eq!(ask(8, 1), Err(Status::Unavailable), "the proof of another server");
    // Its server has lost the log, so it resumes nobody; with the log it does.
    let lost = control.metadata.replicas_begin(7, 1, true).expect("room");
    assert_eq!(ask(7, 3), Ok(vec![four]));
    control.recovered_replies.add(&lost, found, control.clock.now_us());
    control.metadata.replicas_begin(7, 2, false).expect("room");
    assert_eq!(ask(7, 1), Err(Status::Unavailable));
}

#[test]
fn a_request_from_before_its_table_came_to_the_disk_executes_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 2);
    let (ann, mut client, table) = Identity::create(&site, "ann");
    let increment = Request::Increment { table, key: b"k", delta: 1 };
    let answers: Vec<_> =
        (1..=600).map(|sequence| client.control.request(sequence, &increment).expect("an answer")).collect();
    let durability = Durability::Written;
    client.control.ask(&AdminRequest::TableAlter { name: "t", durability }).expect("there is room");
    let alter = AdminRequest::TableAlter { name: "t", durability: Durability::Synced };
    client.control.ask(&alter).expect("both are on the disk");
    assert_eq!(client.control.request(601, &increment).expect("a new one")[8..], 601_i64.to_le_bytes());
    drop(client);

    let site = restarted(site, directory.path());
    // While the log is replayed, a client gets as many replies as it has credits.
    while !site.server.has_replayed() {
        thread::yield_now();
    }
    let (mut stream, _) = ann.resume(&site, 1).expect("the client comes back");
    for (sequence, answer) in (1..).zip(&answers) {
        assert_eq!(&stream.request(sequence, &increment).expect("a kept answer"), answer, "{sequence}");
    }
    assert_eq!(stream.request(602, &increment).expect("a new one")[8..], 602_i64.to_le_bytes());
}
