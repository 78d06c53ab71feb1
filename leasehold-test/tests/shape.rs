//! The auto traits of everything public: users spawn it, share it and move it.
#![allow(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]

use std::time::Duration;

use leasehold::{
    Backoff, Client, ClientBuilder, CloseReport, Error, HoldId, Holder, Lease, LeaseState, Memory,
    Mutex, MutexGuard, Owner, Refusal, Status, Wait, blocking,
};

fn whole<T: Send + Sync + Unpin + 'static>() {}
fn debug<T: std::fmt::Debug>() {}
fn cloned<T: Clone>() {}
fn send<T: Send>(_: &T) {}

#[test]
fn every_public_type_can_be_sent_shared_and_kept() {
    whole::<Client>();
    whole::<ClientBuilder>();
    whole::<CloseReport>();
    whole::<Mutex>();
    whole::<MutexGuard>();
    whole::<Lease>();
    whole::<LeaseState>();
    whole::<HoldId>();
    whole::<Owner>();
    whole::<Holder>();
    whole::<Status>();
    whole::<Memory>();
    whole::<Wait>();
    whole::<Backoff>();
    whole::<Error>();
    whole::<Refusal>();
    whole::<blocking::Client>();
    whole::<blocking::ClientBuilder>();
    whole::<blocking::Mutex>();
    whole::<blocking::MutexGuard>();
    whole::<blocking::Lease>();
    whole::<blocking::Interrupt>();
}

#[test]
fn every_public_type_prints_for_debugging() {
    debug::<Client>();
    debug::<ClientBuilder>();
    debug::<Mutex>();
    debug::<MutexGuard>();
    debug::<Lease>();
    debug::<Memory>();
    debug::<Owner>();
    debug::<blocking::Client>();
    debug::<blocking::ClientBuilder>();
    debug::<blocking::Mutex>();
    debug::<blocking::MutexGuard>();
    debug::<blocking::Lease>();
    debug::<blocking::Interrupt>();
}

#[test]
fn handles_are_cloned_cheaply() {
    cloned::<Client>();
    cloned::<Mutex>();
    cloned::<Lease>();
    cloned::<HoldId>();
    cloned::<Owner>();
    cloned::<Memory>();
    cloned::<Error>();
}

#[test]
fn an_error_is_an_error() {
    fn error<T: std::error::Error + Send + Sync + 'static>() {}
    error::<Error>();
    error::<Refusal>();
    let boxed: Box<dyn std::error::Error + Send + Sync> = Error::Lost("it is gone").into();
    assert!(boxed.downcast_ref::<Error>().is_some());
}

#[tokio::test]
async fn every_public_future_can_be_sent() {
    let client = Client::memory();
    let mutex = client.mutex("m");
    let wait = Duration::from_millis(1);
    send(&Client::connect("local:/nowhere"));
    send(&Client::builder().connect("local:/nowhere"));
    send(&client.list("*"));
    send(&client.clone().close());
    send(&client.clone().close_and_release());
    send(&mutex.lock());
    send(&mutex.try_lock());
    send(&mutex.try_lock_for(wait));
    send(&mutex.force_unlock());
    send(&mutex.is_locked());
    send(&mutex.remaining());
    send(&mutex.status());
    send(&mutex.holders());
    let guard = mutex.lock().await.unwrap();
    send(&mutex.hold_count(guard.hold_id()));
    send(&mutex.is_held_by(&client.owner()));
    send(&mutex.adopt(guard.hold_id().clone()));
    send(&guard.lost());
    send(&guard.extend(wait));
    send(&guard.while_held(async {}));
    let lease = guard.lease();
    send(&lease.lost());
    send(&lease.ends_within(wait));
    send(&lease.while_held(async {}));
    send(&guard.reenter().hand_over());
    send(&guard.release());
}

#[tokio::test]
async fn guards_leases_and_whole_sections_can_be_spawned() {
    let client = Client::memory();
    let mutex = client.mutex("m");
    let handle = mutex.clone();
    let work = async move |lease: Lease| {
        tokio::task::yield_now().await;
        lease.state()
    };
    let section = tokio::spawn(async move { handle.with(work).await });
    assert_eq!(section.await.unwrap().unwrap(), LeaseState::Held);
    let guard = mutex.lock().await.unwrap();
    let (lease, waiting) = (guard.lease(), guard.lease());
    let told = tokio::spawn(async move { waiting.lost().await });
    let state = tokio::spawn(async move { lease.state() });
    assert_eq!(state.await.unwrap(), LeaseState::Held);
    tokio::spawn(guard.release()).await.unwrap().unwrap();
    told.abort();
}

#[test]
fn what_is_printed_names_the_lock() {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(async {
        let client = Client::memory();
        let guard = client.mutex("orders:42").lock().await.unwrap();
        let printed = [format!("{guard:?}"), format!("{:?}", guard.lease())];
        for text in printed {
            assert!(text.contains("orders:42"), "{text}");
            assert!(text.contains(guard.hold_id().as_str()), "{text}");
        }
    });
}
