//! A lock that nobody else wants.

use std::time::Duration;

use leasehold::Client;
use tokio::time::Instant;

use crate::contender::{Contender, Failure, Raw};
use crate::figures::Spread;
use crate::server::Server;

/// Measures all contenders in turns and prints what a pair costs each.
#[expect(
    clippy::print_stdout,
    reason = "the figures are what the program is for"
)]
pub(crate) async fn run(url: Option<String>, rounds: u32, turn: Duration) -> Result<(), Failure> {
    let server = match url {
        Some(_) => None,
        None => Some(Server::start().await?),
    };
    let url = url
        .or_else(|| server.as_ref().map(Server::url))
        .ok_or("there is no server")?;
    let folder = tempfile::tempdir()?;
    let mut clients = vec![
        ("mutex, server", Client::connect(&url).await?),
        ("mutex, memory", Client::memory()),
    ];
    match Client::connect(&format!("local:{}", folder.path().join("locks").display())).await {
        Ok(client) => clients.push(("mutex, local", client)),
        Err(error) => eprintln!("leasehold-bench: no figures of the local store: {error}"),
    }
    let raw = Contender::Raw(Raw::connect(&url).await?);
    let mut contenders = vec![("two raw EVALSHA", raw)];
    for (name, client) in &clients {
        contenders.push((name, Contender::mutex(client)));
    }

    let mut medians = vec![vec![]; contenders.len()];
    let mut pairs = vec![0_usize; contenders.len()];
    for (_, contender) in &mut contenders {
        measure(contender, turn / 4).await?;
    }
    for _ in 0..rounds {
        for (at, (_, contender)) in contenders.iter_mut().enumerate() {
            let times = measure(contender, turn).await?;
            pairs[at] += times.len();
            medians[at].extend(Spread::of(&times).map(|spread| spread.median));
        }
    }
    for (_, client) in clients {
        client.close().await;
    }

    println!("median of a pair over {rounds} interleaved rounds (least to most), in µs");
    for (at, (name, _)) in contenders.iter().enumerate() {
        if let Some(spread) = Spread::of(&medians[at]) {
            println!("{name:<16} {spread}  {} pairs", pairs[at]);
        }
    }
    let ratios: Vec<_> = medians[1]
        .iter()
        .zip(&medians[0])
        .map(|(mutex, raw)| mutex / raw)
        .collect();
    if let (Some(raw), Some(ratio)) = (Spread::of(&medians[0]), Spread::of(&ratios)) {
        println!("a round trip     {:>9.2}", raw.median / 2.0);
        println!("mutex / raw      {ratio}");
    }
    Ok(())
}

/// Does pairs for as long as a turn lasts; the time of each in microseconds.
async fn measure(contender: &mut Contender, turn: Duration) -> Result<Vec<f64>, Failure> {
    let mut times = vec![];
    let begun = Instant::now();
    let mut before = begun;
    while before - begun < turn {
        contender.pair().await?;
        let after = Instant::now();
        times.push((after - before).as_secs_f64() * 1e6);
        before = after;
    }
    Ok(times)
}
