//! Tests of taking items out regardless of turns.

use super::{Fair, PlaceId, SLICE, account};

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
