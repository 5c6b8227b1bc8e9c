//! Shares of tenants under simulated loads: what each gets, who waits for how long, that nothing is lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use wire::TenantId;

use super::{Fair, PlaceId, Runnable};
use crate::limits::{
    FRESH_SLICES, PARKED_BEFORE_NEW, PARKED_PER_WORKER_MAX, PARKED_REST_SLICES, TENANT_PLACE_ENTRIES_KEPT,
    TENANT_PLACES_KEPT,
};
use crate::tenant::account::Account;
use crate::tenant::limit::TenantLimit;

const SLICE: u64 = 1000;

fn account(tenant: u32, weight: u64) -> Arc<Account> {
    let account = Account::new(TenantId(tenant));
    account.set_limit(TenantLimit::Weight, weight);
    Arc::new(account)
}

/// Keeps every tenant's queue full of items that cost what `cost` says, until `total` cycles were used; what
/// each tenant used.
fn saturate(accounts: &[Arc<Account>], total: u64, mut cost: impl FnMut(usize) -> u64) -> Vec<u64> {
    let mut fair = Fair::new(SLICE);
    let mut used = vec![0; accounts.len()];
    let places: Vec<PlaceId> = accounts.iter().map(|account| fair.enter(account)).collect();
    for (tenant, place) in places.iter().enumerate() {
        fair.push(*place, tenant);
        fair.push(*place, tenant);
    }
    while used.iter().sum::<u64>() < total {
        let turn = fair.next(true).expect("somebody always waits");
        let cycles = cost(turn.item);
        used[turn.item] += cycles;
        fair.charge(turn.place, cycles);
        fair.push(turn.place, turn.item);
    }
    used
}

#[test]
fn tenants_share_by_weight_whatever_one_invocation_costs() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for weights in [[100, 300], [1, 3], [10_000, 1], [100, 100]] {
        let accounts = [account(1, weights[0]), account(2, weights[1])];
        for costs in [[10, 10], [10, 900], [900, 10], [3_000, 40]] {
            // Long enough for the smallest quantum to come around many times.
            let used = saturate(&accounts, 20_000_000, |tenant| random.u64(1..=2 * costs[tenant]));
            let share = used[0] as f64 / used.iter().sum::<u64>() as f64;
            let due = weights[0] as f64 / weights.iter().sum::<u64>() as f64;
            assert!((share - due).abs() < 0.03 * due.max(0.02), "{weights:?} {costs:?}: {share} for {due}");
        }
    }
}

#[test]
fn a_tenant_with_little_to_do_is_served_before_those_that_are_never_done() {
    let mut fair = Fair::new(SLICE);
    for tenant in 1..=50 {
        let place = fair.enter(&account(tenant, 100));
        fair.push(place, tenant);
        fair.push(place, tenant);
    }
    let quiet = account(99, 100);
    let mut waited_most = 0;
    for round in 0..10_000_u64 {
        // The first round, when all are new, is over by then.
        if round % 200 == 199 {
            let place = fair.enter(&quiet);
            fair.push(place, 99);
            let mut waited = 0;
            loop {
                let turn = fair.next(true).expect("it waits");
                fair.charge(turn.place, 500);
                if turn.item == 99 {
                    fair.leave(turn.place);
                    break;
                }
                fair.push(turn.place, turn.item);
                waited += 1;
            }
            waited_most = waited_most.max(waited);
        }
        let turn = fair.next(true).expect("somebody waits");
        fair.charge(turn.place, 500);
        fair.push(turn.place, turn.item);
    }
    assert_eq!(waited_most, 0, "its share is never used up");
}

#[test]
fn many_tenants_with_little_to_do_keep_one_in_debt_waiting_for_some_slices_and_no_more() {
    let mut fair = Fair::new(SLICE);
    let accounts: Vec<_> = (0..1000).map(|tenant| account(tenant, 100)).collect();
    let long = fair.enter(&accounts[0]);
    fair.park(long, 0);
    fair.charge(long, 3 * SLICE / 2);
    let (mut others, mut waited, mut turns) = (0, 0, 0);
    for number in 0..20_000_usize {
        // There is always one that has just come, and does next to nothing.
        let quiet = fair.enter(&accounts[1 + number % 999]);
        fair.push(quiet, 1 + number % 999);
        let turn = fair.next(true).expect("two wait");
        if turn.was_parked {
            fair.charge(turn.place, SLICE);
            fair.park(turn.place, turn.item);
            (others, turns) = (0, turns + 1);
        } else {
            fair.charge(turn.place, SLICE / 50);
            fair.leave(turn.place);
            others += SLICE / 50;
            waited = waited.max(others);
        }
    }
    assert!(turns > 50, "{turns}");
    // A slice of debt is repaid with a slice each time that the ring has a turn.
    assert!(waited <= 3 * (FRESH_SLICES + 1) * SLICE, "{waited}");
}

#[test]
fn coming_back_again_and_again_wins_nothing() {
    let (steady, returns) = (account(1, 100), account(2, 100));
    let mut fair = Fair::new(SLICE);
    let place = fair.enter(&steady);
    fair.push(place, 1);
    fair.push(place, 1);
    let mut used = BTreeMap::from([(1, 0), (2, 0)]);
    let mut away = true;
    for _ in 0..100_000 {
        if away {
            let place = fair.enter(&returns);
            fair.push(place, 2);
            away = false;
        }
        let Runnable { place, item, .. } = fair.next(true).expect("somebody waits");
        let cycles = if item == 2 { 900 } else { 10 };
        *used.get_mut(&item).expect("one of the two") += cycles;
        fair.charge(place, cycles);
        if item == 2 {
            fair.leave(place);
            away = true;
        } else {
            fair.push(place, 1);
        }
    }
    let share = used[&2] as f64 / (used[&1] + used[&2]) as f64;
    assert!(share < 0.51, "{share} of the time");
}

#[test]
fn parked_ones_run_when_nothing_else_does_and_get_a_part_of_their_tenants_time() {
    let mut fair = Fair::new(SLICE);
    let (busy, parks) = (fair.enter(&account(1, 100)), fair.enter(&account(2, 100)));
    fair.park(parks, "loop");
    assert_eq!(fair.next(false), None);
    assert_eq!(fair.next(true), Some(Runnable { place: parks, item: "loop", was_parked: true }));
    fair.park(busy, "long");
    for _ in 0..4 {
        fair.push(busy, "short");
    }
    let (mut long, mut short) = (0, 0);
    for _ in 0..4_000 {
        let turn = fair.next(true).expect("both wait");
        fair.charge(turn.place, SLICE);
        if turn.was_parked {
            long += 1;
            fair.park(turn.place, turn.item);
        } else {
            short += 1;
            fair.push(turn.place, turn.item);
        }
    }
    assert_eq!(short / long, PARKED_REST_SLICES);
}

#[test]
fn functions_longer_than_a_slice_lose_nothing_of_their_tenants_share() {
    // A turn runs one parked invocation; what comes back in a turn runs in the next, as in the worker.
    let accounts = [account(1, 100), account(2, 300)];
    let mut fair = Fair::new(SLICE);
    let (short, long) = (fair.enter(&accounts[0]), fair.enter(&accounts[1]));
    for _ in 0..8 {
        fair.push(short, SLICE / 3);
        fair.push(long, 4 * SLICE);
    }
    let mut used = [0, 0];
    while used[0] + used[1] < 10_000 * SLICE {
        let (mut may_unpark, mut left) = (true, fair.ready());
        while left > 0 || (may_unpark && fair.parked() > 0) {
            let Some(turn) = fair.next(may_unpark) else { break };
            if turn.was_parked {
                may_unpark = false;
            } else if left == 0 {
                fair.put_back(turn);
                break;
            } else {
                left -= 1;
            }
            let cycles = turn.item.min(SLICE);
            used[usize::from(turn.place == long)] += cycles;
            fair.charge(turn.place, cycles);
            match turn.item - cycles {
                0 if turn.place == short => fair.push(short, SLICE / 3),
                0 => fair.push(long, 4 * SLICE),
                rest => fair.park(turn.place, rest),
            }
        }
    }
    let share = used[0] as f64 / (used[0] + used[1]) as f64;
    assert!((share - 0.25).abs() < 0.01, "{share} of the time, a quarter is due");
}

#[test]
fn a_tenant_of_whom_many_are_parked_starts_no_new_ones_before_those_run() {
    // Each is a little longer than a slice, so all would be parked before the first of them ended.
    const MANY: usize = 4 * PARKED_PER_WORKER_MAX;
    let mut fair = Fair::new(SLICE);
    let place = fair.enter(&account(1, 100));
    (0..MANY).for_each(|_| fair.push(place, SLICE / 10));
    let (mut ended, mut most) = (0, 0);
    while ended < MANY {
        let turn = fair.next(true).expect("some wait");
        if turn.was_parked {
            fair.charge(place, turn.item);
            ended += 1;
            // More runs in a turn in which no slice was used up.
            let Some(next) = fair.next(false) else { continue };
            fair.charge(place, SLICE);
            fair.park(place, next.item);
        } else {
            fair.charge(place, SLICE);
            fair.park(place, turn.item);
        }
        most = most.max(fair.parked());
    }
    assert!(most <= PARKED_BEFORE_NEW + 1, "{most} were parked at once");
}

#[test]
fn nothing_is_lost_in_a_random_order_of_everything() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let accounts: Vec<_> = (0..30).map(|tenant| account(tenant, random.u64(1..=1000))).collect();
    let mut fair = Fair::new(SLICE);
    let mut waiting = std::collections::BTreeSet::new();
    for item in 0..200_000_u64 {
        if random.u32(..100) < 48 {
            let place = fair.enter(random.choice(&accounts).expect("some"));
            waiting.insert(item);
            if random.bool() { fair.push(place, item) } else { fair.park(place, item) }
        } else {
            let may_unpark = random.u32(..4) > 0;
            match fair.next(may_unpark) {
                Some(turn) if random.u32(..10) == 0 => fair.put_back(turn),
                Some(turn) => {
                    assert!(waiting.remove(&turn.item));
                    fair.charge(turn.place, random.u64(..5 * SLICE));
                    fair.leave(turn.place);
                }
                None => assert!(!may_unpark || fair.ready() + fair.parked() == 0),
            }
        }
        assert_eq!(fair.ready() + fair.parked(), waiting.len());
    }
    while let Some(turn) = fair.next(true) {
        assert!(waiting.remove(&turn.item));
    }
    assert!(waiting.is_empty());
}

#[test]
fn places_of_tenants_that_are_gone_are_used_again() {
    let mut fair = Fair::new(SLICE);
    let stays = account(0, 100);
    let place = fair.enter(&stays);
    fair.push(place, 0);
    for tenant in 1..3 * TENANT_PLACES_KEPT as u32 {
        let place = fair.enter(&account(tenant, 100));
        fair.push(place, tenant);
        let turn = loop {
            let turn = fair.next(true).expect("two wait");
            fair.charge(turn.place, 10);
            if turn.item == tenant {
                break turn;
            }
            fair.push(turn.place, turn.item);
        };
        fair.leave(turn.place);
    }
    assert!(fair.places.len() <= TENANT_PLACES_KEPT + 1);
    assert_eq!(fair.take_any(), Some(0));
}

#[test]
fn queues_that_were_long_once_are_given_back_by_tenants_that_stay_away_and_by_no_others() {
    const LONG: u32 = 4_000;
    let (mut fair, accounts) = (Fair::new(SLICE), [account(0, 100), account(1, 100), account(2, 100)]);
    let fill = |fair: &mut Fair<u32>, account: &Arc<Account>| {
        let place = fair.enter(account);
        for item in 0..LONG {
            if item % 2 == 0 { fair.push(place, item) } else { fair.park(place, item) }
        }
        for _ in 0..LONG {
            fair.charge(place, 10);
            assert!(fair.next(true).is_some());
        }
        assert_eq!(fair.next(true), None);
        fair.leave(place);
        place
    };
    let [stays_away, comes_back] = [&accounts[0], &accounts[1]].map(|account| fill(&mut fair, account));
    assert!(fair.places.entries(stays_away) >= LONG as usize);
    let most = fair.places.entries(comes_back);
    for _ in 0..10 {
        fill(&mut fair, &accounts[1]);
        let place = fair.enter(&accounts[2]);
        fair.leave(place);
    }
    assert!(fair.places.entries(stays_away) <= 2 * TENANT_PLACE_ENTRIES_KEPT);
    assert_eq!(fair.places.entries(comes_back), most, "nothing was given back and taken again");
}

#[test]
fn the_newest_parked_one_of_whoever_has_most_is_taken() {
    let mut fair = Fair::new(SLICE);
    let (one, many) = (fair.enter(&account(1, 100)), fair.enter(&account(2, 100)));
    for item in 0..3 {
        fair.park(many, item);
    }
    fair.park(one, 9);
    assert_eq!(fair.take_newest_of_most_parked(), Some(2));
    assert_eq!(fair.take_parked(|item| *item == 9), Some(9));
    assert_eq!(fair.take_parked(|item| *item == 9), None);
    assert_eq!((fair.parked(), fair.ready()), (2, 0));
    assert_eq!([fair.take_any(), fair.take_any(), fair.take_any()], [Some(0), Some(1), None]);
}

#[test]
fn of_those_that_have_as_many_parked_who_used_most_loses_one() {
    let mut fair = Fair::new(SLICE);
    let places: Vec<_> = (0..3).map(|tenant| fair.enter(&account(tenant, 100))).collect();
    for (place, used) in places.iter().zip([SLICE, 5 * SLICE, 2 * SLICE]) {
        fair.park(*place, used);
        fair.charge(*place, used);
    }
    assert_eq!(fair.take_newest_of_most_parked(), Some(5 * SLICE));
    assert_eq!(fair.take_newest_of_most_parked(), Some(2 * SLICE));
}

#[test]
fn all_that_are_picked_are_taken_and_the_others_keep_their_order() {
    let mut fair = Fair::new(SLICE);
    for tenant in 0..3 {
        let place = fair.enter(&account(tenant, 100));
        for item in 0..4 {
            fair.push(place, 10 * tenant + item);
        }
        fair.park(place, 10 * tenant + 4);
        fair.park(place, 10 * tenant + 5);
    }
    let taken = fair.take_all(|item| item / 10 == 1 || item % 2 == 0);
    assert_eq!(taken, [0, 2, 4, 10, 11, 12, 13, 14, 15, 20, 22, 24]);
    assert_eq!((fair.ready(), fair.parked()), (4, 2));
    let left: Vec<_> = std::iter::from_fn(|| fair.next(true)).map(|turn| turn.item).collect();
    assert_eq!(left, [1, 3, 5, 21, 23, 25]);
}

#[test]
fn what_goes_to_others_is_the_newest_of_who_waits_longest() {
    let mut fair = Fair::new(SLICE);
    let accounts = [account(1, 100), account(2, 100)];
    let places: Vec<PlaceId> = accounts.iter().map(|account| fair.enter(account)).collect();
    for item in 0..3 {
        fair.push(places[0], item);
        fair.push(places[1], 10 + item);
    }
    assert_eq!(fair.take_farthest(|_| true), Some(12));
    assert_eq!(fair.take_farthest(|item| *item < 10), Some(2), "what began stays");
    assert_eq!(fair.take_farthest(|_| false), None);
    assert_eq!(fair.ready(), 4);
    let order: Vec<_> = std::iter::from_fn(|| fair.next(true)).map(|turn| turn.item).collect();
    assert_eq!(order, [0, 1, 10, 11]);
}
