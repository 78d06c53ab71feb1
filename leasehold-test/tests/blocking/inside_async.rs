//! What happens in asynchronous code: calls panic and name the caller, drops do nothing bad.

use std::panic::{self, AssertUnwindSafe, Location, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use leasehold::Memory;
use leasehold::blocking::{Client, Interrupt};
use leasehold_test::in_time;
use tokio::runtime::Runtime;

use crate::support::{Bench, SOON, eventually, work};

/// Only one test at a time may have its hook.
static HOOK: Mutex<()> = Mutex::new(());

/// Where `call` panics, and with which words.
fn panic_of(call: impl FnOnce()) -> (String, u32) {
    let _one = HOOK.lock().unwrap_or_else(PoisonError::into_inner);
    static PLACE: Mutex<Option<(String, u32)>> = Mutex::new(None);
    let me = std::thread::current().id();
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let place = info.location().map(|at| (at.file().to_owned(), at.line()));
        if std::thread::current().id() == me {
            *PLACE.lock().unwrap() = place;
        }
    }));
    let caught = catch_unwind(AssertUnwindSafe(call));
    panic::set_hook(before);
    assert!(caught.is_err(), "it did not panic");
    PLACE.lock().unwrap().take().expect("a panic has a place")
}

#[track_caller]
fn blames_this_line(runtime: &Runtime, call: impl FnOnce()) {
    let here = Location::caller();
    let place = panic_of(|| runtime.block_on(async { call() }));
    assert_eq!(place, (here.file().to_owned(), here.line()));
}

/// Takes what a call that panics never gives.
fn unreachable(_: leasehold::CloseReport) {}

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}

#[test]
#[rustfmt::skip] // one line each: a panic names the line
fn every_call_panics_and_blames_its_caller() {
    in_time("every call", || {
        let (runtime, wait) = (runtime(), Duration::from_millis(1));
        let client = Client::memory();
        let (mutex, interrupt) = (client.mutex("m"), Interrupt::new());
        let guard = client.mutex("held").fixed_lease(SOON).lock().unwrap();
        let lease = guard.lease();
        blames_this_line(&runtime, || drop(Client::connect("local:/nowhere")));
        blames_this_line(&runtime, || drop(Client::builder().connect("local:/nowhere")));
        blames_this_line(&runtime, || drop(client.list("*")));
        blames_this_line(&runtime, || drop(mutex.lock()));
        blames_this_line(&runtime, || drop(mutex.lock_interruptibly(&interrupt)));
        blames_this_line(&runtime, || drop(mutex.try_lock()));
        blames_this_line(&runtime, || drop(mutex.try_lock_for(wait)));
        blames_this_line(&runtime, || drop(mutex.try_lock_for_interruptibly(wait, &interrupt)));
        blames_this_line(&runtime, || drop(mutex.with(|_| ())));
        blames_this_line(&runtime, || drop(mutex.force_unlock()));
        blames_this_line(&runtime, || drop(mutex.is_locked()));
        blames_this_line(&runtime, || drop(mutex.hold_count(guard.hold_id())));
        blames_this_line(&runtime, || drop(mutex.remaining()));
        blames_this_line(&runtime, || drop(mutex.status()));
        blames_this_line(&runtime, || drop(guard.extend(wait)));
        blames_this_line(&runtime, || guard.lost());
        blames_this_line(&runtime, || assert!(guard.lost_for(wait)));
        blames_this_line(&runtime, || assert!(lease.lost()));
        blames_this_line(&runtime, || assert!(lease.lost_for(wait)));
        blames_this_line(&runtime, || lease.ends_within(wait));
        blames_this_line(&runtime, || drop(guard.reenter().release()));
        blames_this_line(&runtime, || drop(guard.reenter().hand_over()));
        blames_this_line(&runtime, || unreachable(client.clone().close()));
        blames_this_line(&runtime, || unreachable(client.clone().close_and_release()));
        assert!(mutex.status().unwrap().is_none(), "nothing was done, and it is still open");
        assert!(guard.is_held());
    });
}

#[test]
fn a_release_that_panics_gives_back_all_the_same() {
    in_time("a release in asynchronous code", || {
        let client = Client::memory();
        let guard = client.mutex("m").lock().unwrap();
        let panicking = || runtime().block_on(async { guard.release() });
        assert!(catch_unwind(AssertUnwindSafe(panicking)).is_err());
        eventually("the lock is free", || {
            !client.mutex("m").is_locked().unwrap()
        });
    });
}

crate::everywhere! {
    dropping_everything_in_async_code_does_not_panic,
    a_call_on_the_blocking_pool_works,
}

fn dropping_everything_in_async_code_does_not_panic(bench: &Bench) {
    let (a, b) = (bench.client(), bench.client());
    let guard = a.mutex("m").lock().unwrap();
    let (mutex, lease) = (a.mutex("m"), guard.lease());
    runtime().block_on(async move {
        drop((mutex, lease));
        drop(guard);
        drop(a);
    });
    eventually("the lock is free", || !b.mutex("m").is_locked().unwrap());
}

fn a_call_on_the_blocking_pool_works(bench: &Bench) {
    let mutex = bench.client().mutex("m");
    let runtime = runtime();
    let held = runtime.block_on(async {
        let locking = tokio::task::spawn_blocking(move || mutex.lock());
        locking.await.unwrap()
    });
    held.unwrap().release().unwrap();
}

/// A client may be made anywhere; threads and tasks contend on one store.
#[test]
fn a_memory_client_is_made_in_async_code_and_shares_its_store() {
    in_time("a shared memory", || {
        let runtime = runtime();
        let memory = Memory::new();
        let (threads, tasks) = runtime.block_on(async {
            let threads = Client::builder().memory(&memory);
            (threads, leasehold::Client::builder().memory(&memory))
        });
        let guard = threads.mutex("m").lock().unwrap();
        let mutex = threads.mutex("m");
        let busy = runtime.block_on(async { tasks.mutex("m").try_lock().await });
        assert!(busy.unwrap().is_none());
        let held = runtime.block_on(async {
            let releasing = work(move || guard.release());
            let held = tasks.mutex("m").lock().await.unwrap();
            releasing.soon().unwrap();
            held
        });
        let waiting = work(move || mutex.lock());
        runtime.block_on(held.release()).unwrap();
        waiting.soon().unwrap().release().unwrap();
    });
}
