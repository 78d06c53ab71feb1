//! `leasehold status`.

use leasehold::Client;
use serde_json::json;

use super::{Failure, mutex};
use crate::config::Lock;
use crate::exit::Exit;
use crate::output;

pub(super) async fn status(client: &Client, lock: &Lock, json: bool) -> Result<Exit, Failure> {
    let found = mutex(client, lock).status().await?;
    let line = match (&found, json) {
        (Some(status), true) => {
            let mut value = output::json(status);
            value["held"] = true.into();
            value.to_string()
        }
        (None, true) => json!({ "name": &lock.name, "held": false }).to_string(),
        (Some(status), false) => output::row(status),
        (None, false) => format!("{}: free", output::escaped(&lock.name)),
    };
    output::say(&line)?;
    Ok(if found.is_some() {
        Exit::Success
    } else {
        Exit::Free
    })
}
