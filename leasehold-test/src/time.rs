//! Bounds on how long a test may take.

use std::time::Duration;

/// Nothing in a test takes this long unless it hangs.
pub const HANG: Duration = Duration::from_secs(60);

/// Runs `work`, and ends the test when it hangs.
///
/// # Panics
///
/// When `work` takes longer than [`HANG`].
pub async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(HANG, work).await {
        Ok(done) => done,
        Err(_) => panic!("{what} hangs"),
    }
}

/// Runs `work` on a thread of its own, and ends the test when it hangs or panics.
///
/// # Panics
///
/// When `work` panics or takes longer than [`HANG`].
pub fn in_time<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, wait) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let _ = done.send(work());
    });
    match wait.recv_timeout(HANG) {
        Ok(value) => value,
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("{what} hangs"),
        Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => match thread.join() {
            Err(cause) => std::panic::resume_unwind(cause),
            Ok(()) => panic!("{what} ended without a result"),
        },
    }
}

/// Returns once `fact` is true; for what has no event to wait for.
///
/// # Panics
///
/// When it is still false after ten seconds.
pub async fn eventually(what: &str, mut fact: impl AsyncFnMut() -> bool) {
    let begun = tokio::time::Instant::now();
    while !fact().await {
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "it never came true that {what}"
        );
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
