//! Copies of one request at workers that know different versions of its extension.

use std::sync::Arc;

use wire::limits::ARGUMENTS_BYTES_MAX;
use wire::{Request, Status, TenantId};

use super::{run, start};
use crate::extension::ActiveVersions;
use crate::extension::invocation::Invocations;
use crate::extension::native::Run;
use crate::extension::tests::world::{Lent, TABLE, World, function};
use crate::extension::{CallMode, Extension};
use crate::session::{Origin, Route, Session, StreamAnswer};
use crate::sync::oneshot::{Receiver, Sender, oneshot};
use crate::tenant::account::Account;
use crate::view::catalog::WorkerCatalog;
use crate::view::change::Change;
use crate::worker::outgoing::Outgoing;
use crate::worker::ports::Exits;
use crate::worker::prefetch::locate;
use crate::worker::replies::ReplyPlace;

const KEY: &[u8] = b"key";

function!(writes_late, |db, args, reply| {
    db.yield_now().await;
    db.increment(args.table(), args.key(), 1).await?;
    reply.write(b"written")
});

function!(reads_late, |db, args, reply| {
    db.yield_now().await;
    reply.write(b"read")
});

/// No frame leaves: answers go to streams.
struct NoExit;

impl Exits for NoExit {
    fn send(&mut self, _: u16, _: &mut net::Outbox) -> std::io::Result<usize> {
        unreachable!("answers go to streams")
    }
}

/// The destination of the answer to one copy.
struct Place(Sender<StreamAnswer>);

impl ReplyPlace for Place {
    fn reply(&mut self, status: Status, body_bytes: usize, fill: impl FnOnce(&mut [u8])) {
        let mut body = vec![0; body_bytes];
        fill(&mut body);
        self.0.send(StreamAnswer { status, body });
    }

    fn shows_anything(&self) {}

    fn route(&self) -> Route {
        Route::Stream(self.0.clone(), 0)
    }
}

/// Two workers by turns on one thread, which share a store and the invocations, and hear of changes at different times.
struct Workers {
    lent: Lent,
    catalogs: [WorkerCatalog; 2],
    invocations: Invocations<Origin>,
    outgoing: Outgoing,
    session: Arc<Session>,
}

impl Workers {
    fn new() -> Self {
        let World { lent, .. } = World::new();
        let catalogs = [WorkerCatalog::under(1), WorkerCatalog::under(1)];
        let session = Arc::new(Session::new(7, 1, Account::native(TenantId(1)), 0));
        let invocations = Invocations::new().expect("stacks");
        Self { lent, catalogs, invocations, outgoing: Outgoing::new(1_472, 1), session }
    }

    /// Tells a worker of an extension with one function.
    fn install(&mut self, worker: usize, function: Run, mode: CallMode) -> u32 {
        let extension: Arc<Extension> = World::extension(function, mode);
        let id = extension.id;
        self.catalogs[worker].apply(Change::ExtensionSettled(Arc::new(ActiveVersions::of(extension))));
        id
    }

    /// A copy of the request arrives at a worker.
    fn arrive(&mut self, worker: usize, extension: u32) -> Receiver<StreamAnswer> {
        self.arrive_with(worker, extension, ("function", TABLE), b"")
    }

    fn arrive_with(
        &mut self,
        worker: usize,
        extension: u32,
        (function, table): (&str, u32),
        arguments: &[u8],
    ) -> Receiver<StreamAnswer> {
        let (sender, answered) = oneshot();
        let pin = self.lent.core.pin();
        let environment = self.lent.environment(&pin);
        let function = wire::function_hash(function);
        let request = Request::Invoke { extension, version: 0, function, table, key: KEY, arguments };
        let located = locate(&environment, &self.session, &request);
        let (catalog, invocations) = (&self.catalogs[worker], &mut self.invocations);
        let caller = (&self.session, 1);
        start(&environment, catalog, invocations, caller, (&request, located), &mut Place(sender));
        answered
    }

    /// Lets everything that was started end.
    fn run(&mut self) {
        while self.invocations.live() > 0 {
            let pin = self.lent.core.pin();
            let environment = self.lent.environment(&pin);
            run(&environment, &mut self.invocations, &mut NoExit, &mut self.outgoing);
        }
    }

    /// Returns how often the function has written.
    fn written(&self) -> u64 {
        let (pin, entry) = (self.lent.core.pin(), self.lent.tables.get(TenantId(1), TABLE).expect("a table"));
        let found = pin.get(&entry.parts.held()[0], store::hash(KEY), KEY);
        found.map_or(0, |object| u64::from_le_bytes(object.value().try_into().expect("a number")))
    }
}

fn status(answered: &Receiver<StreamAnswer>) -> Option<Status> {
    answered.try_receive().ok().map(|answer| answer.status)
}

/// Returns the statuses of a copy of a write that arrives after `change` while the original is running, of the
/// original, and of a copy that arrives after the end.
fn copies_around(change: impl FnOnce(&mut Workers, u32)) -> [Option<Status>; 3] {
    let mut workers = Workers::new();
    let extension = workers.install(0, writes_late, CallMode::Write);
    let first = workers.arrive(0, extension);
    change(&mut workers, extension);
    let early = workers.arrive(0, extension);
    workers.run();
    let late = workers.arrive(0, extension);
    assert_eq!(workers.written(), 1);
    [&early, &first, &late].map(status)
}

/// A copy gets no answer but the one of the first.
const ONE_ANSWER: [Option<Status>; 3] = [None, Some(Status::Ok), Some(Status::Ok)];

#[test]
fn a_copy_of_a_write_that_runs_gets_no_answer_when_the_extension_is_removed() {
    let removed = copies_around(|workers, extension| {
        workers.catalogs[0].apply(Change::ExtensionRemoved(extension));
    });
    assert_eq!(removed, ONE_ANSWER);
}

#[test]
fn a_copy_of_a_write_that_runs_gets_no_answer_when_the_function_reads_from_now_on() {
    let changed = copies_around(|workers, _| {
        workers.install(0, reads_late, CallMode::Read);
    });
    assert_eq!(changed, ONE_ANSWER);
}

#[test]
fn a_copy_of_a_write_that_runs_gets_no_answer_when_the_function_or_the_table_is_unknown() {
    let mut workers = Workers::new();
    let extension = workers.install(0, writes_late, CallMode::Write);
    let first = workers.arrive(0, extension);
    for unknown in [("other", TABLE), ("function", TABLE + 1_000)] {
        assert_eq!(status(&workers.arrive_with(0, extension, unknown, b"")), None);
    }
    workers.run();
    for unknown in [("other", TABLE), ("function", TABLE + 1_000)] {
        assert_eq!(status(&workers.arrive_with(0, extension, unknown, b"")), Some(Status::Ok));
    }
    assert_eq!((status(&first), workers.written()), (Some(Status::Ok), 1));
}

#[test]
fn what_was_refused_for_good_is_not_executed_by_a_worker_that_has_still_to_hear_why() {
    let mut workers = Workers::new();
    let extension = workers.install(1, writes_late, CallMode::Write);
    let refused = workers.arrive(0, extension);
    let lagging = workers.arrive(1, extension);
    workers.run();
    assert_eq!([&refused, &lagging].map(status), [Some(Status::UnknownExtension); 2]);
    assert_eq!(workers.written(), 0);
}

#[test]
fn what_could_not_be_started_for_good_is_not_started_by_a_copy() {
    let mut workers = Workers::new();
    let extension = workers.install(0, writes_late, CallMode::Write);
    let too_large = vec![0; ARGUMENTS_BYTES_MAX + 1];
    let refused = workers.arrive_with(0, extension, ("function", TABLE), &too_large);
    let copy = workers.arrive(0, extension);
    workers.run();
    assert_eq!([&refused, &copy].map(status), [Some(Status::ArgumentsTooLarge); 2]);
    assert_eq!(workers.written(), 0);
}

#[test]
fn of_a_request_that_was_begun_as_a_read_one_copy_is_executed_as_a_write_at_most() {
    let mut workers = Workers::new();
    let extension = workers.install(0, reads_late, CallMode::Read);
    workers.install(1, writes_late, CallMode::Write);
    let [first, again, writes, copy] = [0, 0, 1, 1].map(|worker| workers.arrive(worker, extension));
    workers.run();
    let behind = [0, 1].map(|worker| workers.arrive(worker, extension));
    workers.run();
    assert_eq!([&first, &again, &writes].map(status), [Some(Status::Ok); 3], "a read may run again");
    assert_eq!(status(&copy), None);
    assert!(behind.iter().all(|behind| behind.try_receive().expect("an answer").body == b"written"));
    assert_eq!(workers.written(), 1);
}

#[test]
fn a_read_is_refused_without_a_trace_where_it_may_run_elsewhere() {
    let mut workers = Workers::new();
    let extension = workers.install(0, reads_late, CallMode::Read);
    let first = workers.arrive(0, extension);
    let unknown = workers.arrive(1, extension);
    let again = workers.arrive(0, extension);
    workers.run();
    assert_eq!(status(&unknown), Some(Status::UnknownExtension));
    assert_eq!([&first, &again].map(status), [Some(Status::Ok); 2]);
}
