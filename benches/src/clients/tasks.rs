//! The loads of the async client: tasks on a runtime of one thread, each of which asks, waits and asks again.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use client::{AsyncClient, Error};
use tokio::runtime::Builder;

use super::{ClientsLoad, Draw, DrawnKeys, READS, WRITES, are_right, note};
use crate::dataset::index_of;
use crate::measure::{Figures, Measure};

/// One of so many gets of a load that pipelines is timed: a look at the clock costs a tenth of a get.
const TIMED_EACH: u32 = 8;

/// A task of a load.
struct LoadTask {
    client: AsyncClient,
    table: u32,
    window: (Instant, Instant),
    draw: Draw,
    /// What all tasks have measured: one histogram, since the caches hold no more.
    measure: Arc<Mutex<Measure>>,
    is_alone: bool,
    /// As of the latest look at the clock: whether it is within the window, or behind it.
    measures: bool,
    is_over: bool,
}

impl LoadTask {
    /// Notes a request or a transaction that ended now, and when it began, if it is timed; returns whether the window is over.
    fn ended(&mut self, begun: Option<Instant>, done: Result<bool, Error>) -> bool {
        let (begin, end) = self.window;
        if let Some(begun) = begun {
            (self.measures, self.is_over) = (begun >= begin && begun < end, begun >= end);
        }
        if self.measures {
            note(&mut self.measure.lock().unwrap_or_else(PoisonError::into_inner), begun, done);
        }
        self.is_over
    }
}

/// Gets of so many tasks.
pub(super) fn gets(load: &ClientsLoad<'_>, tasks: usize) -> Result<Figures, String> {
    run(load, tasks, async |mut task: LoadTask| {
        let (mut gets, each) = (0_u32, if task.is_alone { 1 } else { TIMED_EACH });
        loop {
            let is_timed = gets.is_multiple_of(each);
            gets = gets.wrapping_add(1);
            let (index, key) = task.draw.one();
            let begun = is_timed.then(Instant::now);
            let got = task.client.get(task.table, key).await;
            let right = got.map(|object| object.and_then(|object| index_of(&object.value)) == Some(index));
            if task.ended(begun, right) {
                return;
            }
        }
    })
}

/// Transactions of so many tasks.
pub(super) fn transactions(load: &ClientsLoad<'_>, tasks: usize) -> Result<Figures, String> {
    run(load, tasks, async |mut task: LoadTask| {
        let mut drawn = task.draw.begin();
        loop {
            task.draw.again(&mut drawn);
            let begun = Some(Instant::now());
            let (table, DrawnKeys { indices, keys, value }) = (task.table, &drawn);
            let keys: &[&[u8]; READS] = &std::array::from_fn(|at| keys[at].as_slice());
            let done = task.client.transaction(|tx| async move {
                let right = are_right(&tx.multi_get(table, keys).await?, indices);
                let mut value = value.clone();
                for (key, index) in keys.iter().zip(indices).take(WRITES) {
                    value[..8].copy_from_slice(&index.to_le_bytes());
                    tx.put(table, key, &value);
                }
                Ok(right)
            });
            let done = done.await;
            if task.ended(begun, done) {
                return;
            }
        }
    })
}

/// Runs so many futures of `one` beside each other, each with its own draws; returns what all measured.
fn run<F: Future<Output = ()> + Send + 'static>(
    load: &ClientsLoad<'_>,
    tasks: usize,
    one: impl Fn(LoadTask) -> F,
) -> Result<Figures, String> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("no runtime: {error}"))?;
    let (access, table) = (load.access, load.table);
    let (address, secret) = (access.address.to_string(), access.secret()?);
    let draw = |task| Ok(Draw::new(load.data()?, load.seed * 1_000 + task as u64));
    let draws = (0..tasks).map(draw).collect::<Result<Vec<Draw>, String>>()?;
    let measure = Arc::new(Mutex::new(Measure::default()));
    runtime.block_on(async {
        let client = AsyncClient::connect_with(&address, &access.tenant, &secret, access.config());
        let client = client.await.map_err(|error| access.not_opened(&error))?;
        let window = load.window();
        let task = |draw| LoadTask {
            client: client.clone(),
            table,
            window,
            draw,
            measure: Arc::clone(&measure),
            is_alone: tasks == 1,
            measures: false,
            is_over: false,
        };
        let begun: Vec<_> = draws.into_iter().map(|draw| tokio::spawn(one(task(draw)))).collect();
        for task in begun {
            task.await.map_err(|error| error.to_string())?;
        }
        let measure = measure.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(measure.figures((window.1 - window.0).as_secs_f64()))
    })
}
