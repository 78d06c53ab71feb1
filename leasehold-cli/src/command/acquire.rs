//! `leasehold acquire`.

use leasehold::{Client, Error, Mutex};

use super::parting::Parting;
use super::taking::Wanted;
use super::{Failure, connect, rehearsal};
use crate::config::Acquire;
use crate::exit::Exit;
use crate::output;
use crate::place::Place;
use crate::signals::Signals;

pub(super) async fn acquire(place: &Place, task: Acquire) -> Result<Exit, Failure> {
    rehearse(place, &task).await?;
    let mut signals = Signals::listen()?;
    let client = tokio::select! {
        client = connect(place, &task.label) => client?,
        number = signals.end() => return Ok(Exit::Signal(number)),
    };
    let mut parting = Parting::new();
    let exit = take(&client, &task, &mut signals, &mut parting).await;
    parting.begin(task.lease);
    let _ = parting.bear(&mut signals, client.close()).await;
    exit
}

/// Lets the library check all settings on a store in this process, before anything is sent.
async fn rehearse(place: &Place, task: &Acquire) -> Result<(), Error> {
    let client = rehearsal(place, &task.label);
    let checked = mutex(&client, task).try_lock().await.map(drop);
    client.close().await;
    checked
}

fn mutex(client: &Client, task: &Acquire) -> Mutex {
    super::mutex(client, &task.lock).fixed_lease(task.lease)
}

async fn take(
    client: &Client,
    task: &Acquire,
    signals: &mut Signals,
    parting: &mut Parting,
) -> Result<Exit, Failure> {
    let mutex = mutex(client, task);
    let wanted = Wanted {
        name: &task.lock.name,
        mutex: &mutex,
        patience: task.patience,
        busy: task.busy,
    };
    let guard = match wanted.take(signals, parting).await? {
        Ok(guard) => guard,
        Err(exit) => return Ok(exit),
    };
    let lines = match guard.token() {
        _ if task.json => output::taken(&task.lock.name, &guard).to_string(),
        Some(token) => format!("{}\n{token}", guard.hold_id()),
        None => guard.hold_id().to_string(),
    };
    // What nobody could read, nobody could release.
    if let Err(error) = output::say(&lines) {
        parting.begin(guard.lease().remaining());
        let _ = parting.bear(signals, guard.release()).await;
        return Err(error.into());
    }
    let _ = guard.forget();
    Ok(Exit::Success)
}
