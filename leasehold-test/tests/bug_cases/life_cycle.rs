//! LC: a client that is closed says nothing more, and leaves what it says that it leaves.

use std::time::Duration;

use leasehold::{Error, testing};
use leasehold_test::Backend;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::on_stores;

on_stores! {
    memory: Memory [lc_01_nothing_happens_after_close, lc_04_close_gives_back_what_it_holds]
    local: Local [lc_01_nothing_happens_after_close, lc_04_close_gives_back_what_it_holds]
    redis: Redis [lc_01_nothing_happens_after_close, lc_04_close_gives_back_what_it_holds]
}

async fn lc_01_nothing_happens_after_close(backend: Backend) {
    let (a, b) = backend.clients().await;
    let ttl = Duration::from_millis(900);
    let mut guards = Vec::new();
    for number in 0..100 {
        guards.push(
            a.mutex(&format!("l{number}"))
                .ttl(ttl)
                .lock()
                .await
                .unwrap(),
        );
    }
    let mut waiters = JoinSet::new();
    for number in 0..20 {
        let mutex = a.mutex(&format!("l{number}"));
        waiters.spawn(async move { mutex.lock().await.map(drop) });
    }
    leasehold_test::eventually("all wait", async || testing::stats(&a).lines == 20).await;
    let report = a.clone().close().await;
    let closed = Instant::now();
    assert_eq!(report.outstanding, 100);
    while let Some(waited) = waiters.join_next().await {
        assert!(matches!(waited.unwrap(), Err(Error::Closed(_))));
    }
    assert!(matches!(
        a.mutex("other").try_lock().await,
        Err(Error::Closed(_))
    ));
    let calls = backend.scripts_run().await;
    sleep(ttl / 2).await;
    assert_eq!(
        backend.scripts_run().await,
        calls,
        "there was traffic after close"
    );
    for number in 0..100 {
        b.mutex(&format!("l{number}"))
            .lock()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
    assert!(
        closed.elapsed() < ttl + backend.slack() * 2,
        "{:?}",
        closed.elapsed()
    );
    for guard in &guards {
        assert_eq!(guard.lease().state(), leasehold::LeaseState::Lost);
    }
}

async fn lc_04_close_gives_back_what_it_holds(backend: Backend) {
    let (a, b) = backend.clients().await;
    let mut guards = Vec::new();
    for number in 0..10 {
        let mutex = a.mutex(&format!("l{number}")).owner(&a.owner());
        let guard = mutex.lock().await.unwrap();
        guards.push(guard.reenter());
        guards.push(mutex.lock().await.unwrap());
        guards.push(guard);
    }
    let report = a.close_and_release().await;
    assert_eq!(
        (report.released, report.unreleased, report.outstanding),
        (10, 0, 0)
    );
    for guard in &guards {
        assert_eq!(
            guard.lease().state(),
            leasehold::LeaseState::Lost,
            "the holder was not told"
        );
    }
    for number in 0..10 {
        let free = b.mutex(&format!("l{number}")).try_lock().await.unwrap();
        free.expect("it is free at once").release().await.unwrap();
    }
    for guard in guards {
        assert!(!matches!(guard.release().await, Err(Error::Timeout(_))));
    }
}
