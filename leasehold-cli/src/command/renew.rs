//! `leasehold renew`.

use leasehold::{Client, Error};

use super::{Failure, mutex, rehearsal};
use crate::config::Renew;
use crate::exit::Exit;
use crate::place::Place;

pub(super) async fn renew(client: &Client, task: Renew) -> Result<Exit, Failure> {
    let mutex = mutex(client, &task.lock).fixed_lease(task.lease);
    let guard = mutex.adopt(task.hold).await?;
    let extended = guard.extend(task.lease).await;
    // Whatever came of it, the hold is the script's, not ours to give back.
    let _ = guard.forget();
    extended?;
    Ok(Exit::Success)
}

/// Lets the library check the lease on a store in this process, before anything is sent.
pub(super) async fn rehearse(place: &Place, task: &Renew) -> Result<(), Error> {
    let client = rehearsal(place, "");
    let mutex = mutex(&client, &task.lock).fixed_lease(task.lease);
    let checked = mutex.try_lock().await.map(drop);
    client.close().await;
    checked
}
