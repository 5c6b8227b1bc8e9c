//! Compiled extensions at the limits of their tenant's account: each ends with a typed status and a text that
//! names the limit, writes nothing, and concerns nobody else. What is changed holds for the next invocation.

#[path = "support/worker.rs"]
#[macro_use]
mod worker;

use std::sync::Arc;

use db::extension::Extension;
use db::extension::allowance::Sandbox;
use db::extension::log::ExtensionLog;
use db::extension::registry::{Installed, Registry};
use db::tenant::account::Account;
use db::tenant::limit::TenantLimit;
use wire::{Status, TenantId};
use worker::{TABLE, TENANT, Worker, install, registry};

const SPENDING: &str = include_str!("support/spending.rs");

/// Bytes of the object that is read, its key of three included.
const OBJECT_BYTES: u64 = 103;

struct Setting {
    _cache: tempfile::TempDir,
    _registry: Registry,
    installed: Arc<Installed>,
    worker: Worker,
    sandbox: Sandbox,
}

impl Setting {
    fn new(sandbox: Sandbox) -> Self {
        let cache = tempfile::tempdir().expect("a folder");
        let registry = registry(cache.path());
        let installed = install(&registry, "spending", SPENDING, 1, 2).unwrap_or_else(|e| panic!("{e}"));
        let worker = Worker::default();
        worker.put(b"key", &[7; 100]);
        Self { _cache: cache, _registry: registry, installed, worker, sandbox }
    }

    /// The extension on an account of its own, as if it were another tenant's.
    fn with_limits(&self, limits: &[(TenantLimit, u64)]) -> Arc<Extension> {
        let account = Account::new(TENANT);
        account.set_limit(TenantLimit::Sandbox, self.sandbox.value());
        for &(limit, value) in limits {
            assert!(limit.allows(value));
            account.set_limit(limit, value);
        }
        let log = Arc::new(ExtensionLog::new());
        Arc::new(self.installed.extension.granted(9, Arc::new(account), "spending", log))
    }

    fn call(
        &mut self,
        extension: &Arc<Extension>,
        function: &str,
        count: u64,
        bytes: u64,
    ) -> (Status, String) {
        let mut answer = None;
        let arguments = [count.to_le_bytes(), bytes.to_le_bytes()].concat();
        self.worker.run(extension, function, b"key", &arguments, &mut |status, body| {
            answer = Some((status, String::from_utf8_lossy(body).into_owned()));
        });
        answer.expect("an invocation that started ends")
    }

    fn assert_nothing_was_written(&self, what: &str) {
        let pin = self.worker.lent.core.pin();
        for key in [&b"mark"[..], &0_u64.to_le_bytes()] {
            assert!(pin.get(&self.worker.table, store::hash(key), key).is_none(), "{what} wrote");
        }
        assert_eq!(self.worker.lent.core.held_pins(), 0);
    }
}

fn each_limit_ends_an_invocation_with_a_text_that_names_it(sandbox: Sandbox) {
    let mut setting = Setting::new(sandbox);
    let refused = Status::LimitExceeded;
    let cases = [
        (TenantLimit::InvocationCpuUs, 500, "spins", 0, 0, Status::ExtensionKilled, ""),
        (TenantLimit::InvocationWallUs, 700, "spins", 0, 0, Status::ExtensionKilled, ""),
        (TenantLimit::InvocationYields, 9, "yields", 10, 0, Status::ExtensionKilled, "10 used"),
        (TenantLimit::InvocationArenaBytes, 8_000, "allocates", 9, 1_000, Status::ExtensionOutOfMemory, ""),
        (TenantLimit::InvocationArenaBytes, 0, "allocates", 9, 1_000, Status::ExtensionOutOfMemory, ""),
        (TenantLimit::InvocationReads, 9, "reads", 10, 0, refused, "10 used"),
        (TenantLimit::InvocationReads, 15, "reads_at_once", 16, 0, refused, "16 used"),
        (TenantLimit::InvocationReadBytes, 9 * OBJECT_BYTES, "reads", 10, 0, refused, "1030 used"),
        (TenantLimit::InvocationReadBytes, 9 * OBJECT_BYTES, "reads_at_once", 16, 0, refused, "1030 used"),
        (TenantLimit::InvocationWrites, 9, "writes", 9, 10, refused, "10 used"),
        (TenantLimit::InvocationWrites, 0, "writes", 1, 10, refused, "1 used"),
        // The mark takes 15 bytes.
        (TenantLimit::InvocationWriteBytes, 1_000, "writes", 55, 10, refused, "1005 used"),
        (TenantLimit::InvocationReplyBytes, 9, "replies", 10, 0, Status::ReplyTooLarge, "10 used"),
    ];
    let unlimited = setting.with_limits(&[]);
    for (limit, value, function, count, bytes, status, used) in cases {
        let extension = setting.with_limits(&[(limit, value)]);
        for _ in 0..3 {
            let (answered, text) = setting.call(&extension, function, count, bytes);
            assert_eq!(answered, status, "{function}: {text}");
            assert!(text.contains(&format!("the limit {} = {value} was reached", limit.name())), "{text}");
            assert!(text.contains(&format!("in spending@2 {function}")), "{text}");
            assert!(text.contains(used), "{text}");
            let asked = text.split_once("was reached: ").and_then(|(_, rest)| rest.split(' ').next());
            let asked: Option<u64> = asked.and_then(|number| number.parse().ok());
            assert!(asked > Some(value), "what was used or asked for is beyond the limit: {text}");
            setting.assert_nothing_was_written(function);
            assert_eq!(setting.call(&unlimited, "healthy", 0, 0).0, Status::Ok, "after {function}");
        }
    }
}

fn what_a_limit_allows_is_allowed_to_the_last(sandbox: Sandbox) {
    let mut setting = Setting::new(sandbox);
    let limits = [
        (TenantLimit::InvocationYields, 10, "yields", 10, 0),
        (TenantLimit::InvocationReads, 10, "reads", 10, 0),
        (TenantLimit::InvocationReads, 16, "reads_at_once", 16, 0),
        (TenantLimit::InvocationReadBytes, 10 * OBJECT_BYTES, "reads", 10, 0),
        (TenantLimit::InvocationReadBytes, 16 * OBJECT_BYTES, "reads_at_once", 16, 0),
        (TenantLimit::InvocationWrites, 11, "writes", 10, 10),
        (TenantLimit::InvocationWriteBytes, 15 + 10 * 18, "writes", 10, 10),
        (TenantLimit::InvocationReplyBytes, 10, "replies", 10, 0),
    ];
    for (limit, value, function, count, bytes) in limits {
        let extension = setting.with_limits(&[(limit, value)]);
        let (answered, text) = setting.call(&extension, function, count, bytes);
        assert_eq!(answered, Status::Ok, "{function}: {text}");
    }
}

fn a_function_that_is_refused_by_a_limit_may_go_on_and_end_well(sandbox: Sandbox) {
    let mut setting = Setting::new(sandbox);
    let extension = setting.with_limits(&[(TenantLimit::InvocationReads, 5)]);
    let (answered, body) = setting.call(&extension, "goes_on_when_refused", 10, 0);
    assert_eq!((answered, body.as_bytes()), (Status::Ok, &5_u64.to_le_bytes()[..]));
    let pin = setting.worker.lent.core.pin();
    assert!(pin.get(&setting.worker.table, store::hash(b"mark"), b"mark").is_some());
}

fn a_limit_that_is_changed_holds_for_the_next_invocation_and_not_for_one_that_runs(sandbox: Sandbox) {
    let mut setting = Setting::new(sandbox);
    let extension = setting.with_limits(&[(TenantLimit::InvocationReplyBytes, 10)]);
    let arguments = [10_u64.to_le_bytes(), 0_u64.to_le_bytes()].concat();
    let index = extension.function(wire::function_hash("replies")).expect("a function");
    let Worker { lent, invocations, .. } = &mut setting.worker;
    {
        let pin = lent.core.pin();
        let environment = lent.environment(&pin);
        let started = invocations.start(&environment, &extension, index, TABLE, b"key", &arguments, 1);
        assert!(started.is_ok());
        extension.account.set_limit(TenantLimit::InvocationReplyBytes, 9);
        let mut ended = Vec::new();
        while invocations.live() > 0 {
            invocations.run(&environment, &mut |_, status, _: &[u8]| ended.push(status));
        }
        assert_eq!(ended, [Status::Ok]);
    }
    assert_eq!(setting.call(&extension, "replies", 10, 0).0, Status::ReplyTooLarge);
    extension.account.set_limit(TenantLimit::InvocationReplyBytes, 10);
    assert_eq!(setting.call(&extension, "replies", 10, 0).0, Status::Ok);
}

fn a_tenant_has_no_more_invocations_on_a_worker_than_it_may_and_others_have_theirs(sandbox: Sandbox) {
    let mut setting = Setting::new(sandbox);
    let account = Account::new(TenantId(77));
    account.set_limit(TenantLimit::Invocations, 3);
    account.set_limit(TenantLimit::Sandbox, sandbox.value());
    let log = Arc::new(ExtensionLog::new());
    let crowding = Arc::new(setting.installed.extension.granted(9, Arc::new(account), "spending", log));
    let other = setting.with_limits(&[]);
    let index = other.function(wire::function_hash("healthy")).expect("a function");
    let Worker { lent, invocations, .. } = &mut setting.worker;
    let pin = lent.core.pin();
    let environment = lent.environment(&pin);
    for round in 0..3 {
        let mut start = |extension: &Arc<Extension>| {
            let started = invocations.start(&environment, extension, index, TABLE, b"key", b"", round);
            started.map_err(|refused| refused.status)
        };
        for _ in 0..3 {
            assert_eq!(start(&crowding), Ok(()));
        }
        for _ in 0..5 {
            assert_eq!(start(&crowding), Err(Status::Throttled));
            assert_eq!(start(&other), Ok(()));
        }
        let mut ended = 0;
        while invocations.live() > 0 {
            invocations.run(&environment, &mut |_, _, _: &[u8]| ended += 1);
        }
        assert_eq!(ended, 8);
    }
}

in_both_forms! {
    each_limit_ends_an_invocation_with_a_text_that_names_it,
    what_a_limit_allows_is_allowed_to_the_last,
    a_function_that_is_refused_by_a_limit_may_go_on_and_end_well,
    a_limit_that_is_changed_holds_for_the_next_invocation_and_not_for_one_that_runs,
    a_tenant_has_no_more_invocations_on_a_worker_than_it_may_and_others_have_theirs,
}
