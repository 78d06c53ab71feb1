//! AC: futures that are dropped, releases that fail, stores that do not answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold::{Client, Error, testing};
use leasehold_test::{Backend, Server, eventually};
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout};

use crate::on_stores;

on_stores! {
    memory: Memory [ac_04_tasks_are_no_owners, ac_08_a_cancelled_scope_still_releases]
    local: Local [ac_04_tasks_are_no_owners, ac_08_a_cancelled_scope_still_releases]
    redis: Redis [
        ac_02_a_dropped_acquire_is_undone, ac_03_a_dropped_release_is_finished,
        ac_04_tasks_are_no_owners, ac_08_a_cancelled_scope_still_releases,
        ac_11_a_wait_limit_holds_when_the_server_hangs,
        ac_11_a_wait_limit_holds_when_the_server_is_dead,
    ]
}

const SOON: Duration = Duration::from_secs(1);

fn server(backend: &mut Backend) -> &mut Server {
    match backend {
        Backend::Redis(server) => server,
        Backend::Memory(_) | Backend::Local(_) => panic!("this fact needs a server"),
    }
}

async fn ac_02_a_dropped_acquire_is_undone(mut backend: Backend) {
    let (a, b) = backend.clients().await;
    // The connections' scripts are loaded before the server stops.
    a.mutex("x").lock().await.unwrap().release().await.unwrap();
    server(&mut backend).pause();
    let dropped = timeout(Duration::from_millis(200), a.mutex("x").lock()).await;
    assert!(dropped.is_err(), "a stopped server cannot answer");
    server(&mut backend).resume();
    let guard = timeout(SOON, b.mutex("x").lock())
        .await
        .expect("the acquire was undone")
        .unwrap();
    guard.release().await.unwrap();
    eventually("nothing is owed", async || testing::stats(&a).owed == 0).await;
    assert!(server(&mut backend).keys().await.is_empty());
}

async fn ac_03_a_dropped_release_is_finished(mut backend: Backend) {
    let (a, b) = backend.clients().await;
    let guard = a
        .mutex("x")
        .fixed_lease(Duration::from_secs(60))
        .lock()
        .await
        .unwrap();
    server(&mut backend).pause();
    assert!(
        timeout(Duration::from_millis(200), guard.release())
            .await
            .is_err()
    );
    assert_eq!(
        testing::stats(&a).watched,
        0,
        "the watchdog is off after the first attempt"
    );
    server(&mut backend).resume();
    let next = timeout(SOON, b.mutex("x").lock())
        .await
        .expect("the release was finished");
    next.unwrap().release().await.unwrap();
}

async fn ac_04_tasks_are_no_owners(backend: Backend) {
    let client = backend.client().await;
    let mutex = client.mutex("x");
    let inside = AtomicU32::new(0);
    let branch = async || {
        let guard = mutex.lock().await.unwrap();
        assert_eq!(
            inside.fetch_add(1, Ordering::SeqCst),
            0,
            "both branches entered"
        );
        tokio::task::yield_now().await;
        inside.fetch_sub(1, Ordering::SeqCst);
        assert!(
            mutex.try_lock().await.unwrap().is_none(),
            "the task's id let it in"
        );
        guard.release().await.unwrap();
    };
    tokio::join!(branch(), branch());
    let migrating = mutex.clone();
    tokio::spawn(async move {
        let guard = migrating.lock().await.unwrap();
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        guard.release().await.unwrap();
    })
    .await
    .unwrap();
}

async fn ac_08_a_cancelled_scope_still_releases(backend: Backend) {
    let (a, c) = backend.clients().await;
    let (held, wait) = tokio::sync::oneshot::channel();
    let mutex = a.mutex("x").fixed_lease(Duration::from_secs(60));
    let scope = tokio::spawn(async move {
        let _guard = mutex.lock().await.unwrap();
        held.send(()).unwrap();
        std::future::pending::<()>().await;
    });
    wait.await.unwrap();
    let inside = Arc::new(AtomicU32::new(0));
    let waiters = [a.clone(), c].map(|client| {
        let inside = Arc::clone(&inside);
        tokio::spawn(async move {
            let guard = client
                .mutex("x")
                .try_lock_for(SOON)
                .await
                .unwrap()
                .expect("it was freed");
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at a time");
            tokio::task::yield_now().await;
            inside.fetch_sub(1, Ordering::SeqCst);
            guard.release().await.unwrap();
        })
    });
    scope.abort();
    for waiter in waiters {
        waiter.await.unwrap();
    }
}

async fn ac_11_a_wait_limit_holds_when_the_server_hangs(mut backend: Backend) {
    let client = backend.client().await;
    client
        .mutex("x")
        .lock()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    server(&mut backend).pause();
    let begun = Instant::now();
    let result = client.mutex("x").try_lock_for(SOON).await;
    let waited = begun.elapsed();
    assert!(waited < SOON + backend.slack(), "{waited:?}");
    let error = result.expect_err("a server that does not answer is not busy");
    assert!(
        matches!(error, Error::Timeout(_) | Error::Unavailable { .. }),
        "{error:?}"
    );
    server(&mut backend).resume();
    eventually("nothing is owed", async || {
        testing::stats(&client).owed == 0
    })
    .await;
    assert!(
        server(&mut backend).keys().await.is_empty(),
        "a late success was not undone"
    );
}

async fn ac_11_a_wait_limit_holds_when_the_server_is_dead(mut backend: Backend) {
    let client = backend.client().await;
    server(&mut backend).kill();
    let begun = Instant::now();
    let mutex = client.mutex("x");
    let both = tokio::join!(mutex.try_lock_for(SOON), mutex.try_lock_for(SOON));
    let waited = begun.elapsed();
    assert!(waited < SOON + backend.slack(), "{waited:?}");
    for error in [both.0, both.1] {
        let error = error.expect_err("neither the first nor the one behind it is told busy");
        assert!(
            matches!(error, Error::Timeout(_) | Error::Unavailable { .. }),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn ac_11_a_server_that_accepts_and_says_nothing_is_unavailable() {
    let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}/", mute.local_addr().unwrap());
    let begun = Instant::now();
    let builder = Client::builder().connect_timeout(Duration::from_millis(300));
    let error = builder.connect(&url).await.expect_err("nobody answers");
    assert!(
        matches!(error, Error::Unavailable { .. } | Error::Timeout(_)),
        "{error:?}"
    );
    assert!(begun.elapsed() < Duration::from_secs(1));
}

#[tokio::test]
async fn ac_11_a_port_that_refuses_is_unavailable_at_once() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}/", closed.local_addr().unwrap());
    drop(closed);
    let begun = Instant::now();
    let error = Client::connect(&url).await.expect_err("nobody listens");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(begun.elapsed() < Duration::from_secs(1));
}
