//! Faults planted in the library, each of which must make a named fact fail.
//!
//! A planted fault stays in its process, so each fact is run again in a process of its own: this
//! very test binary, with the fault's name in the environment.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "the helpers of tests fail as tests do"
)]

use std::process::{Command, Output};

use leasehold::planted::{Fault, plant};

const FAULT: &str = "LEASEHOLD_TEST_PLANT";

const FAULTS: [Fault; 6] = [
    Fault::DeadlineFromReply,
    Fault::NoRecheck,
    Fault::RenewalOutlivesRelease,
    Fault::PublishBeforeDelete,
    Fault::NoscriptIsBusy,
    Fault::ReleaseWithoutOwner,
];

/// What holds, and what the planted faults break.
mod facts {
    use std::time::Duration;

    use leasehold::{Client, Error, LeaseState, Memory, testing};
    use leasehold_test::{Server, within};
    use tokio::time::{Instant, sleep};

    use super::plant_from_environment;

    /// Takes the lock while the server stands still for some time in the middle.
    async fn lock_through_a_stop(lease: Duration, stop: Duration) -> leasehold::MutexGuard {
        plant_from_environment();
        let server = Server::start().await;
        let client = Client::connect(&server.url()).await.unwrap();
        let mutex = client.mutex("x").fixed_lease(lease);
        let first = mutex.lock().await.unwrap();
        first.release().await.unwrap();
        server.pause();
        let (guard, ()) = tokio::join!(within("the lock", mutex.lock()), async {
            sleep(stop).await;
            server.resume();
        });
        guard.unwrap()
    }

    #[tokio::test]
    async fn the_deadline_counts_from_before_the_request() {
        let (lease, stop) = (Duration::from_secs(5), Duration::from_millis(600));
        let guard = lock_through_a_stop(lease, stop).await;
        let left = guard.lease().remaining();
        assert!(
            left < lease - stop,
            "{left:?} of {lease:?} after a stop of {stop:?}"
        );
    }

    #[tokio::test]
    async fn a_hold_whose_lease_ran_out_on_the_way_is_not_returned() {
        let (lease, stop) = (Duration::from_secs(1), Duration::from_millis(1_500));
        let guard = lock_through_a_stop(lease, stop).await;
        assert_ne!(guard.lease().state(), LeaseState::Lost);
    }

    #[tokio::test(start_paused = true)]
    async fn a_released_hold_is_watched_no_more() {
        plant_from_environment();
        let client = Client::memory();
        client
            .mutex("x")
            .lock()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        let stats = testing::stats(&client);
        assert_eq!((stats.watched, stats.renewal_batches), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_woken_waiter_finds_the_lock_free() {
        plant_from_environment();
        let memory = Memory::new();
        let (a, b) = (
            Client::builder().memory(&memory),
            Client::builder().memory(&memory),
        );
        let held = a.mutex("x").lock().await.unwrap();
        let mutex = b.mutex("x");
        let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
        sleep(Duration::from_secs(1)).await;
        let released = Instant::now();
        held.release().await.unwrap();
        let _guard = waiter.await.unwrap();
        assert_eq!(released.elapsed(), Duration::ZERO);
        assert_eq!(testing::stats(&b).woken_by_timer, 0);
    }

    #[tokio::test]
    async fn a_server_that_forgot_its_scripts_is_not_busy() {
        plant_from_environment();
        let server = Server::start().await;
        let client = Client::connect(&server.url()).await.unwrap();
        for _ in 0..3 {
            server.query::<()>(&["SCRIPT", "FLUSH"]).await;
            let guard = client
                .mutex("x")
                .try_lock()
                .await
                .unwrap()
                .expect("the lock is free");
            server.query::<()>(&["SCRIPT", "FLUSH"]).await;
            guard.release().await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_release_frees_nobody_elses_lock() {
        plant_from_environment();
        let client = Client::memory();
        let mutex = client.mutex("x").fixed_lease(Duration::from_secs(1));
        let late = mutex.lock().await.unwrap();
        late.lost().await;
        // What is left of the margin between the holder's deadline and the store's expiry.
        sleep(Duration::from_millis(20)).await;
        let held = mutex
            .clone()
            .fixed_lease(Duration::from_secs(60))
            .lock()
            .await
            .unwrap();
        assert!(matches!(late.release().await, Err(Error::Lost(_))));
        sleep(Duration::from_secs(1)).await;
        assert_eq!(mutex.hold_count(held.hold_id()).await.unwrap(), 1);
        held.release().await.unwrap();
    }
}

fn plant_from_environment() {
    let Ok(name) = std::env::var(FAULT) else {
        return;
    };
    let named = FAULTS.iter().find(|fault| format!("{fault:?}") == name);
    plant(*named.expect("the fault is one of ours"));
}

/// Runs one fact of this binary in a process of its own, with the fault or without.
fn run(fact: &str, fault: Option<Fault>) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", &format!("facts::{fact}")])
        .env_remove(FAULT);
    if let Some(fault) = fault {
        command.env(FAULT, format!("{fault:?}"));
    }
    command.output().unwrap()
}

fn is_found_by(fault: Fault, fact: &str) {
    let sound = run(fact, None);
    let text = String::from_utf8_lossy(&sound.stdout);
    assert!(
        text.contains("1 passed; 0 failed"),
        "without a fault {fact} fails: {text}"
    );
    let broken = run(fact, Some(fault));
    let text = String::from_utf8_lossy(&broken.stdout);
    assert!(
        text.contains("0 passed; 1 failed"),
        "{fault:?} is not found by {fact}: {text}"
    );
}

#[test]
fn a_deadline_counted_from_the_reply_is_found() {
    is_found_by(
        Fault::DeadlineFromReply,
        "the_deadline_counts_from_before_the_request",
    );
}

#[test]
fn a_missing_look_at_the_deadline_after_a_wait_is_found() {
    is_found_by(
        Fault::NoRecheck,
        "a_hold_whose_lease_ran_out_on_the_way_is_not_returned",
    );
}

#[test]
fn a_renewal_that_outlives_the_release_is_found() {
    is_found_by(
        Fault::RenewalOutlivesRelease,
        "a_released_hold_is_watched_no_more",
    );
}

#[test]
fn a_publish_before_the_delete_is_found() {
    is_found_by(
        Fault::PublishBeforeDelete,
        "a_woken_waiter_finds_the_lock_free",
    );
}

#[test]
fn a_forgotten_script_read_as_busy_is_found() {
    is_found_by(
        Fault::NoscriptIsBusy,
        "a_server_that_forgot_its_scripts_is_not_busy",
    );
}

#[test]
fn a_release_without_a_look_at_the_owner_is_found() {
    is_found_by(
        Fault::ReleaseWithoutOwner,
        "a_late_release_frees_nobody_elses_lock",
    );
}
