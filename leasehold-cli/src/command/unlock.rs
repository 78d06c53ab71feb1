//! `leasehold unlock --force`.

use leasehold::Client;

use super::{Failure, mutex};
use crate::config::Lock;
use crate::exit::Exit;
use crate::output;

pub(super) async fn unlock(client: &Client, lock: &Lock) -> Result<Exit, Failure> {
    let held = mutex(client, lock).force_unlock().await?;
    let found = if held {
        "was held; it is free now"
    } else {
        "was free"
    };
    output::say(&format!("{}: {found}", output::escaped(&lock.name)))?;
    Ok(Exit::Success)
}
