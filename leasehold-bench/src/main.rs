//! A closed-loop load program: what a lock costs beside the bare commands, in one run.

mod contender;
mod figures;
mod server;
mod uncontended;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

/// Measures locks against the bare commands that they send.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// One task takes and gives back a lock that nobody else wants.
    Uncontended(Uncontended),
}

#[derive(Debug, clap::Args)]
struct Uncontended {
    /// The server to measure; without it, a redis-server is started for the run.
    #[arg(long)]
    url: Option<String>,
    /// How many rounds; in each round every contender has its turn.
    #[arg(long, default_value_t = 10)]
    rounds: u32,
    /// How long one turn lasts.
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
}

#[tokio::main]
async fn main() -> ExitCode {
    let What::Uncontended(args) = Cli::parse().what;
    let turn = match Duration::try_from_secs_f64(args.seconds) {
        Ok(turn) if !turn.is_zero() && args.rounds > 0 => turn,
        _ => {
            eprintln!("leasehold-bench: rounds and seconds must be more than zero");
            return ExitCode::from(64);
        }
    };
    match uncontended::run(args.url, args.rounds, turn).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("leasehold-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
