//! The core facts of the mutex, through the façade.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use leasehold::{Backoff, Error, LeaseState, Wait};

use crate::everywhere;
use crate::support::{BRIEF, Bench, SOON, ms, now, work};

everywhere! {
    two_clients_exclude_each_other,
    many_threads_of_one_client_go_one_by_one,
    a_bounded_try_gives_up_in_its_time,
    a_waiter_is_woken_by_a_release,
    a_polling_waiter_gets_the_lock,
    a_guard_dropped_on_another_thread_frees,
    a_renewed_lease_outlives_its_ttl,
    a_fixed_lease_ends_and_is_extended,
    a_lost_hold_is_told,
    work_under_the_lock_gives_its_result,
    work_whose_hold_was_lost_says_lost,
    work_that_panics_gives_the_lock_back,
    a_hold_that_was_entered_again_ends_with_its_last_guard,
    a_forgotten_hold_stays,
    a_lease_tells_when_it_is_about_to_end,
    queries_tell_who_holds,
    a_broken_lock_wakes_a_waiter,
    bad_input_is_a_config_error,
    only_a_local_store_has_files,
}

fn two_clients_exclude_each_other(bench: &Bench) {
    let (a, b) = (bench.client(), bench.client());
    let guard = a.mutex("m").lock().unwrap();
    assert!(guard.is_held() && guard.state() == LeaseState::Held);
    assert!(b.mutex("m").try_lock().unwrap().is_none());
    guard.release().unwrap();
    let next = b.mutex("m").try_lock().unwrap().expect("it is free");
    next.release().unwrap();
}

fn many_threads_of_one_client_go_one_by_one(bench: &Bench) {
    let client = bench.client();
    let (inside, entered) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..5 {
                    let guard = client.mutex("m").lock().unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at a time");
                    entered.fetch_add(1, Ordering::SeqCst);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    guard.release().unwrap();
                }
            });
        }
    });
    assert_eq!(entered.into_inner(), 40);
}

fn a_bounded_try_gives_up_in_its_time(bench: &Bench) {
    let client = bench.client();
    let _guard = client.mutex("m").lock().unwrap();
    let begun = now();
    assert!(client.mutex("m").try_lock_for(BRIEF).unwrap().is_none());
    let waited = begun.elapsed();
    assert!(waited >= BRIEF && waited < SOON, "{waited:?}");
}

fn a_waiter_is_woken_by_a_release(bench: &Bench) {
    let (a, b) = (bench.client(), bench.client());
    let guard = a.mutex("m").lock().unwrap();
    let mutex = b.mutex("m");
    let waiting = work(move || mutex.lock().unwrap());
    assert!(waiting.within(BRIEF).is_none());
    guard.release().unwrap();
    waiting.soon().release().unwrap();
}

fn a_polling_waiter_gets_the_lock(bench: &Bench) {
    let (a, b) = (bench.client(), bench.client());
    let guard = a.mutex("m").lock().unwrap();
    let mutex = b.mutex("m").wait(Wait::Poll(Backoff::default()));
    let waiting = work(move || mutex.outage(SOON).lock().unwrap());
    guard.release().unwrap();
    waiting.soon().release().unwrap();
}

fn a_guard_dropped_on_another_thread_frees(bench: &Bench) {
    let (a, b) = (bench.client(), bench.client());
    let guard = a.mutex("m").lock().unwrap();
    work(move || drop(guard)).soon();
    let next = b.mutex("m").try_lock_for(SOON).unwrap();
    next.expect("it was given back").release().unwrap();
}

fn a_renewed_lease_outlives_its_ttl(bench: &Bench) {
    let client = bench.client();
    let guard = client.mutex("m").ttl(ms(300)).lock().unwrap();
    assert!(!guard.lost_for(ms(1_000)));
    assert!(client.mutex("m").is_locked().unwrap());
    guard.release().unwrap();
}

fn a_fixed_lease_ends_and_is_extended(bench: &Bench) {
    let client = bench.client();
    let guard = client.mutex("m").fixed_lease(ms(300)).lock().unwrap();
    guard.extend(ms(900)).unwrap();
    assert!(!guard.lost_for(ms(450)), "it was extended");
    assert!(guard.lost_for(SOON));
    assert!(matches!(guard.release(), Err(Error::Lost(_))));
}

fn a_lost_hold_is_told(bench: &Bench) {
    let client = bench.client();
    let guard = client.mutex("m").ttl(ms(600)).lock().unwrap();
    let lease = guard.lease();
    let watching = work(move || lease.lost());
    assert!(watching.within(BRIEF).is_none());
    bench.remove("m");
    guard.lost();
    assert!(!guard.is_held() && guard.state() == LeaseState::Lost);
    assert!(watching.soon());
    assert!(matches!(guard.release(), Err(Error::Lost(_))));
}

fn work_under_the_lock_gives_its_result(bench: &Bench) {
    let client = bench.client();
    let mutex = client.mutex("m");
    let (done, lease) = mutex
        .with(|lease| {
            assert!(lease.is_held() && !lease.remaining().is_zero());
            assert!(mutex.is_locked().unwrap(), "the work may call, too");
            (42, lease)
        })
        .unwrap();
    assert_eq!((done, lease.state()), (42, LeaseState::Released));
    // A hold that was given back is not lost, and nobody waits for that for ever.
    assert!(!lease.lost());
    assert!(!mutex.is_locked().unwrap());
}

fn work_whose_hold_was_lost_says_lost(bench: &Bench) {
    let client = bench.client();
    let done = client.mutex("m").ttl(ms(600)).with(|lease| {
        bench.remove("m");
        assert!(lease.lost());
    });
    assert!(matches!(done, Err(Error::Lost(_))));
}

fn work_that_panics_gives_the_lock_back(bench: &Bench) {
    let (a, b) = (bench.client(), bench.client());
    let mutex = a.mutex("m");
    let failing = thread::spawn(move || {
        mutex.with(|_| std::panic::resume_unwind(Box::new("the work failed")))
    });
    failing.join().unwrap_err();
    let next = b.mutex("m").try_lock_for(SOON).unwrap();
    next.expect("it was given back").release().unwrap();
}

fn a_hold_that_was_entered_again_ends_with_its_last_guard(bench: &Bench) {
    let client = bench.client();
    let outer = client.mutex("m").lock().unwrap();
    let inner = outer.reenter();
    assert_eq!(inner.hold_id(), outer.hold_id());
    outer.release().unwrap();
    assert!(client.mutex("m").is_locked().unwrap());
    inner.release().unwrap();
    assert!(!client.mutex("m").is_locked().unwrap());
}

fn a_forgotten_hold_stays(bench: &Bench) {
    let (a, b) = (bench.client(), bench.client());
    let hold = a.mutex("m").lock().unwrap().forget();
    a.close();
    assert_eq!(b.mutex("m").hold_count(&hold).unwrap(), 1);
}

fn a_lease_tells_when_it_is_about_to_end(bench: &Bench) {
    let client = bench.client();
    let guard = client.mutex("m").fixed_lease(ms(800)).lock().unwrap();
    let lease = guard.lease();
    lease.ends_within(ms(500));
    assert!(lease.is_held() && lease.remaining() <= ms(500));
    assert!(guard.lost_for(SOON));
}

fn queries_tell_who_holds(bench: &Bench) {
    let client = bench.client();
    let mutex = client.mutex("m");
    assert!(mutex.status().unwrap().is_none() && mutex.remaining().unwrap().is_none());
    let guard = mutex.clone().max_hold(SOON).lock().unwrap();
    let status = mutex.status().unwrap().expect("it is held");
    assert_eq!((&status.hold, status.count), (guard.hold_id(), 1));
    assert!(mutex.remaining().unwrap().is_some());
    let listed = client.list("*").unwrap();
    assert_eq!((listed.len(), &listed[0].hold), (1, guard.hold_id()));
    guard.release().unwrap();
}

fn a_broken_lock_wakes_a_waiter(bench: &Bench) {
    let (a, b) = (bench.client(), bench.client());
    let guard = a.mutex("m").lock().unwrap();
    let mutex = b.mutex("m");
    let waiting = work(move || mutex.lock().unwrap());
    assert!(waiting.within(BRIEF).is_none());
    assert!(b.mutex("m").force_unlock().unwrap());
    let next = waiting.soon();
    assert!(matches!(guard.release(), Err(Error::Lost(_))));
    next.release().unwrap();
}

fn bad_input_is_a_config_error(bench: &Bench) {
    let client = bench.client();
    let bad = [
        client.mutex("").lock().err(),
        client.mutex("m").ttl(ms(1)).lock().err(),
        client.mutex("m").fixed_lease(ms(0)).lock().err(),
        client.mutex("m").outage(ms(0)).lock().err(),
        leasehold::blocking::Client::connect("ftp://x").err(),
    ];
    for (number, error) in bad.iter().enumerate() {
        assert!(
            matches!(error, Some(Error::Config(_))),
            "{number} {error:?}"
        );
    }
}

fn only_a_local_store_has_files(bench: &Bench) {
    let client = bench.client();
    let guard = client.mutex("m").lock().unwrap();
    let file = guard.hold_file().unwrap();
    assert_eq!(file.is_some(), client.directory().is_some());
    // The file is open here, as it may be in a child process: the lock stays with it.
    assert_eq!(guard.hand_over().unwrap(), file.is_some());
    assert_eq!(client.mutex("m").is_locked().unwrap(), file.is_some());
}
