//! `leasehold unlock --force`.

use leasehold::Client;

use super::Failure;
use crate::exit::Exit;
use crate::output;

pub(super) async fn unlock(client: &Client, name: &str) -> Result<Exit, Failure> {
    let held = client.mutex(name).force_unlock().await?;
    let found = if held {
        "was held; it is free now"
    } else {
        "was free"
    };
    output::say(&format!("{}: {found}", output::escaped(name)))?;
    Ok(Exit::Success)
}
