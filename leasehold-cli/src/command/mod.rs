//! The commands: functions from checked values to an exit code.

mod acquire;
mod ls;
mod parting;
mod release;
mod renew;
mod run;
mod status;
mod taking;
mod unlock;
mod wait;
mod waiting;

use std::fmt;
use std::io::ErrorKind;
use std::path::Path;

use leasehold::{Client, Error, Memory, Mutex};

use crate::config::{Config, Lock, Question, Task};
use crate::exit::Exit;
use crate::output;
use crate::place::Place;

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
    let question = match config.task {
        Task::Run(task) => return run::run(&config.place, task).await,
        Task::Acquire(task) => return acquire::acquire(&config.place, task).await,
        Task::Ask(question) => question,
    };
    match &question {
        Question::Renew(task) => renew::rehearse(&config.place, task).await?,
        other => rehearse(&config.place, other.lock()).await?,
    }
    let client = connect(&config.place, "").await?;
    let answer = ask(&client, question).await;
    client.close().await;
    answer
}

async fn ask(client: &Client, question: Question) -> Result<Exit, Failure> {
    match question {
        Question::Status { lock, json } => status::status(client, &lock, json).await,
        Question::Ls { pattern, json } => ls::ls(client, &pattern, json).await,
        Question::Wait(task) => wait::wait(client, task).await,
        Question::Renew(task) => renew::renew(client, task).await,
        Question::Release { lock, hold } => release::release(client, &lock, hold).await,
        Question::Unlock { lock } => unlock::unlock(client, &lock).await,
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

/// How a command ends that only prints.
pub(crate) fn tell(printed: std::io::Result<()>) -> Exit {
    match printed {
        Ok(()) => Exit::Success,
        Err(error) => explain(error.into()),
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
async fn connect(place: &Place, label: &str) -> Result<Client, Error> {
    let mut builder = Client::builder().prefix(&place.prefix).label(label);
    if let Some(file) = &place.cacert {
        builder = builder.ca_certificate(read(file)?);
    }
    if let Some((certificate, key)) = &place.identity {
        builder = builder.client_certificate(read(certificate)?, read(key)?);
    }
    let Some(url) = &place.url else {
        let client = builder.connect("local:").await?;
        let directory = client.directory().unwrap_or_else(|| "".as_ref());
        output::complain(&format!(
            "this machine only: the locks are in {} (--url names a server)",
            directory.display()
        ));
        return Ok(client);
    };
    builder.connect(url).await
}

fn read(file: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(file)
        .map_err(|error| Error::Config(format!("{} cannot be read: {error}", file.display())))
}

/// The mutex that is `lock` for this client.
fn mutex(client: &Client, lock: &Lock) -> Mutex {
    let mutex = client.mutex(&lock.name).wire(lock.wire);
    if lock.fenced { mutex.fenced() } else { mutex }
}

/// A client on a store in this process, which checks as the one on the store would.
fn rehearsal(place: &Place, label: &str) -> Client {
    let builder = Client::builder().prefix(&place.prefix).label(label);
    builder.memory(&Memory::new())
}

/// Lets the library check a name on a store in this process, before anything is sent.
async fn rehearse(place: &Place, lock: Option<&Lock>) -> Result<(), Error> {
    let Some(lock) = lock else { return Ok(()) };
    let client = rehearsal(place, "");
    let checked = mutex(&client, lock).status().await;
    client.close().await;
    checked.map(drop)
}
