//! The commands: functions from checked values to an exit code.

mod ls;
mod run;
mod status;
mod unlock;
mod waiting;

use std::fmt;
use std::io::ErrorKind;

use leasehold::{Client, Error};

use crate::config::{Config, Place, Task};
use crate::exit::Exit;
use crate::output;

/// Runs the command in a runtime of its own.
pub(crate) fn run(config: Config) -> Exit {
    // Renewals must go on while the main thread waits for a slow terminal.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => runtime.block_on(perform(config)).unwrap_or_else(explain),
        Err(error) => {
            output::complain(&format!("no runtime: {error}"));
            Exit::Internal
        }
    }
}

async fn perform(config: Config) -> Result<Exit, Failure> {
    match config.task {
        Task::Run(task) => run::run(&config.place, task).await,
        Task::Status { name, json } => {
            rehearse(&name).await?;
            let client = connect(&config.place).await?;
            let done = status::status(&client, &name, json).await;
            client.close().await;
            done
        }
        Task::Ls { pattern, json } => {
            let client = connect(&config.place).await?;
            let done = ls::ls(&client, &pattern, json).await;
            client.close().await;
            done
        }
        Task::Unlock { name } => {
            rehearse(&name).await?;
            let client = connect(&config.place).await?;
            let done = unlock::unlock(&client, &name).await;
            client.close().await;
            done
        }
    }
}

/// Why a command ends without having done its work.
#[derive(Debug)]
enum Failure {
    Lock(Error),
    /// Stdout is gone, or the process could not get what it needs from the system.
    System(std::io::Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Lock(error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::System(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock(error) => error.fmt(f),
            Self::System(error) => error.fmt(f),
        }
    }
}

fn explain(failure: Failure) -> Exit {
    if let Failure::System(error) = &failure
        && error.kind() == ErrorKind::BrokenPipe
    {
        // Whoever read our output has seen enough. We end as if by the signal, without a word.
        return Exit::Signal(rustix::process::Signal::PIPE.as_raw());
    }
    output::complain(&failure.to_string());
    match failure {
        Failure::Lock(error) => Exit::from(&error),
        Failure::System(_) => Exit::Internal,
    }
}

/// Connects, and says where to if nobody chose.
async fn connect(place: &Place) -> Result<Client, Error> {
    let Place::At(url) = place else {
        let client = Client::connect("local:").await?;
        let directory = client.directory().unwrap_or_else(|| "".as_ref());
        output::complain(&format!(
            "this machine only: the locks are in {} (--url names a server)",
            directory.display()
        ));
        return Ok(client);
    };
    Client::connect(url).await
}

/// Lets the library check a name on a store in this process, before anything is sent.
async fn rehearse(name: &str) -> Result<(), Error> {
    let client = Client::memory();
    let checked = client.mutex(name).status().await;
    client.close().await;
    checked.map(drop)
}
