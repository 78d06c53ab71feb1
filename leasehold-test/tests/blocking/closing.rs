//! The end of a client: closed, dropped, or outlived.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use leasehold::{Error, LeaseState};

use crate::everywhere;
use crate::support::{BRIEF, Bench, SOON, eventually, ms, work};

everywhere! {
    every_call_after_the_close_says_closed,
    a_close_sends_what_was_queued_and_joins,
    a_second_close_gives_the_same_report,
    a_close_ends_every_wait,
    calls_that_race_with_a_close_end,
    a_releasing_close_tells_the_loss_and_frees,
    a_hold_outlives_a_close_until_its_lease_ends,
    a_dropped_client_sends_what_was_queued,
    a_guard_outlives_its_client,
}

fn every_call_after_the_close_says_closed(bench: &Bench) {
    let client = bench.client();
    let mutex = client.mutex("m");
    let fixed = mutex.clone().fixed_lease(SOON);
    let [released, extended, handed] = ["a", "b", "c"].map(|name| {
        let mutex = client.mutex(name).fixed_lease(SOON);
        mutex.lock().unwrap()
    });
    client.clone().close();
    let answers = [
        mutex.lock().err(),
        mutex.try_lock().err(),
        mutex.try_lock_for(SOON).err(),
        mutex.lock_interruptibly(&Default::default()).err(),
        mutex
            .try_lock_for_interruptibly(SOON, &Default::default())
            .err(),
        fixed.with(|_| ()).err(),
        mutex.force_unlock().err(),
        mutex.is_locked().err(),
        mutex.hold_count(released.hold_id()).err(),
        mutex.remaining().err(),
        mutex.status().err(),
        client.list("*").err(),
        extended.extend(SOON).err(),
        released.release().err(),
        handed.release().err(),
    ];
    for (number, answer) in answers.iter().enumerate() {
        assert!(
            matches!(answer, Some(Error::Closed(_))),
            "{number} {answer:?}"
        );
    }
}

fn a_close_sends_what_was_queued_and_joins(bench: &Bench) {
    let (a, b) = (bench.client(), bench.client());
    for number in 0..20 {
        drop(a.mutex(&format!("m{number}")).lock().unwrap());
    }
    let report = a.close();
    assert_eq!((report.unreleased, report.outstanding), (0, 0));
    assert!(b.list("*").unwrap().is_empty());
}

fn a_second_close_gives_the_same_report(bench: &Bench) {
    let client = bench.client();
    let _guard = client.mutex("m").lock().unwrap();
    let again = client.clone();
    let beside = work({
        let client = client.clone();
        move || client.close()
    });
    let report = client.close();
    assert_eq!(report.outstanding, 1);
    assert_eq!(beside.soon(), report);
    assert_eq!(again.close_and_release(), report, "it was closed otherwise");
}

fn a_close_ends_every_wait(bench: &Bench) {
    let (a, b) = (bench.client(), bench.client());
    let _held = a.mutex("m").lock().unwrap();
    let waits = ["lock", "bounded"].map(|how| {
        let mutex = b.mutex("m");
        work(move || match how {
            "lock" => mutex.lock().err(),
            _ => mutex.try_lock_for(10 * SOON).err(),
        })
    });
    for wait in &waits {
        assert!(wait.within(BRIEF).is_none());
    }
    b.close();
    for wait in waits {
        assert!(matches!(wait.soon(), Some(Error::Closed(_))));
    }
}

/// A timer whose runtime ends before it would panic.
fn calls_that_race_with_a_close_end(bench: &Bench) {
    for round in 0..10 {
        // The lock of the round before may not have ended yet.
        let name = format!("busy{round}");
        let client = bench.client();
        let busy = client.mutex(&name).fixed_lease(ms(500)).lock().unwrap();
        let lease = busy.lease();
        let open = Arc::new(AtomicBool::new(true));
        let calls: Vec<_> = (0..6)
            .map(|kind| {
                let (mutex, lease) = (client.mutex(&name), lease.clone());
                let (other, open) = (client.mutex("free"), Arc::clone(&open));
                work(move || {
                    while open.load(Ordering::SeqCst) {
                        let call = match kind {
                            0 => mutex.lock().map(drop),
                            1 => mutex.try_lock_for(ms(1)).map(drop),
                            2 => other.try_lock().map(drop),
                            3 => other.with(|_| ()),
                            4 => mutex.status().map(drop),
                            _ => {
                                lease.lost_for(ms(1));
                                Ok(())
                            }
                        };
                        if matches!(call, Err(Error::Closed(_))) {
                            return;
                        }
                        call.unwrap();
                    }
                })
            })
            .collect();
        client.close();
        open.store(false, Ordering::SeqCst);
        for call in calls {
            call.soon();
        }
        let _ = busy.forget();
    }
}

fn a_releasing_close_tells_the_loss_and_frees(bench: &Bench) {
    let (a, b) = (bench.client(), bench.client());
    let guard = a.mutex("m").lock().unwrap();
    let lease = guard.lease();
    let watching = work(move || lease.lost());
    a.close_and_release();
    assert!(watching.soon());
    assert_eq!(guard.state(), LeaseState::Lost);
    b.mutex("m").try_lock().unwrap().unwrap().release().unwrap();
}

fn a_hold_outlives_a_close_until_its_lease_ends(bench: &Bench) {
    let (a, b) = (bench.client(), bench.client());
    let guard = a.mutex("m").ttl(ms(1_000)).lock().unwrap();
    let lease = guard.lease();
    let watching = work(move || lease.lost());
    assert_eq!(a.close().outstanding, 1);
    assert!(guard.is_held() && b.mutex("m").is_locked().unwrap());
    assert!(!guard.lost_for(ms(10)));
    guard.lease().ends_within(ms(200));
    assert!(guard.lease().remaining() <= ms(200));
    // Nobody renews it any more, and there is no runtime: it is lost in time all the same.
    guard.lost();
    assert!(watching.soon());
    drop(guard);
}

fn a_dropped_client_sends_what_was_queued(bench: &Bench) {
    let (a, b) = (bench.client(), bench.client());
    let guard = a.mutex("m").lock().unwrap();
    drop(guard);
    drop(a);
    eventually("the lock is free", || !b.mutex("m").is_locked().unwrap());
}

fn a_guard_outlives_its_client(bench: &Bench) {
    let (a, b) = (bench.client(), bench.client());
    let kept = a.mutex("kept").ttl(ms(300)).lock().unwrap();
    let left = a.mutex("left").lock().unwrap();
    drop(a);
    assert!(!kept.lost_for(ms(700)), "it is renewed on");
    kept.release().unwrap();
    thread::spawn(move || drop(left)).join().unwrap();
    eventually("the lock is free", || !b.mutex("left").is_locked().unwrap());
}
