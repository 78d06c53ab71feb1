//! `leasehold release`.

use leasehold::{Client, HoldId};

use super::{Failure, mutex};
use crate::config::Lock;
use crate::exit::Exit;

pub(super) async fn release(client: &Client, lock: &Lock, hold: HoldId) -> Result<Exit, Failure> {
    mutex(client, lock).adopt(hold).await?.release().await?;
    Ok(Exit::Success)
}
