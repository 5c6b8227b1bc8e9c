//! Room for records and answers, through the places of streams: tenants share it, and all comes back.

use std::thread;
use std::time::Duration;

use wire::TenantId;

use super::{LIMITS, PATIENCE, connection, listener, prefix};
use crate::limits::{ANSWERS_BYTES_MAX, RECORDS_BYTES_MAX, UNCOUNTED_RECORD_BYTES};
use crate::server::streams::{Holder, Streams};

#[test]
fn a_tenant_that_stalls_in_large_records_has_room_for_some_and_leaves_room_for_others() {
    let (streams, listener) = (Streams::new(LIMITS), listener());
    let place = |holder| {
        let place = streams.enter(connection(&listener).1, prefix(1), Duration::ZERO).expect("a place");
        place.take(holder).expect("within the limits");
        place
    };
    let [ann, bob] = [1, 2].map(|tenant| place(Holder::Tenant(TenantId(tenant))));
    let operator = place(Holder::Operator);
    let (half, rest) = (RECORDS_BYTES_MAX / 2, RECORDS_BYTES_MAX / 4);
    for _ in 0..3 {
        let held = ann.room_for(half, Duration::ZERO).expect("half of all");
        assert!(ann.room_for(UNCOUNTED_RECORD_BYTES + 1, Duration::ZERO).is_none());
        let _short = ann.room_for(UNCOUNTED_RECORD_BYTES, Duration::ZERO).expect("it is not counted");
        let _other = bob.room_for(rest, Duration::ZERO).expect("half of what is left");
        assert!(bob.room_for(rest, Duration::ZERO).is_none());
        let _operators = operator.room_for(RECORDS_BYTES_MAX, Duration::ZERO).expect("whatever others do");
        thread::scope(|scope| {
            let waiting = scope.spawn(|| ann.room_for(rest, PATIENCE).is_some());
            drop(held);
            assert!(waiting.join().expect("no panic"), "it waited for the one before");
        });
    }
    let _held = ann.room_for(half, Duration::ZERO).expect("all was given back");
    streams.close_all();
    assert!(ann.room_for(half, PATIENCE).is_none(), "nobody waits when all is over");
}

#[test]
fn room_of_an_answer_that_turns_out_short_is_free_at_once_and_apart_from_that_of_records() {
    let (streams, listener) = (Streams::new(LIMITS), listener());
    let place = streams.enter(connection(&listener).1, prefix(1), Duration::ZERO).expect("a place");
    place.take(Holder::Tenant(TenantId(1))).expect("within the limits");
    let _record = place.room_for(RECORDS_BYTES_MAX / 2, Duration::ZERO).expect("half of all");
    let half = ANSWERS_BYTES_MAX / 2;
    for kept in [0, UNCOUNTED_RECORD_BYTES, half / 2] {
        let mut room = place.room_for_answer(half, Duration::ZERO).expect("half of all");
        assert!(place.room_for_answer(half / 2, Duration::ZERO).is_none());
        room.shrink_to(kept);
        let rest = if kept == half / 2 { half / 2 } else { half };
        assert!(place.room_for_answer(rest, Duration::ZERO).is_some(), "beside {kept}");
        assert!(place.room_for_answer(rest + 1, Duration::ZERO).is_none(), "beside {kept}");
    }
    assert!(place.room_for_answer(half, Duration::ZERO).is_some(), "all was given back");
}
