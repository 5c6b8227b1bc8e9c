//! The async client against real servers: many tasks over one session, futures that are dropped, servers that are started again.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use client::{
    AsyncClient, Client, ClientConfig, Condition, Durability, Error, KeyRange, PageSize, Status, TableOptions,
};
use tests::cluster::Cluster;
use tests::effort::{rng, rounds};
use tests::patience::{answered, comes};
use tests::server::{Server, Settings, Tenant, patient};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

/// A runtime with so many threads of its own; with none, everything runs on the caller's.
fn runtime(threads: usize) -> Runtime {
    let mut builder = if threads == 0 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    builder.worker_threads(threads.max(1)).enable_all().build().expect("a runtime")
}

async fn connect(server: &Server, tenant: &Tenant) -> AsyncClient {
    let (address, Tenant { name, secret, .. }) = (server.address().to_string(), tenant);
    AsyncClient::connect_with(&address, name, secret, patient()).await.expect("the right secret")
}

fn in_memory(client: &mut Client, name: &str) -> u32 {
    let options = TableOptions { durability: Some(Durability::Memory), ..TableOptions::default() };
    client.table_create_with(name, options).expect("a fresh name")
}

async fn all<T>(tasks: impl IntoIterator<Item = JoinHandle<T>>) -> Vec<T> {
    let mut ended = Vec::new();
    for task in tasks {
        ended.push(task.await.expect("no panic"));
    }
    ended
}

#[test]
fn many_tasks_share_a_session_and_each_gets_its_own_answers() {
    // Far more than the session's window.
    const TASKS: u32 = 800;
    let server = Server::start();
    let tenant = server.tenant("acme");
    for threads in [0, 2] {
        let name = format!("data{threads}");
        let options =
            TableOptions { ordered: true, durability: Some(Durability::Memory), ..TableOptions::default() };
        server.client(&tenant).table_create_with(&name, options).expect("a fresh name");
        runtime(threads).block_on(async {
            let client = connect(&server, &tenant).await;
            let table = client.table_open(&name).await.expect("it is there");
            let of_one = |number: u32| {
                let client = client.clone();
                async move {
                    let key = format!("key {number:04}").into_bytes();
                    // Every tenth value needs the stream.
                    let bytes = if number.is_multiple_of(10) { 40_000 } else { number as usize };
                    let version = client.put(table, &key, &vec![number as u8; bytes]).await.expect("room");
                    let object = client.get(table, &key).await.expect("an answer").expect("it was written");
                    assert_eq!((object.version, object.value), (version, vec![number as u8; bytes]));
                    let condition = Condition::Version(version + 1);
                    let refused = client.put_if(table, &key, b"", condition).await.unwrap_err();
                    assert!(matches!(refused, Error::ConditionFailed { current } if current == version));
                    for sum in 1..=10 {
                        let (value, _) = client.increment(table, b"sum of all", 1).await.expect("a number");
                        assert!(value >= sum);
                    }
                    if number % 2 == 1 {
                        assert!(client.delete(table, &key).await.expect("an answer").is_some());
                        assert_eq!(client.delete(table, &key).await.expect("an answer"), None);
                        assert_eq!(client.get(table, &key).await.expect("an answer"), None);
                    }
                }
            };
            all((0..TASKS).map(|number| tokio::spawn(of_one(number)))).await;
            let (sum, _) = client.increment(table, b"sum of all", 0).await.expect("a number");
            assert_eq!(sum, i64::from(TASKS) * 10);

            let keys: Vec<Vec<u8>> =
                (0..TASKS).map(|number| format!("key {number:04}").into_bytes()).collect();
            let asked: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            let objects = client.multi_get(table, &asked).await.expect("answers");
            for (number, object) in objects.iter().enumerate() {
                assert_eq!(object.is_some(), number % 2 == 0, "key {number}");
            }
            let range = KeyRange { prefix: b"key ", ..KeyRange::default() };
            let (mut seen, mut next) = (Vec::new(), Some(client::Cursor::start()));
            while let Some(from) = next {
                let size = PageSize { keys_only: true, ..PageSize::default() };
                let page = client.scan_page(table, range, &from, size).await.expect("a page");
                seen.extend(page.objects.into_iter().map(|object| object.key));
                next = page.next;
            }
            assert!(seen.iter().eq(keys.iter().step_by(2)));
            let unknown = client.get(table + 99, b"").await.unwrap_err();
            assert_eq!(unknown.status(), Some(Status::UnknownTable));
            let unknown = client.invoke("nothing.here", table, b"", b"").await.unwrap_err();
            assert_eq!(unknown.status(), Some(Status::UnknownExtension));
        });
    }
}

/// Polls a future so many times at most, and drops it.
async fn for_some_polls<T>(future: impl Future<Output = T>, polls: u32) -> Option<T> {
    let (mut future, mut left) = (std::pin::pin!(future), polls);
    std::future::poll_fn(move |context| match future.as_mut().poll(context) {
        std::task::Poll::Ready(done) => std::task::Poll::Ready(Some(done)),
        std::task::Poll::Pending if left == 0 => std::task::Poll::Ready(None),
        std::task::Poll::Pending => {
            left -= 1;
            context.waker().wake_by_ref();
            std::task::Poll::Pending
        }
    })
    .await
}

#[test]
fn a_future_that_is_dropped_takes_nothing_from_the_others() {
    let server = Server::start();
    let tenant = server.tenant("acme");
    let table = in_memory(&mut server.client(&tenant), "data");
    for threads in [0, 2] {
        let mut random = rng();
        let (answered, begun) = runtime(threads).block_on(async {
            let client = connect(&server, &tenant).await;
            let key = [threads as u8];
            let one = |polls: Option<u32>| {
                let client = client.clone();
                async move {
                    let increments = async {
                        let mut done = 0;
                        while done < 20 {
                            client.increment(table, &key, 1).await.expect("a number");
                            done += 1;
                        }
                        done
                    };
                    match polls {
                        None => increments.await,
                        Some(polls) => for_some_polls(increments, polls).await.unwrap_or(0),
                    }
                }
            };
            let tasks: Vec<_> = (0..rounds(400, 6_000))
                .map(|_| {
                    let polls = random.bool().then(|| random.u32(0..200));
                    tokio::spawn(one(polls))
                })
                .collect();
            let begun = tasks.len() as i64 * 20;
            let done: i64 = all(tasks).await.into_iter().sum();
            // The window has room for as many as before.
            let whole = all((0..800).map(|_| tokio::spawn(one(Some(u32::MAX))))).await;
            assert!(whole.into_iter().all(|done| done == 20));
            (done + 16_000, begun + 16_000)
        });
        let mut client = server.client(&tenant);
        let (sum, _) = client.increment(table, &[threads as u8], 0).expect("a number");
        assert!((answered..=begun).contains(&sum), "{answered} were answered, {begun} begun, {sum} done");
    }
}

#[test]
fn increments_are_done_once_while_the_server_is_killed_and_the_runtime_goes_on_meanwhile() {
    let mut server = Server::start();
    let tenant = server.tenant("acme");
    let options = TableOptions { durability: Some(Durability::Synced), ..TableOptions::default() };
    let table = server.client(&tenant).table_create_with("data", options).expect("a fresh name");
    let (over, ticks, done) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let (address, config) = (server.address().to_string(), patient());
    let counts = std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            // All on one thread: whatever blocked it would stop the clock as well.
            runtime(0).block_on(async {
                let client = AsyncClient::connect_with(&address, &tenant.name, &tenant.secret, config);
                let client = client.await.expect("the right secret");
                let one = async |key: u8| {
                    let mut own = 0;
                    while !over.load(Ordering::Relaxed) {
                        let sum = client
                            .increment(table, &[key], 1)
                            .await
                            .expect("it is answered once it is back")
                            .0;
                        own += 1;
                        assert_eq!(sum, own);
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    own
                };
                let clock = async {
                    while !over.load(Ordering::Relaxed) {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                        ticks.fetch_add(1, Ordering::Relaxed);
                    }
                    0
                };
                let (a, b, c, _) = join4(one(0), one(1), one(2), clock).await;
                [a, b, c]
            })
        });
        for round in 0..rounds(3, 20) {
            let before = done.load(Ordering::Relaxed);
            comes("some increments", || (done.load(Ordering::Relaxed) > before + 50).then_some(()));
            server.kill();
            let before = ticks.load(Ordering::Relaxed);
            comes("time goes on", || (ticks.load(Ordering::Relaxed) > before + 300).then_some(()));
            server.restart();
            println!("round {round}");
        }
        let before = done.load(Ordering::Relaxed);
        comes("increments behind the last start", || {
            (done.load(Ordering::Relaxed) > before + 50).then_some(())
        });
        over.store(true, Ordering::Relaxed);
        load.join().expect("no panic")
    });
    let mut client = server.client(&tenant);
    for (key, count) in counts.into_iter().enumerate() {
        assert_eq!(client.increment(table, &[key as u8], 0).expect("a number").0, count);
    }
}

/// Runs four futures beside each other on one task.
async fn join4<T>(
    a: impl Future<Output = T>,
    b: impl Future<Output = T>,
    c: impl Future<Output = T>,
    d: impl Future<Output = T>,
) -> (T, T, T, T) {
    let (mut a, mut b, mut c, mut d) =
        (std::pin::pin!(a), std::pin::pin!(b), std::pin::pin!(c), std::pin::pin!(d));
    let mut ended = (None, None, None, None);
    std::future::poll_fn(move |context| {
        fn look<F: Future>(
            future: &mut std::pin::Pin<&mut F>,
            ended: &mut Option<F::Output>,
            context: &mut std::task::Context<'_>,
        ) {
            if ended.is_none()
                && let std::task::Poll::Ready(done) = future.as_mut().poll(context)
            {
                *ended = Some(done);
            }
        }
        look(&mut a, &mut ended.0, context);
        look(&mut b, &mut ended.1, context);
        look(&mut c, &mut ended.2, context);
        look(&mut d, &mut ended.3, context);
        match std::mem::take(&mut ended) {
            (Some(a), Some(b), Some(c), Some(d)) => std::task::Poll::Ready((a, b, c, d)),
            some => {
                ended = some;
                std::task::Poll::Pending
            }
        }
    })
    .await
}

#[test]
fn the_session_ends_with_the_last_client_and_calls_end_with_their_runtime() {
    let server = Server::start();
    let tenant = server.tenant("acme");
    let mut blocking = server.client(&tenant);
    let table = blocking.table_create("data").expect("a fresh name");
    let sessions = |client: &mut Client| client.session_list().expect("an answer").len();
    let before = sessions(&mut blocking);
    let ours = runtime(2);
    let client = ours.block_on(connect(&server, &tenant));
    let other = client.clone();
    drop(client);
    ours.block_on(other.put(table, b"key", b"value")).expect("the session is there");
    assert_eq!(sessions(&mut blocking), before + 1);
    drop(other);
    comes("the session ends", || (sessions(&mut blocking) == before).then_some(()));

    let client = ours.block_on(connect(&server, &tenant));
    let elsewhere = runtime(0);
    elsewhere.block_on(client.get(table, b"key")).expect("any runtime may ask").expect("it is there");
    server.pause(true);
    let asks = std::thread::spawn({
        let client = client.clone();
        move || runtime(0).block_on(client.get(table, b"key"))
    });
    std::thread::sleep(Duration::from_millis(50));
    drop(ours);
    // Whether the request was on its way by then or not.
    asks.join().expect("no panic").expect_err("nobody moves the frames");
    elsewhere.block_on(client.get(table, b"key")).expect_err("nobody moves the frames");
    server.pause(false);
}

#[test]
fn transactions_of_tasks_keep_the_sum_of_all_accounts() {
    const ACCOUNTS: u64 = 10;
    let server = Server::start();
    let (mut blocking, table) = server.tenant_with_table("acme");
    let tenant = server.tenant("other");
    let own = in_memory(&mut server.client(&tenant), "accounts");
    for account in 0..ACCOUNTS {
        server.client(&tenant).put(own, &[account as u8], &100_u64.to_le_bytes()).expect("room");
    }
    blocking.put(table, b"beside", b"").expect("room");
    let balance = |value: Option<Vec<u8>>| {
        u64::from_le_bytes(value.expect("every account exists").try_into().expect("eight bytes"))
    };
    runtime(2).block_on(async {
        let client = connect(&server, &tenant).await;
        let transfers = rounds(200, 2_000);
        let tasks = (0..8).map(|seed| {
            let client = client.clone();
            tokio::spawn(async move {
                let mut random = fastrand::Rng::with_seed(seed);
                for _ in 0..transfers {
                    let (from, to) = (random.u8(0..10), random.u8(0..10));
                    let moved = client
                        .transaction(|tx| async move {
                            let first = balance(tx.get(own, &[from]).await?);
                            let second = balance(tx.get(own, &[to]).await?);
                            if first > 0 && from != to {
                                tx.put(own, &[from], &(first - 1).to_le_bytes());
                                tx.put(own, &[to], &(second + 1).to_le_bytes());
                            }
                            Ok(())
                        })
                        .await;
                    match moved {
                        Ok(()) | Err(Error::Conflict { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            })
        });
        let tasks: Vec<_> = tasks.collect();
        let keys: Vec<[u8; 1]> = (0..ACCOUNTS as u8).map(|account| [account]).collect();
        let keys: Vec<&[u8]> = keys.iter().map(<[u8; 1]>::as_slice).collect();
        for _ in 0..20 {
            let keys = &keys;
            let summed = client.transaction(|tx| async move {
                let values = tx.multi_get(own, keys).await?;
                Ok(values.into_iter().map(balance).sum::<u64>())
            });
            match summed.await {
                Ok(sum) => assert_eq!(sum, ACCOUNTS * 100),
                Err(Error::Conflict { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        all(tasks).await;
        let foreign =
            client.transaction(|tx| async move { tx.get(table, b"beside").await }).await.unwrap_err();
        assert!(foreign.status().is_some(), "{foreign}");
    });
}

/// It may still write, and nobody would commit that.
#[test]
fn a_transaction_with_a_clone_that_outlives_it_is_refused() {
    let server = Server::start();
    let tenant = server.tenant("acme");
    let table = in_memory(&mut server.client(&tenant), "data");
    runtime(1).block_on(async {
        let client = connect(&server, &tenant).await;
        let mut kept = None;
        let refused = client.transaction(|tx| {
            kept = Some(tx.clone());
            async move {
                tx.put(table, b"key", b"value");
                Ok(())
            }
        });
        assert_eq!(refused.await.err().and_then(|error| error.status()), Some(Status::Malformed));
        kept.expect("it ran").put(table, b"key", b"late");
        assert!(client.get(table, b"key").await.expect("an answer").is_none());
    });
}

#[test]
fn tasks_go_on_at_the_other_servers_while_one_is_gone() {
    let settings = Settings { memory: "192MiB".into(), ..Settings::default() };
    let mut cluster = Cluster::start(3, &settings);
    cluster.numbers();
    let tenant = cluster.servers[0].tenant("acme");
    let mut blocking = cluster.servers[0].client(&tenant);
    let table =
        answered("a table", || match blocking.table_create_spread("data", TableOptions::default(), 3) {
            Err(error) if error.status() == Some(Status::AlreadyExists) => blocking.table_open("data"),
            made => made,
        });
    let runtime = runtime(2);
    let address = cluster.servers[0].address().to_string();
    // What may have been executed waits for its server's return for as long as a call may take.
    let config = ClientConfig { call_timeout: Duration::from_secs(3), ..patient() };
    let client = AsyncClient::connect_with(&address, &tenant.name, &tenant.secret, config);
    let client = runtime.block_on(client).expect("the right secret");
    let put_all = |client: &AsyncClient| {
        let tasks: Vec<_> = (0..300_u64)
            .map(|key| {
                let client = client.clone();
                runtime.spawn(async move { client.put(table, &key.to_le_bytes(), b"value").await })
            })
            .collect();
        runtime.block_on(all(tasks))
    };
    assert!(put_all(&client).into_iter().all(|put| put.is_ok()));
    cluster.servers[2].kill();
    let failed = put_all(&client).into_iter().filter(Result::is_err).count();
    assert!((1..200).contains(&failed), "{failed} of 300 are of the server that is gone");
    cluster.servers[2].restart();
    comes("all are served", || put_all(&client).into_iter().all(|put| put.is_ok()).then_some(()));
}

#[test]
fn who_waits_for_room_waits_no_longer_than_a_call_and_a_refusal_is_told() {
    let server = Server::start();
    let tenant = server.tenant("acme");
    let table = in_memory(&mut server.client(&tenant), "data");
    let config = ClientConfig { call_timeout: Duration::from_secs(2), ..patient() };
    let runtime = runtime(2);
    let address = server.address().to_string();
    let client = AsyncClient::connect_with(&address, &tenant.name, &tenant.secret, config);
    let client = runtime.block_on(client).expect("the right secret");
    runtime.block_on(client.put(table, b"key", b"value")).expect("room");
    server.pause(true);
    let gets = (0..2_000).map(|_| {
        let client = client.clone();
        runtime.spawn(async move { client.get(table, b"key").await })
    });
    let gets: Vec<_> = gets.collect();
    let errors: Vec<Error> =
        runtime.block_on(all(gets)).into_iter().map(|get| get.expect_err("nobody answers")).collect();
    server.pause(false);
    let not_sent = errors.iter().filter(|error| matches!(error, Error::NotSent)).count();
    // The window has 256.
    assert!(not_sent >= 1_000, "{not_sent}");

    let mut admin = server.admin();
    admin.tenant_rotate(&tenant.name).expect("the administrator may");
    for session in admin.session_list().expect("an answer") {
        admin.session_revoke(session.client_id).expect("it is there");
    }
    // The first one finds out.
    comes("a refusal", || {
        let refused = runtime.block_on(client.get(table, b"key")).expect_err("its session has ended");
        (refused.status() == Some(Status::BadSecret)).then_some(())
    });
}
