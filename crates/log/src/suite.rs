//! The conformance suite: what every announcement log must do, as tests over a small harness.
//!
//! A log's test file implements [`Harness`] and lets [`for_each_log_case!`](crate::for_each_log_case)
//! make one test of each case:
//!
//! ```text
//! macro_rules! tests {
//!     ($($case:ident),* $(,)?) => { $(
//!         #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
//!         async fn $case() { suite::$case(&MyHarness).await }
//!     )* };
//! }
//! waypost_log::for_each_log_case!(tests);
//! ```
//!
//! or runs [`all`] of them in one test, where starting what the log needs is dear. Cases assume
//! nothing of time: they wait for what must happen, up to [`DEADLINE`].
#![expect(
    clippy::expect_used,
    reason = "this module is test code, compiled with feature `suite` only"
)]

mod appending;
mod follower;
mod harness;
mod reading;

pub use self::appending::*;
pub use self::follower::Follower;
pub use self::harness::{CompareAndSet, DEADLINE, Harness, TestLog};
pub use self::reading::*;

/// Calls the macro `$tests` with the names of all cases, separated by commas.
#[macro_export]
macro_rules! for_each_log_case {
    ($tests:ident) => {
        $tests! {
            records_of_one_key_keep_their_order,
            the_key_decides_the_partition_by_murmur2,
            an_explicit_partition_stands_above_the_key,
            headers_come_back_as_they_were_written,
            null_and_empty_values_come_back_as_they_were_written,
            offsets_are_dense_and_increase,
            append_times_never_decrease_and_are_those_acknowledged,
            a_record_over_the_limit_is_refused_and_the_rest_flows,
            a_record_without_a_key_is_refused,
            a_partition_that_does_not_exist_is_refused,
            concurrent_appenders_lose_nothing_and_keep_their_order,
            heartbeats_and_changes_are_seen_in_one_order,
            a_compare_and_set_that_names_another_revision_is_a_conflict,
            of_two_compare_and_sets_at_once_one_wins,
            everything_acknowledged_survives_a_restart,
            a_reader_hears_partitions_then_bounds_then_records_then_the_end,
            an_empty_partition_is_caught_up_at_once,
            a_reader_starts_where_it_is_told,
            every_reader_sees_the_same,
            a_waiting_reader_is_woken_by_an_append,
            bounds_are_reported_again,
            a_position_above_the_end_is_out_of_range,
            dropping_next_loses_nothing,
            one_record_is_read_again,
            topics_do_not_mix,
        }
    };
}

macro_rules! run_all {
    ($($case:ident),* $(,)?) => {
        /// Runs every case, one after another; says each one's name before it runs.
        pub async fn all(harness: &dyn Harness) {
            $(
                tracing::info!(case = stringify!($case), "log suite");
                $case(harness).await;
            )*
        }

        /// The names of all cases.
        pub const CASES: &[&str] = &[$(stringify!($case)),*];
    };
}
for_each_log_case!(run_all);
