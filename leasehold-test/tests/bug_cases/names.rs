//! KN: names that look like the parts of other names.

use leasehold_test::Backend;

use crate::on_stores;

on_stores! {
    memory: Memory [kn_08_separators_in_names_mean_nothing]
    local: Local [kn_08_separators_in_names_mean_nothing]
    redis: Redis [kn_08_separators_in_names_mean_nothing]
}

async fn kn_08_separators_in_names_mean_nothing(backend: Backend) {
    let (a, b) = backend.clients().await;
    let names = [
        "a",
        "a:b",
        "a:b:c",
        "a:b:",
        "a:rwlock_timeout:1",
        "redisson_lock__channel:{a:b}",
        "redisson_lock_queue:{a:b}",
        "71b96ce8-2746-4f0c-9d6e-0d7c1f3a5b11:1",
    ];
    // One owner for all of them: a hold belongs to owner and name.
    let owner = a.owner();
    let mut guards = Vec::new();
    for (number, name) in names.into_iter().enumerate() {
        let free = b.mutex(name).try_lock().await.unwrap();
        free.expect("no other name holds it")
            .release()
            .await
            .unwrap();
        let mutex = a.mutex(name).owner(&owner);
        for _ in 0..=number {
            guards.push((name, mutex.lock().await.unwrap()));
        }
    }
    for (number, name) in names.into_iter().enumerate() {
        let count = a.mutex(name).hold_count(&owner).await.unwrap();
        assert_eq!(count, number as u64 + 1, "{name}");
        for (_, guard) in guards.extract_if(.., |(held, _)| *held == name) {
            guard.release().await.unwrap();
        }
        let free = b.mutex(name).try_lock().await.unwrap();
        free.expect("nothing of it is left")
            .release()
            .await
            .unwrap();
    }
    assert_eq!(b.list("*").await.unwrap(), []);
}
