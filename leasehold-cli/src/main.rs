//! `leasehold`: flock(1) across hosts.

mod cli;
mod command;
mod config;
mod exit;
mod output;
mod signals;
mod supervise;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};
use crate::exit::Exit;

fn main() -> ExitCode {
    let exit = match Cli::try_parse() {
        Ok(cli) => run(cli),
        Err(error) => {
            // Whether help reaches a closed pipe or not, the verdict is the same.
            let _ = error.print();
            if error.use_stderr() {
                Exit::Usage
            } else {
                Exit::Success
            }
        }
    };
    exit.leave()
}

fn run(cli: Cli) -> Exit {
    if let Command::Supervise(args) = cli.command {
        return supervise::work(args);
    }
    match config::Config::try_from(cli) {
        Ok(config) => command::run(config),
        Err(wrong) => {
            output::complain(&wrong);
            Exit::Usage
        }
    }
}
