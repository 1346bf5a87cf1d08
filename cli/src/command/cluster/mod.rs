//! `muster cluster`.

#[cfg(feature = "server")]
mod recover;
mod replicas;

use std::time::Duration;

use clap::{Args, Subcommand};
use muster_client::{Client, ClientError};
use muster_documents::{LeaderTransfer, TriggeredSnapshot};
use muster_model::ids::ReplicaId;
use muster_proto::v1;

use crate::connection::{Freshness, Options};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Format, Screen, render_document};
use crate::view::status;

/// Refresh interval of a watched status: it contains values that have no events.
const REFRESH: Duration = Duration::from_secs(1);

/// Commands of `muster cluster`.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// The leader, the state of the replicas, and counts of all objects
    Status(Status),
    /// The replicas: role, log position, last contact, version
    Members(replicas::Members),
    /// Add a replica: it learns, catches up, and then votes
    Add(replicas::Add),
    /// Make a learner a voter, once it has caught up
    Promote(replicas::Promote),
    /// Remove a replica permanently
    Remove(replicas::Remove),
    /// Replace a voter by a new replica
    Replace(replicas::Replace),
    /// Transfer leadership to another replica
    TransferLeader(TransferLeader),
    /// Continue from one replica after the permanent loss of a majority; needs no running cluster
    #[cfg(feature = "server")]
    Recover(recover::Recover),
    /// Make the replica that answers write a snapshot and drop the log before it
    Snapshot,
}

/// `muster cluster status`
#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Refresh it every second
    #[arg(short, long)]
    watch: bool,
    #[command(flatten)]
    freshness: Freshness,
}

/// `muster cluster transfer-leader`
#[derive(Debug, Args)]
pub(crate) struct TransferLeader {
    /// The replica that should lead; by default any other that is up to date
    #[arg(long, value_name = "REPLICA")]
    to: Option<u64>,
}

impl Verb {
    /// Runs the command.
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        match self {
            Self::Status(status) => status.run(options).await,
            Self::Members(members) => members.run(options).await,
            Self::Add(add) => add.run(options).await,
            Self::Promote(promote) => promote.run(options).await,
            Self::Remove(remove) => remove.run(options).await,
            Self::Replace(replace) => replace.run(options).await,
            Self::TransferLeader(transfer) => transfer.run(options).await,
            #[cfg(feature = "server")]
            Self::Recover(recover) => recover.run(options),
            Self::Snapshot => snapshot(options).await,
        }
    }
}

impl Status {
    async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let client = options.connect().await?;
        let screen = options.screen();
        if self.watch {
            client.discover().await?;
        }
        loop {
            let status = read_status(&client, self.freshness.consistency()).await?;
            let text = render(&screen, &muster_documents::Status::from(status))?;
            if !self.watch {
                screen.data(&text)?;
                return Ok(Exit::Ok);
            }
            screen.redraw(&text)?;
            tokio::time::sleep(REFRESH).await;
        }
    }
}

/// Reads the status, from the leader if it answers: only the leader knows the positions of the other replicas
/// and the last contact with them. A stale read accepts the answer of any replica.
async fn read_status(
    client: &Client,
    consistency: v1::Consistency,
) -> Result<v1::GetStatusResponse, ClientError> {
    let status = client.status(consistency).await?;
    let has_other_leader = status.leader_id.is_some_and(|it| it != status.replica_id);
    if consistency == v1::Consistency::Stale || !has_other_leader {
        return Ok(status);
    }
    client.discover().await?;
    client.status(consistency).await
}

fn render(screen: &Screen, document: &muster_documents::Status) -> Result<String, Failure> {
    match screen.format {
        Format::Table | Format::Wide => Ok(status::render(document, screen.now())),
        Format::Name => Ok(format!("{}\n", document.cluster_id)),
        format => render_document(format, document),
    }
}

impl TransferLeader {
    async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let client = options.connect().await?;
        let asked = client.transfer_leader(self.to.map(ReplicaId)).await?;
        let screen = options.screen();
        screen.report(&match screen.format {
            Format::Table | Format::Wide => {
                format!("leadership transfer to replica {asked} requested\n")
            }
            Format::Name => format!("{asked}\n"),
            format => {
                let to_replica = asked.get();
                render_document(format, &LeaderTransfer { to_replica })?
            }
        })?;
        Ok(Exit::Ok)
    }
}

async fn snapshot(options: &Options) -> Result<Exit, Failure> {
    let client = options.connect().await?;
    let (replica, revision) = client.trigger_snapshot().await?;
    let screen = options.screen();
    screen.report(&match screen.format {
        Format::Table | Format::Wide => {
            format!("replica {replica} writes a snapshot at revision {revision} or later\n")
        }
        Format::Name => format!("{replica}\n"),
        format => {
            let triggered = TriggeredSnapshot {
                replica: replica.get(),
                revision: revision.get(),
            };
            render_document(format, &triggered)?
        }
    })?;
    Ok(Exit::Ok)
}
