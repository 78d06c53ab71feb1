//! The local store through the public API: several clients on one directory.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that fails says so"
)]

use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold::{Client, Error, LeaseState, MutexGuard, testing};
use tempfile::TempDir;
use tokio::time::Instant;

/// Far more than any wake-up takes, far less than a TTL.
const SOON: Duration = Duration::from_secs(5);

fn directory() -> TempDir {
    tempfile::Builder::new()
        .permissions(fs::Permissions::from_mode(0o700))
        .tempdir()
        .unwrap()
}

async fn client(dir: &Path) -> Client {
    Client::connect(&format!("local:{}", dir.display()))
        .await
        .unwrap()
}

/// The lock files in the directory, without those of clients' records.
fn lock_files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries
        .filter(|entry| entry.file_type().unwrap().is_file())
        .filter(|entry| !is_record(&entry.path()))
        .map(|entry| entry.path())
        .collect()
}

fn is_record(file: &Path) -> bool {
    let name = file.file_name().unwrap().to_string_lossy();
    name.starts_with("leasehold_client_")
}

fn hold_files(dir: &Path) -> usize {
    fs::read_dir(dir.join("holds")).unwrap().count()
}

async fn refused(url: String) -> String {
    match Client::connect(&url).await {
        Err(Error::Config(message)) => message,
        other => panic!("{other:?}"),
    }
}

/// Waits until a waiter of this client listens, so that it is asleep or about to be.
async fn listening(client: &Client) {
    while testing::stats(client).listening == 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn two_clients_on_one_directory_exclude_each_other() {
    let dir = directory();
    let (a, b) = (client(dir.path()).await, client(dir.path()).await);
    assert_eq!(a.directory(), Some(dir.path()));
    let guard = a.mutex("name").lock().await.unwrap();
    assert!(b.mutex("name").try_lock().await.unwrap().is_none());
    assert!(b.mutex("another").try_lock().await.unwrap().is_some());
    let status = b.mutex("name").status().await.unwrap().unwrap();
    assert_eq!(status.hold, *guard.hold_id());
    guard.release().await.unwrap();
    assert!(b.mutex("name").try_lock().await.unwrap().is_some());
}

#[tokio::test]
async fn another_directory_is_another_world() {
    let (here, there) = (directory(), directory());
    let (a, b) = (client(here.path()).await, client(there.path()).await);
    let _guard = a.mutex("name").lock().await.unwrap();
    assert!(b.mutex("name").try_lock().await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_wakes_the_waiter_of_another_client() {
    let dir = directory();
    let (a, b) = (client(dir.path()).await, client(dir.path()).await);
    for _ in 0..20 {
        let guard = a.mutex("name").lock().await.unwrap();
        let mutex = b.mutex("name");
        let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
        listening(&b).await;
        guard.release().await.unwrap();
        let guard = tokio::time::timeout(SOON, waiter).await.unwrap().unwrap();
        guard.release().await.unwrap();
    }
    let stats = testing::stats(&b);
    assert_eq!(stats.woken_by_timer, 0);
    assert_eq!(stats.woken_by_gap, 0);
}

#[tokio::test]
async fn many_tasks_of_several_clients_are_in_one_at_a_time() {
    let dir = directory();
    let inside = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let client = client(dir.path()).await;
        for _ in 0..4 {
            let (mutex, inside) = (client.mutex("name"), std::sync::Arc::clone(&inside));
            tasks.spawn(async move {
                for _ in 0..10 {
                    let guard = mutex.lock().await.unwrap();
                    assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    guard.release().await.unwrap();
                }
            });
        }
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
}

#[tokio::test]
async fn a_dropped_guard_frees() {
    let dir = directory();
    let (a, b) = (client(dir.path()).await, client(dir.path()).await);
    drop(a.mutex("name").lock().await.unwrap());
    let guard = b.mutex("name").try_lock_for(SOON).await.unwrap();
    assert!(guard.is_some());
}

#[tokio::test]
async fn nothing_is_left_when_all_is_released() {
    let dir = directory();
    let (a, b) = (client(dir.path()).await, client(dir.path()).await);
    let guard = a.mutex("name").lock().await.unwrap();
    assert_eq!(lock_files(dir.path()).len(), 1);
    assert_eq!(hold_files(dir.path()), 1);
    let late = b.mutex("name");
    let late = late.try_lock_for(Duration::from_millis(20)).await;
    assert!(late.unwrap().is_none());
    guard.release().await.unwrap();
    assert_eq!(lock_files(dir.path()), Vec::<PathBuf>::new());
    assert_eq!(hold_files(dir.path()), 0);
}

#[tokio::test]
async fn a_waiter_that_is_dropped_leaves_nothing() {
    let dir = directory();
    let (a, b) = (client(dir.path()).await, client(dir.path()).await);
    let guard = a.mutex("name").lock().await.unwrap();
    let mutex = b.mutex("name");
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    listening(&b).await;
    waiter.abort();
    assert!(waiter.await.unwrap_err().is_cancelled());
    guard.release().await.unwrap();
    let close = b.close().await;
    assert_eq!((close.unreleased, close.outstanding), (0, 0));
    assert_eq!(hold_files(dir.path()), 0);
    assert_eq!(lock_files(dir.path()), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn a_hold_that_was_forgotten_ends_by_its_ttl() {
    let dir = directory();
    let a = client(dir.path()).await;
    let ttl = Duration::from_millis(300);
    let taken = Instant::now();
    let hold = a.mutex("name").ttl(ttl).lock().await.unwrap().forget();
    a.close().await;
    let b = client(dir.path()).await;
    let status = b.mutex("name").status().await.unwrap().unwrap();
    assert_eq!(status.hold, hold);
    let guard = b.mutex("name").try_lock_for(SOON).await.unwrap();
    assert!(guard.is_some());
    assert!(taken.elapsed() >= ttl - Duration::from_millis(1));
}

#[tokio::test]
async fn a_fixed_lease_ends_although_its_holder_lives() {
    let dir = directory();
    let (a, b) = (client(dir.path()).await, client(dir.path()).await);
    let short = a.mutex("name").fixed_lease(Duration::from_millis(100));
    let guard = short.lock().await.unwrap();
    let other = b.mutex("name").try_lock_for(SOON).await.unwrap();
    assert!(other.is_some());
    assert_eq!(guard.lease().state(), LeaseState::Lost);
    assert!(matches!(guard.release().await, Err(Error::Lost(_))));
    assert!(b.mutex("name").is_locked().await.unwrap());
}

/// Held by tests that count on who has a hold file: a process that another test starts has, until
/// it runs its own program, copies of every file of this one.
static STARTING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// A process that does nothing for a long time, and has inherited the hold file.
fn keeper(guard: &MutexGuard) -> Child {
    let _file = guard.hold_file().unwrap().unwrap();
    let mut sleep = Command::new("sleep");
    sleep.arg("600").stdin(Stdio::null()).spawn().unwrap()
}

#[tokio::test]
async fn a_lock_that_was_handed_over_is_free_when_the_last_process_ends() {
    let _alone = STARTING.lock().await;
    let dir = directory();
    let (a, b) = (client(dir.path()).await, client(dir.path()).await);
    let guard = a.mutex("name").lock().await.unwrap();
    let mut child = keeper(&guard);
    assert!(guard.hand_over().await.unwrap());
    a.close().await;
    assert!(b.mutex("name").try_lock().await.unwrap().is_none());
    let mutex = b.mutex("name");
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    listening(&b).await;
    child.kill().unwrap();
    child.wait().unwrap();
    let guard = tokio::time::timeout(SOON, waiter).await.unwrap().unwrap();
    assert_eq!(testing::stats(&b).woken_by_timer, 0);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_lock_that_nobody_else_has_is_released_by_handing_it_over() {
    let _alone = STARTING.lock().await;
    let dir = directory();
    let a = client(dir.path()).await;
    let guard = a.mutex("name").lock().await.unwrap();
    assert!(!guard.hand_over().await.unwrap());
    assert!(!a.mutex("name").is_locked().await.unwrap());
    assert_eq!(hold_files(dir.path()), 0);
}

#[tokio::test]
async fn a_client_that_opens_frees_what_the_dead_held() {
    let _alone = STARTING.lock().await;
    let dir = directory();
    let a = client(dir.path()).await;
    let guard = a.mutex("name").lock().await.unwrap();
    let mut child = keeper(&guard);
    assert!(guard.hand_over().await.unwrap());
    child.kill().unwrap();
    child.wait().unwrap();
    let b = client(dir.path()).await;
    assert_eq!(lock_files(dir.path()), Vec::<PathBuf>::new());
    assert_eq!(hold_files(dir.path()), 0);
    assert!(b.mutex("name").try_lock().await.unwrap().is_some());
}

#[tokio::test]
async fn a_listing_shows_what_other_processes_keep_past_its_ttl() {
    let _alone = STARTING.lock().await;
    let dir = directory();
    let a = client(dir.path()).await;
    let ttl = Duration::from_millis(150);
    let guard = a.mutex("name").ttl(ttl).lock().await.unwrap();
    let mut child = keeper(&guard);
    let begun = Instant::now();
    assert!(guard.hand_over().await.unwrap());
    while begun.elapsed() <= ttl {
        tokio::task::yield_now().await;
    }
    let found = a.list("*").await.unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(found.len(), 1, "the process that has it lives");
    assert_eq!(a.list("*").await.unwrap(), [], "it died");
}

#[tokio::test]
async fn a_listing_shows_what_is_held() {
    let dir = directory();
    let client = client(dir.path()).await;
    let mut guards = vec![];
    for name in ["app:{x}:b", "app:{x}:a", "web:1"] {
        guards.push(client.mutex(name).lock().await.unwrap());
    }
    let found = client.list("app:*").await.unwrap();
    let names: Vec<_> = found.iter().map(|status| status.name.as_str()).collect();
    assert_eq!(names, ["app:{x}:a", "app:{x}:b"]);
    assert_eq!(lock_files(dir.path()).len(), 2, "one file per hash tag");
    assert_eq!(client.list("*").await.unwrap().len(), 3);
}

#[tokio::test]
async fn a_foreign_file_is_reported_and_left() {
    let dir = directory();
    let a = client(dir.path()).await;
    let guard = a.mutex("name").lock().await.unwrap();
    let file = lock_files(dir.path()).remove(0);
    guard.release().await.unwrap();
    fs::write(&file, "somebody's notes").unwrap();
    let result = a.mutex("name").try_lock().await;
    assert!(matches!(result, Err(Error::Protocol(_))), "{result:?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "somebody's notes");
    assert_eq!(hold_files(dir.path()), 0);
    assert!(a.list("*").await.unwrap().is_empty());
}

#[tokio::test]
async fn a_file_of_another_boot_holds_nothing() {
    let dir = directory();
    let a = client(dir.path()).await;
    let _hold = a.mutex("name").lock().await.unwrap().forget();
    let file = lock_files(dir.path()).remove(0);
    let held = fs::read(&file).unwrap();
    assert!(a.mutex("name").is_locked().await.unwrap());
    fs::write(&file, of_another_boot(held, ("", ""))).unwrap();
    assert!(!a.mutex("name").is_locked().await.unwrap());
    assert!(a.mutex("name").try_lock().await.unwrap().is_some());
}

#[tokio::test]
async fn a_token_rises_through_a_reboot() {
    let dir = directory();
    let a = client(dir.path()).await;
    let fenced = a.mutex("name").fenced();
    let guard = fenced.lock().await.unwrap();
    let before = guard.token().unwrap();
    let _hold = guard.forget();
    let file = lock_files(dir.path()).remove(0);
    let held = fs::read(&file).unwrap();
    // Far ahead of the clock, so that only what was kept can bring the next one.
    let ahead = before.get().to_string().replacen('1', "8", 1);
    let held = of_another_boot(held, (&before.to_string(), &ahead));
    fs::write(&file, held).unwrap();
    let guard = fenced.try_lock().await.unwrap().unwrap();
    assert_eq!(
        guard.token().unwrap().get(),
        ahead.parse::<u64>().unwrap() + 1
    );
    guard.release().await.unwrap();
    assert_eq!(a.list("*").await.unwrap(), [], "a token is no lock");
}

/// The same state, written by a machine that booted another time. Of a file's two descriptors,
/// the first one is the newest after one write.
fn of_another_boot(mut bytes: Vec<u8>, (was, is): (&str, &str)) -> Vec<u8> {
    let number = |bytes: &[u8], at: usize| {
        let four: [u8; 4] = bytes[at..at + 4].try_into().unwrap();
        usize::try_from(u32::from_le_bytes(four)).unwrap()
    };
    let (offset, length) = (number(&bytes, 16), number(&bytes, 4));
    let payload = &mut bytes[offset..offset + length];
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let at = payload
        .windows(36)
        .position(|window| window == boot.trim().as_bytes())
        .unwrap();
    payload[at] = if payload[at] == b'0' { b'1' } else { b'0' };
    if let Some(at) = String::from_utf8_lossy(payload).find(was) {
        payload[at..at + is.len()].copy_from_slice(is.as_bytes());
    }
    let crc = crc32fast::hash(payload).to_le_bytes();
    bytes[24..28].copy_from_slice(&crc);
    let crc = crc32fast::hash(&bytes[..28]).to_le_bytes();
    bytes[28..32].copy_from_slice(&crc);
    bytes
}

#[tokio::test]
async fn a_damaged_file_is_reported_and_left() {
    let dir = directory();
    let a = client(dir.path()).await;
    let guard = a.mutex("name").lock().await.unwrap();
    let path = lock_files(dir.path()).remove(0);
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&[0; 64], 0).unwrap();
    let damaged = fs::read(&path).unwrap();
    let result = a.mutex("name").try_lock().await;
    assert!(matches!(result, Err(Error::Protocol(_))), "{result:?}");
    assert_eq!(fs::read(&path).unwrap(), damaged);
    assert!(matches!(guard.release().await, Err(Error::Protocol(_))));
}

#[tokio::test]
async fn a_lock_file_that_is_removed_by_hand_is_a_loss() {
    let dir = directory();
    let a = client(dir.path()).await;
    let mutex = a.mutex("name").ttl(Duration::from_millis(600));
    let guard = mutex.lock().await.unwrap();
    fs::remove_file(lock_files(dir.path()).remove(0)).unwrap();
    let third = Duration::from_millis(200);
    let lost = tokio::time::timeout(third * 2, guard.lost()).await;
    assert!(lost.is_ok(), "the first renewal after it finds the loss");
    assert!(matches!(guard.release().await, Err(Error::Lost(_))));
}

#[tokio::test]
async fn a_request_that_is_dropped_while_the_file_is_busy_is_never_run() {
    let dir = directory();
    let a = client(dir.path()).await;
    let _hold = a.mutex("{x}1").lock().await.unwrap().forget();
    let file = fs::File::open(lock_files(dir.path()).remove(0)).unwrap();
    file.lock().unwrap();
    let wait = Duration::from_millis(30);
    let mutex = a.mutex("{x}2");
    assert!(tokio::time::timeout(wait, mutex.lock()).await.is_err());
    let error = mutex.try_lock_for(wait).await.unwrap_err();
    assert!(error.is_retryable(), "{error:?}");
    assert_eq!(
        testing::stats(&a).owed,
        0,
        "nothing was sent, so nothing is owed"
    );
    drop(file);
    assert!(!mutex.is_locked().await.unwrap());
    assert_eq!(hold_files(dir.path()), 0);
}

/// The worker of this runtime does nothing else while this test does not await.
#[tokio::test]
async fn a_worker_that_is_blocked_keeps_no_lock_file_from_others() {
    let dir = directory();
    let a = client(dir.path()).await;
    let _hold = a.mutex("{x}1").lock().await.unwrap().forget();
    let file = fs::File::open(lock_files(dir.path()).remove(0)).unwrap();
    file.lock().unwrap();
    let mutex = a.mutex("{x}2");
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    while hold_files(dir.path()) == 0 {
        tokio::task::yield_now().await;
    }
    file.unlock().unwrap();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(50) {
        std::thread::yield_now();
    }
    file.try_lock().unwrap();
    file.unlock().unwrap();
    let guard = tokio::time::timeout(SOON, waiter).await.unwrap().unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_directory_that_cannot_be_trusted_is_refused() {
    let dir = directory();
    let url = |path: &Path| format!("local:{}", path.display());
    let inner = dir.path().join("inner");
    fs::create_dir(&inner).unwrap();
    fs::set_permissions(&inner, fs::Permissions::from_mode(0o750)).unwrap();
    assert!(refused(url(&inner)).await.contains("750"));
    let link = dir.path().join("link");
    symlink(dir.path(), &link).unwrap();
    assert!(refused(url(&link)).await.contains("link"));
    let file = dir.path().join("file");
    fs::File::create(&file).unwrap().write_all(b"x").unwrap();
    assert!(refused(url(&file)).await.contains("no directory"));
    let long = dir.path().join("x".repeat(80));
    assert!(refused(url(&long)).await.contains("longer"));
    assert!(!long.exists());
}
