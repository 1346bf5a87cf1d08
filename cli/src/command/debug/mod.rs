//! `muster debug`.

mod bundle;
mod collection;
mod log_level;

use std::time::Duration;

use clap::Subcommand;
use muster_client::{Client, ClientConfig, ClientError};
use muster_proto::v1;

use crate::connection::Options;
use crate::exit::Exit;
use crate::failure::Failure;

/// Longest wait for one process that does not answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Commands of `muster debug`.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Change the log level of a replica or a worker temporarily
    LogLevel(log_level::LogLevel),
    /// Collect data for a bug report into a file, without secrets
    Bundle(bundle::Bundle),
}

impl Verb {
    /// Runs the command.
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        match self {
            Self::LogLevel(level) => level.run(options).await,
            Self::Bundle(bundle) => bundle.run(options).await,
        }
    }
}

/// A client of one replica only, without retries at others.
async fn client_of(client: &Client, replica: &v1::Replica) -> Result<Client, ClientError> {
    let config = ClientConfig {
        addresses: vec![replica.address.clone()],
        deadline: ANSWER_MAX,
        per_try_deadline: ANSWER_MAX,
        unreachable_deadline: Duration::ZERO,
        discover: false,
        ..client.config().clone()
    };
    Client::connect(config).await
}
