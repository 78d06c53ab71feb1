//! `leasehold release`.

use leasehold::{Client, HoldId};

use super::Failure;
use crate::exit::Exit;

pub(super) async fn release(client: &Client, name: &str, hold: HoldId) -> Result<Exit, Failure> {
    client.mutex(name).adopt(hold).await?.release().await?;
    Ok(Exit::Success)
}
