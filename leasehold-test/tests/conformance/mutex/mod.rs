//! The reentrant lock.

mod close;
mod config;
mod exclusion;
mod lease;
mod loss;
mod owners;
mod queries;
mod records;
mod runtime;
mod waiting;

/// What holds for mutexes of every format, fenced or not.
macro_rules! of_every_mutex {
    ($run:ident) => {
        $run! {
            exclusion::two_clients_exclude_each_other,
            exclusion::two_takers_in_one_client_exclude_each_other,
            exclusion::work_under_the_lock_never_overlaps,
            exclusion::a_try_on_a_busy_lock_answers_none_at_once,
            exclusion::a_bounded_try_gives_up_in_its_time,
            exclusion::a_bounded_try_gets_a_lock_that_is_freed_in_its_time,
            exclusion::a_bounded_try_of_no_time_is_one_try,
            exclusion::names_do_not_block_each_other,
            exclusion::a_name_with_a_hash_tag_is_a_lock_like_any_other,
            exclusion::branches_of_one_task_are_two_owners,
            waiting::a_waiter_of_the_same_client_is_woken_by_a_release,
            waiting::a_dropped_guard_frees_and_wakes,
            waiting::the_end_of_a_lease_wakes_a_waiter,
            waiting::an_uncontended_lock_never_listens,
            waiting::a_polling_waiter_gets_the_lock_without_listening,
            waiting::a_waiter_that_gave_up_does_not_hurt_the_next,
            waiting::a_waiter_that_left_hands_on_its_turn,
            waiting::a_try_passes_the_waiters_by,
            waiting::a_dropped_lock_future_leaves_nothing,
            waiting::a_dropped_release_future_still_releases,
            waiting::a_release_during_the_subscription_is_not_missed,
            lease::a_fixed_lease_ends_by_itself,
            lease::a_fixed_lease_is_not_renewed,
            lease::a_late_release_says_lost_and_spares_the_successor,
            lease::a_renewed_lease_outlives_its_ttl,
            lease::renewal_stops_at_the_longest_hold,
            lease::an_extension_prolongs_and_never_shortens,
            lease::a_renewed_lease_is_not_extended_by_hand,
            lease::an_extension_after_the_loss_says_lost,
            lease::a_forgotten_hold_lives_by_its_ttl,
            lease::the_last_guard_of_a_hold_releases_it,
            lease::a_deep_re_entry_ends_with_its_last_guard,
            lease::nothing_is_renewed_after_a_release,
            lease::a_lease_tells_when_it_is_about_to_end,
            lease::settings_of_one_handle_do_not_leak_into_another,
            loss::a_removed_lock_is_lost_within_a_third_of_its_ttl,
            loss::a_loss_is_latched,
            loss::a_loss_ends_the_work_under_it,
            loss::work_that_ends_in_time_gives_its_result,
            loss::renewal_never_brings_a_removed_lock_back,
            loss::one_lost_lock_does_not_stop_the_renewal_of_others,
            loss::the_same_name_locks_again_after_a_loss,
            loss::breaking_a_lock_frees_it_and_wakes_a_waiter,
            loss::breaking_a_free_lock_says_that_it_was_free,
            queries::a_status_tells_hold_count_and_time_left,
            queries::a_free_lock_has_no_status,
            config::bad_input_is_refused_before_anything_is_sent,
            config::a_hundred_years_are_a_lease,
            close::waiters_end_when_their_client_is_closed,
            close::calls_after_the_close_say_closed,
            close::queued_releases_are_sent_by_the_close,
            close::outstanding_holds_are_reported_and_left_alone,
            close::a_releasing_close_tells_the_loss_and_frees_at_once,
            close::nothing_is_renewed_after_the_close,
            runtime::a_blocked_thread_makes_holds_uncertain_and_then_lost,
        }
    };
}

/// What holds where every holder announces its release.
macro_rules! of_announced_mutexes {
    ($run:ident) => {
        $run! {
            waiting::a_waiter_is_woken_by_a_release,
            queries::a_list_has_the_names_that_match,
            waiting::waiters_of_one_client_go_in_order_on_one_subscription,
        }
    };
}

macro_rules! everywhere {
    ($($tests:tt)*) => {
        on!(memory Memory; $($tests)*);
        on!(local Local; $($tests)*);
        on!(redis Redis; $($tests)*);
    };
}

of_every_mutex!(everywhere);

mod announced {
    use super::{queries, waiting};
    of_announced_mutexes!(everywhere);
}

/// The local store applies what memory applies.
macro_rules! fenced_everywhere {
    ($($tests:tt)*) => {
        on_flavour!(Redisson true; memory Memory; $($tests)*);
        on_flavour!(Redisson true; redis Redis; $($tests)*);
    };
}

mod fenced {
    use super::{close, config, exclusion, lease, loss, queries, runtime, waiting};
    of_every_mutex!(fenced_everywhere);
}

macro_rules! plain_everywhere {
    ($($tests:tt)*) => {
        on_flavour!(Plain false; memory Memory; $($tests)*);
        on_flavour!(Plain false; local Local; $($tests)*);
        on_flavour!(Plain false; redis Redis; $($tests)*);
    };
}

mod plain {
    use super::{close, config, exclusion, lease, loss, queries, runtime, waiting};
    of_every_mutex!(plain_everywhere);
}

/// What is not for every flavour.
mod named {
    use super::{owners, records};
    everywhere! {
        owners::an_owner_enters_again_and_the_store_counts,
        owners::every_first_entry_has_a_hold_of_its_own,
        owners::two_owners_exclude_each_other,
        owners::tasks_of_one_owner_enter_together,
        owners::a_free_lock_that_an_owner_takes_while_it_waits_lets_the_waiter_in,
        owners::a_thousand_entries_are_counted_at_every_step,
        owners::guards_may_go_in_any_order,
        owners::a_hold_lost_in_the_middle_is_lost_for_every_entry,
        owners::a_step_down_finds_the_loss,
        owners::random_entries_leave_nothing,
        owners::no_entry_shortens_the_lease,
        owners::what_cannot_work_with_an_owner_is_refused,
        owners::a_forgotten_entry_is_forgotten_by_all,
        owners::a_releasing_close_frees_what_was_entered_often,
        owners::a_closed_client_lets_nobody_in_again,
        owners::an_adopted_hold_is_renewed_and_released_here,
        owners::a_java_threads_holds_are_adopted_whole,
        owners::a_fixed_adopter_takes_what_is_left,
        records::a_holder_is_known_by_host_process_and_label,
        records::a_closed_client_leaves_no_record,
        records::a_hold_that_outlives_its_client_keeps_its_record,
        records::a_prefix_is_put_in_front_once_and_never_shown,
        records::a_prefix_is_no_pattern_and_may_be_a_hash_tag,
    }
}

macro_rules! everywhere_on_threads {
    ($($tests:tt)*) => {
        mod threads {
            use super::runtime;
            on_threads!(memory Memory; $($tests)*);
            on_threads!(local Local; $($tests)*);
            on_threads!(redis Redis; $($tests)*);
        }
    };
}

everywhere_on_threads! {
    runtime::a_guard_dropped_on_a_plain_thread_frees,
    runtime::a_guard_dropped_while_unwinding_frees,
    runtime::a_guard_dropped_after_its_runtime_is_harmless,
    runtime::a_client_of_an_ended_runtime_says_closed,
}

/// Where somebody else can write under a lock's name.
mod foreign {
    use super::queries;
    on!(memory Memory;
        queries::a_key_of_another_type_is_refused_and_left_alone,
        queries::a_list_passes_over_other_keys,
        queries::a_key_that_became_another_type_is_a_loss,
    );
    on!(redis Redis;
        queries::a_key_of_another_type_is_refused_and_left_alone,
        queries::a_list_passes_over_other_keys,
        queries::a_key_that_became_another_type_is_a_loss,
    );
}
