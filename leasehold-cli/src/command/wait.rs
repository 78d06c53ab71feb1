//! `leasehold wait`.

use std::time::Duration;

use leasehold::{Client, Error, Mutex, Status};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{Failure, waiting};
use crate::config::Wait;
use crate::exit::Exit;
use crate::output::complain;

/// The first pause between two looks; each is twice as long as the one before.
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// How long a store that does not answer is borne, as by a wait for the lock itself.
const OUTAGE: Duration = Duration::from_secs(30);
/// How long the last look may take, beyond the time to wait.
const LAST_LOOK: Duration = Duration::from_secs(1);

pub(super) async fn wait(client: &Client, task: Wait) -> Result<Exit, Failure> {
    let mutex = super::mutex(client, &task.lock);
    let free = tokio::select! {
        free = until_free(&mutex, task.longest) => free?,
        never = waiting::show(&task.lock.name, &mutex) => match never {},
    };
    if free {
        return Ok(Exit::Success);
    }
    complain(&format!("{} is still held", task.lock.name));
    Ok(task.busy)
}

/// Whether the lock got free in that time.
async fn until_free(mutex: &Mutex, longest: Option<Duration>) -> Result<bool, Error> {
    let mut answered = Instant::now();
    let by = longest.map(|longest| answered + longest);
    let mut pause = PAUSE;
    loop {
        let last = by.is_some_and(|by| Instant::now() >= by);
        match look(mutex, by).await {
            Ok(None) => return Ok(true),
            Ok(Some(_)) if last => return Ok(false),
            Ok(Some(_)) => answered = Instant::now(),
            Err(error) if !error.is_retryable() || last || answered.elapsed() >= OUTAGE => {
                return Err(error);
            }
            Err(_) => {}
        }
        let next = Instant::now() + pause;
        sleep_until(by.map_or(next, |by| by.min(next))).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn look(mutex: &Mutex, by: Option<Instant>) -> Result<Option<Status>, Error> {
    let Some(by) = by else {
        return mutex.status().await;
    };
    let by = by.max(Instant::now()) + LAST_LOOK;
    let silent = |_| Err(Error::Timeout(LAST_LOOK));
    timeout_at(by, mutex.status()).await.unwrap_or_else(silent)
}
