//! What holds of the metadata when several servers change it, wherever it is kept.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use cluster::metadata::{Metadata, MetadataError, PartRow, ServerRow, ServerRun};
use cluster::records::{
    Committed, Condition, HeldLease, KeySpan, LeaseId, Query, Reading, RecordChange, Records, RecordsError,
    Revision, Watch,
};
use cluster::registration::{Kept, Registration};
use cluster::secret::SecretHash;
use control::{Actor, Placement, Right, TableOptions};
use wire::TenantId;

use super::place::Place;

const SECRET: SecretHash = SecretHash { salt: [1; 16], digest: [2; 32] };

/// Does something `times` times in each of two threads of two servers, all at once.
fn crowd<T: Send>(servers: &[Metadata], times: usize, act: impl Fn(&Metadata, usize) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let act = &act;
        let threads: Vec<_> = (0..2 * servers.len())
            .map(|number| {
                let server = &servers[number % servers.len()];
                scope.spawn(move || {
                    (0..times).map(|time| act(server, number * times + time)).collect::<Vec<T>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    })
}

pub fn numbers_of_two_who_change_at_once_are_given_once(place: &Place) {
    let servers = [place.metadata(), place.metadata()];
    let ann = servers[0].tenant_create("ann", SECRET).expect("room");
    let act = |server: &Metadata, number: usize| {
        server
            .audit_append(Some(ann), 5, Actor::Server, format!("act {number}"), 0)
            .expect("it is made in the end")
    };
    let given = crowd(&servers, 10, act);
    assert_eq!(given.len(), 40);
    let given: BTreeSet<u64> = given.into_iter().collect();
    assert_eq!(given, (1..=40).collect(), "none twice and none left out");
    let acts = servers[1].audit_read(Some(ann), 0, 100).expect("records answer");
    assert_eq!(acts.iter().map(|act| act.act.as_str()).collect::<BTreeSet<_>>().len(), 40);
}

pub fn a_limit_holds_against_two_who_change_at_once(place: &Place) {
    let servers = [place.metadata(), place.metadata()];
    let ann = servers[0].tenant_create("ann", SECRET).expect("room");
    let most = cluster::limits::EXTENSIONS_PER_TENANT_MAX;
    for number in 0..most - 3 {
        let name = format!("first{number}");
        servers[number % 2].extension_install(ann, &name, Placement::Current, 5, b"x").expect("room");
    }
    let installed = crowd(&servers, 3, |server, number| {
        server.extension_install(ann, &format!("then{number}"), Placement::Current, 5, b"x")
    });
    let (given, refused): (Vec<_>, Vec<_>) = installed.into_iter().partition(Result::is_ok);
    assert!(refused.iter().all(|error| *error == Err(MetadataError::LimitExceeded)), "{refused:?}");
    assert_eq!((given.len(), refused.len()), (3, 9));
    assert_eq!(servers[1].extensions_of(ann).expect("records answer").len(), most);
}

pub fn a_tenant_that_another_one_dropped_gets_nothing_more(place: &Place) {
    let (one, other) = (place.metadata(), place.metadata());
    let ann = one.tenant_create("ann", SECRET).expect("room");
    let bob = other.tenant_create("bob", SECRET).expect("room");
    assert_eq!(other.tenant_create("ann", SECRET), Err(MetadataError::AlreadyExists));
    let ordered = TableOptions { ordered: true, ..TableOptions::default() };
    one.table_create(ann, "t", ordered).expect("room");
    other.table_create(bob, "t", TableOptions::default()).expect("room");
    other.tenant_drop("ann").expect("a tenant");
    assert_eq!(one.tenant_find("ann"), Ok(None));
    assert_eq!(one.table_create(ann, "u", ordered), Err(MetadataError::NotFound));
    let installed = one.extension_install(ann, "e", Placement::Current, 5, b"x");
    assert_eq!(installed, Err(MetadataError::NotFound));
    assert_eq!(one.grant_create(bob, "t", ann, Right::Read, 5), Err(MetadataError::NotFound));
    let tables = one.tables().expect("records answer");
    assert!(tables.len() == 1 && tables[0].tenant == bob);
    assert!(one.tenant_create("ann", SECRET).expect("the name is free") > bob);
}

pub fn durability_changes_between_written_and_synced_alone(place: &Place) {
    use control::Durability::{Memory, Synced, Written};
    let (one, other) = (place.metadata(), place.metadata());
    let ann = one.tenant_create("ann", SECRET).expect("room");
    let with = |durability| TableOptions { durability, ..TableOptions::default() };
    for (name, durability) in [("disk", Some(Synced)), ("memory", Some(Memory)), ("earlier", None)] {
        one.table_create(ann, name, with(durability)).expect("room");
    }
    let stored = |name: &str| {
        let rows = other.tables().expect("records answer");
        rows.iter().find(|row| row.name == name).expect("it is there").durability()
    };
    assert_eq!([stored("disk"), stored("memory"), stored("earlier")], [Synced, Memory, Memory]);
    for durability in [Written, Written, Synced] {
        other.table_alter(ann, "disk", durability).expect("both are on the disk");
        assert_eq!(stored("disk"), durability);
    }
    let refused = [("disk", Memory), ("memory", Written), ("memory", Synced), ("earlier", Synced)];
    for (name, durability) in refused {
        let before = stored(name);
        assert_eq!(one.table_alter(ann, name, durability), Err(MetadataError::DurabilityFixed), "{name}");
        assert_eq!(stored(name), before);
    }
    one.table_alter(ann, "earlier", Memory).expect("it is in memory");
    let (numbers, id) = ([one.table_number(), other.table_number()], one.tables().expect("records answer"));
    let [Ok(first), Ok(second)] = numbers else { panic!("room") };
    let id = id.iter().find(|row| row.name == "memory").expect("it is there").id;
    assert!(first != second && first.min(second) > id, "numbers are used once");
    one.table_move(ann, ("memory", id), Synced, Some(second)).expect("it is there");
    assert_eq!(stored("memory"), Synced);
    one.table_move(ann, ("memory", id), Memory, None).expect("it is there");
    assert_eq!(stored("memory"), Memory);
    assert_eq!(one.table_move(ann, ("memory", first), Synced, Some(first)), Err(MetadataError::NotFound));
    assert_eq!(one.table_alter(ann, "none", Synced), Err(MetadataError::NotFound));
    other.tenant_drop("ann").expect("a tenant");
    assert_eq!(one.table_alter(ann, "disk", Written), Err(MetadataError::NotFound));
}

pub fn what_one_installs_the_other_one_reads(place: &Place) {
    let (one, other) = (place.metadata(), place.metadata());
    let ann = one.tenant_create("ann", SECRET).expect("room");
    let package: Vec<u8> = (0..1_900_000_u32).map(|number| (number >> 3) as u8).collect();
    let first = one.extension_install(ann, "tao", Placement::Current, 5, &package).expect("room");
    let second = other.extension_install(ann, "tao", Placement::Current, 6, b"new").expect("room");
    assert_eq!((second.id, second.newest), (first.id, 2));
    let stored = other.extension_version(ann, "tao", 1).expect("kept");
    assert!(stored.package == package && stored.installed_ms == 5);
    let removed = other.extension_change(ann, "tao", |state| state.remove(1)).expect("kept");
    assert_eq!(removed.state.kept, [2]);
    assert_eq!(one.extension_find(ann, "tao"), Ok(Some(removed)));
    assert_eq!(one.extension_version(ann, "tao", 1), Err(MetadataError::NotFound));
    assert_eq!(one.extension_version(ann, "tao", 2).expect("kept").package, b"new");
}

pub fn grants_to_a_tenant_that_is_gone_are_swept_however_many(place: &Place) {
    let metadata = place.metadata();
    let ann = metadata.tenant_create("ann", SECRET).expect("room");
    metadata.tenant_create("bob", SECRET).expect("room");
    let eve = metadata.tenant_create("eve", SECRET).expect("room");
    let bob = metadata.tenant_find("bob").expect("records answer").expect("a tenant").id;
    let most = 2 * cluster::limits::GRANTS_SWEPT_AT_ONCE + 3;
    for number in 0..most {
        let name = format!("t{number}");
        metadata.table_create(ann, &name, TableOptions::default()).expect("room");
        metadata.grant_create(ann, &name, bob, Right::Read, 5).expect("room");
    }
    let left = metadata.grant_create(ann, "t0", eve, Right::Write, 5).expect("room");
    assert_eq!(metadata.tenant_drop("bob"), Ok(bob));
    assert_eq!(metadata.grants().expect("records answer"), [left]);
    let kept = metadata.records().read(&[Query::all(KeySpan::prefix("catalog/grants/"))], None);
    assert_eq!(kept.expect("records answer").found[0].len(), 1);
}

pub fn parts_of_a_log_are_recorded_however_many(place: &Place) {
    let metadata = place.metadata();
    let many = 2 * cluster::limits::LOG_PARTS_CHANGED_AT_ONCE as u32 + 3;
    let part = |id: u32| {
        let made_for = (u64::from(id) << 32, u64::MAX);
        PartRow { id, tenant: TenantId(1), table: 7, made_for, kept: vec![made_for] }
    };
    let parts = |ids: Range<u32>| ids.map(part).collect::<Vec<_>>();
    metadata.log_part_add(2, &part(5)).expect("room");
    for ids in [0..many, 0..many, many / 2..2 * many, 3..4, 0..0] {
        metadata.log_parts_are(1, &parts(ids.clone())).expect("room");
        assert_eq!(metadata.log_parts(1), Ok(parts(ids)));
    }
    assert_eq!(metadata.log_parts(2), Ok(vec![part(5)]), "of another server");
}

pub fn acts_are_read_by_all_and_by_their_tenant(place: &Place) {
    let (one, other) = (place.metadata(), place.metadata());
    let tenant = |number: u64| (!number.is_multiple_of(3)).then_some(TenantId((number % 3) as u32));
    for number in 1..=90 {
        let actor = Actor::Tenant { name: "ann".to_owned(), client_id: number, peer: "[::1]:7".to_owned() };
        let given = one.audit_append(tenant(number), number, actor, format!("act {number}"), 7);
        assert_eq!(given, Ok(number));
    }
    let read = |of, after, count| -> Vec<u64> {
        let acts = other.audit_read(of, after, count).expect("records answer");
        assert!(acts.iter().all(|act| act.at_ms == act.sequence && act.outcome == 7));
        acts.iter().map(|act| act.sequence).collect()
    };
    assert_eq!(read(None, 0, 1_000), (1..=90).collect::<Vec<_>>());
    assert_eq!(read(None, 0, 2), [89, 90]);
    assert_eq!(read(None, 80, 3), [81, 82, 83]);
    assert_eq!(read(Some(TenantId(1)), 0, 3), [82, 85, 88]);
    assert_eq!(read(Some(TenantId(2)), 40, 2), [41, 44]);
    assert_eq!(read(Some(TenantId(1)), 0, 1_000).len(), 30);
}

pub fn a_server_that_was_started_again_takes_its_registration_over(place: &Place) {
    let (before, after) = (place.metadata(), place.metadata());
    let tcp = ([10, 0, 0, 1], 7000).into();
    let start = |metadata: &Metadata| {
        let ServerRun { server: id, start } = metadata.member_start(1, tcp, false).expect("room");
        let version = "1".to_owned();
        let view = u64::from(start) << 32;
        let row = ServerRow {
            id,
            start,
            tcp,
            frame_ports: vec![1],
            view,
            started_ms: 1,
            version,
            backup_host: None,
        };
        (view, Registration::new(row))
    };
    let registered = || -> Vec<(u32, u64)> {
        let rows = after.servers().expect("records answer");
        rows.iter().map(|row| (row.start, row.view)).collect()
    };
    let (view, mut first) = start(&before);
    assert_eq!(first.keep(&before, view, |_| ()), Ok(Kept::Anew));
    let lease = first.held().expect("it is registered").lease;
    let (later, mut second) = start(&after);
    assert_eq!(second.keep(&after, later, |_| ()), Ok(Kept::Anew));
    before.records().lease_keep(lease).expect("it was taken over before its lease was over");
    assert_eq!(registered(), [(2, later)]);
    // As of two processes with copies of one data directory: the earlier one learns of it, and changes nothing.
    assert_eq!(first.keep(&before, view + 1, |_| ()), Err(MetadataError::AlreadyExists));
    assert!(first.held().is_none());
    assert_eq!(first.keep(&before, view + 1, |_| ()), Err(MetadataError::AlreadyExists));
    assert_eq!((second.keep(&after, later + 1, |_| ()), registered()), (Ok(Kept::On), vec![(2, later + 1)]));
    second.end(&after).expect("records answer");
    assert_eq!(registered(), []);
}

/// Records that others always contradict, once they are told to.
struct Contradicted(Arc<dyn Records>, Arc<AtomicBool>);

impl Records for Contradicted {
    fn is_shared(&self) -> bool {
        true
    }
    fn read(&self, queries: &[Query], at: Option<Revision>) -> Result<Reading, RecordsError> {
        self.0.read(queries, at)
    }
    fn commit(&self, conditions: &[Condition], changes: &[RecordChange]) -> Result<Committed, RecordsError> {
        match self.1.load(Ordering::Relaxed) {
            true => Ok(Committed::Conflict),
            false => self.0.commit(conditions, changes),
        }
    }
    fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, RecordsError> {
        self.0.watch(prefix, after)
    }
    fn lease_grant(&self, ttl: Duration) -> Result<HeldLease, RecordsError> {
        self.0.lease_grant(ttl)
    }
    fn lease_keep(&self, lease: LeaseId) -> Result<HeldLease, RecordsError> {
        self.0.lease_keep(lease)
    }
    fn lease_revoke(&self, lease: LeaseId) -> Result<(), RecordsError> {
        self.0.lease_revoke(lease)
    }
}

#[test]
fn what_others_contradict_for_ever_is_refused_in_the_end() {
    let (place, always) = (Place::file(), Arc::new(AtomicBool::new(false)));
    let records = Contradicted(place.client(), Arc::clone(&always));
    let metadata = Metadata::over(Box::new(records)).expect("fresh records");
    always.store(true, Ordering::Relaxed);
    assert_eq!(metadata.tenant_create("ann", SECRET), Err(MetadataError::Conflict));
    always.store(false, Ordering::Relaxed);
    assert_eq!(metadata.tenant_create("ann", SECRET), Ok(TenantId(1)));
}
