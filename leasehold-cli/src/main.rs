//! `leasehold`: flock(1) across hosts.

mod cli;
mod command;
mod config;
mod exit;
mod output;
mod pages;
mod place;
mod signals;
mod supervise;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};
use crate::exit::Exit;
use crate::supervise::SUPERVISE;

fn main() -> ExitCode {
    // Not among the commands, so that no help and no completion knows of it.
    let mut words = std::env::args_os();
    if words.nth(1).is_some_and(|word| word == SUPERVISE) {
        return parsed(cli::Supervise::try_parse_from(std::env::args_os().skip(1)))
            .map_or_else(|wrong| wrong, supervise::work)
            .leave();
    }
    parsed(Cli::try_parse())
        .map_or_else(|wrong| wrong, run)
        .leave()
}

fn parsed<T>(parsed: Result<T, clap::Error>) -> Result<T, Exit> {
    parsed.map_err(|error| {
        // Whether help reaches a closed pipe or not, the verdict is the same.
        let _ = error.print();
        if error.use_stderr() {
            Exit::Usage
        } else {
            Exit::Success
        }
    })
}

fn run(cli: Cli) -> Exit {
    match cli.command {
        Command::Completions(args) => return pages::completions(args.shell),
        Command::Man(args) => return pages::manual(args.subcommand.as_deref()),
        _ => {}
    }
    match config::Config::try_from(cli) {
        Ok(config) => command::run(config),
        Err(wrong) => {
            output::complain(&wrong);
            Exit::Usage
        }
    }
}
