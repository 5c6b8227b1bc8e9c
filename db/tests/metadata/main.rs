//! The metadata and the records below it, over a file, over a real etcd and in memory: the same claims hold for all. What only
//! etcd can do to a server, dying, standing still, losing an answer, has claims of its own.
//!
//! Each test that needs an etcd starts its own, in a directory of its own, and ends it.

#[path = "../support/etcd_process.rs"]
mod etcd_process;
#[path = "../support/memory_records.rs"]
mod memory_records;
mod moving;
mod outage;
#[path = "../support/patience.rs"]
mod patience;
mod place;
#[path = "../support/proxy.rs"]
mod proxy;
mod rules;
mod suite;

macro_rules! on_all {
    ($suite:ident: $($claim:ident),+ $(,)?) => {
        mod $suite {
            mod over_a_file {
                $(#[test]
                fn $claim() {
                    crate::$suite::$claim(&crate::place::Place::file());
                })+
            }
            mod over_etcd {
                $(#[test]
                fn $claim() {
                    crate::$suite::$claim(&crate::place::Place::etcd());
                })+
            }
            mod in_memory {
                $(#[test]
                fn $claim() {
                    crate::$suite::$claim(&crate::place::Place::memory());
                })+
            }
        }
    };
}

mod claims {
    on_all!(suite:
        a_commit_happens_when_all_conditions_hold_and_else_not_at_all,
        a_span_is_the_same_until_somebody_writes_in_it,
        queries_are_answered_as_of_one_commit,
        spans_are_read_from_either_end_in_pages,
        a_watch_shows_the_commits_behind_its_beginning_in_order,
        a_lease_that_is_not_kept_takes_its_records_along,
        a_lease_that_is_revoked_takes_its_records_along,
        large_values_are_stored_whole,
    );
    on_all!(rules:
        numbers_of_two_who_change_at_once_are_given_once,
        a_limit_holds_against_two_who_change_at_once,
        a_tenant_that_another_one_dropped_gets_nothing_more,
        durability_changes_between_written_and_synced_alone,
        what_one_installs_the_other_one_reads,
        grants_to_a_tenant_that_is_gone_are_swept_however_many,
        parts_of_a_log_are_recorded_however_many,
        acts_are_read_by_all_and_by_their_tenant,
        a_server_that_was_started_again_takes_its_registration_over,
    );
    on_all!(moving:
        nobody_is_taken_for_gone_who_is_registered_by_then,
        a_start_ends_what_the_one_before_was_moving_and_can_still_have,
        tablets_have_all_hashes_once_however_they_are_cut,
        the_owner_changes_in_the_commit_that_changes_the_standing,
        hashes_are_in_one_migration_whoever_begins_it,
        a_table_says_how_its_tablets_move_where_nobody_else_does,
        tablets_and_migrations_go_with_their_table,
    );
}
