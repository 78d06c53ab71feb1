//! `leasehold ls`.

use leasehold::Client;
use serde_json::Value;

use super::Failure;
use crate::exit::Exit;
use crate::output;

pub(super) async fn ls(client: &Client, pattern: &str, json: bool) -> Result<Exit, Failure> {
    let found = client.list(pattern).await?;
    if json {
        let rows: Vec<Value> = found.iter().map(output::json).collect();
        output::say(&Value::from(rows).to_string())?;
    } else {
        for status in &found {
            output::say(&output::row(status))?;
        }
    }
    Ok(Exit::Success)
}
