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

/// What to do to find a fault.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Change what a replica or a worker logs, for a while
    LogLevel(log_level::LogLevel),
    /// Collect what a bug report needs into a file, without secrets
    Bundle(bundle::Bundle),
}

impl Verb {
    /// Does it.
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        match self {
            Self::LogLevel(level) => level.run(options).await,
            Self::Bundle(bundle) => bundle.run(options).await,
        }
    }
}

/// A client that talks to one replica alone, and waits for nobody.
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
