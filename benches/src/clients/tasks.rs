//! The loads of the async client: tasks on a runtime of one thread, each of which asks, waits and asks again.

use std::array;
use std::time::Instant;

use client::AsyncClient;
use tokio::runtime::{Builder, Runtime};

use super::{ClientsLoad, Draw, DrawnKeys, READS, WRITES, are_right, note};
use crate::dataset::index_of;
use crate::measure::{Figures, Measure};

/// Gets of so many tasks.
pub(super) fn gets(load: &ClientsLoad<'_>, tasks: usize) -> Result<Figures, String> {
    run(load, tasks, async |client, table, (begin, end), mut draw| {
        let mut measure = Measure::default();
        loop {
            let begun = Instant::now();
            if begun >= end {
                return measure;
            }
            let (index, key) = draw.one();
            let got = client.get(table, key).await;
            let right = got.map(|object| object.and_then(|object| index_of(&object.value)) == Some(index));
            if begun >= begin {
                note(&mut measure, begun, right);
            }
        }
    })
}

/// Transactions of so many tasks.
pub(super) fn transactions(load: &ClientsLoad<'_>, tasks: usize) -> Result<Figures, String> {
    run(load, tasks, async |client, table, (begin, end), mut draw| {
        let (mut measure, mut drawn) = (Measure::default(), draw.begin());
        loop {
            draw.again(&mut drawn);
            let begun = Instant::now();
            if begun >= end {
                return measure;
            }
            let DrawnKeys { indices, keys, value } = &drawn;
            let (indices, value, keys) = (indices, value, array::from_fn(|at| keys[at].as_slice()));
            let keys: &[&[u8]; READS] = &keys;
            let done = client.transaction(|tx| async move {
                let right = are_right(&tx.multi_get(table, keys).await?, indices);
                let mut value = value.clone();
                for (key, index) in keys.iter().zip(indices).take(WRITES) {
                    value[..8].copy_from_slice(&index.to_le_bytes());
                    tx.put(table, key, &value);
                }
                Ok(right)
            });
            let done = done.await;
            if begun >= begin {
                note(&mut measure, begun, done);
            }
        }
    })
}

/// Runs so many futures of `one` beside each other, each with its own draws, and adds up what they measured.
fn run(
    load: &ClientsLoad<'_>,
    tasks: usize,
    one: impl AsyncFn(AsyncClient, u32, (Instant, Instant), Draw) -> Measure + Copy + 'static,
) -> Result<Figures, String> {
    let runtime: Runtime =
        Builder::new_current_thread().enable_all().build().map_err(|error| format!("no runtime: {error}"))?;
    let (access, table) = (load.access, load.table);
    let (address, secret) = (access.address.to_string(), access.secret()?);
    let draws: Result<Vec<Draw>, String> =
        (0..tasks).map(|task| Ok(Draw::new(load.data()?, load.seed * 1_000 + task as u64))).collect();
    let draws = draws?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let client = AsyncClient::connect_with(&address, &access.tenant, &secret, access.config());
        let client = client.await.map_err(|error| access.not_opened(&error))?;
        let window = load.window();
        let begun: Vec<_> = draws
            .into_iter()
            .map(|draw| {
                let client = client.clone();
                tokio::task::spawn_local(async move { one(client, table, window, draw).await })
            })
            .collect();
        let mut all = Measure::default();
        for task in begun {
            all.add(&task.await.map_err(|error| error.to_string())?);
        }
        Ok(all.figures((window.1 - window.0).as_secs_f64()))
    })
}
