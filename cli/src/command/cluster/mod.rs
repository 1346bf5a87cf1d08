//! `muster cluster`.

#[cfg(feature = "server")]
mod recover;
mod replicas;

use std::time::Duration;

use clap::{Args, Subcommand};
use muster_client::{Client, ClientError};
use muster_model::ids::ReplicaId;
use muster_proto::v1;

use crate::connection::{Freshness, Options};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Format, Screen, render_document};
use crate::view::StatusView;

/// Time between two pictures of a watched status: it holds things that are no events.
const REFRESH: Duration = Duration::from_secs(1);

/// What to do with the cluster.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Who leads, how the replicas are, and counts of everything
    Status(Status),
    /// The replicas: what each is to the group, how far it is, when it was heard, its version
    Members(replicas::Members),
    /// Add a replica: it learns, catches up, and then votes
    Add(replicas::Add),
    /// Let a learner vote, once it has caught up
    Promote(replicas::Promote),
    /// Remove a replica, for ever
    Remove(replicas::Remove),
    /// Let a new replica vote in place of another one, which leaves
    Replace(replicas::Replace),
    /// Make another replica lead
    TransferLeader(TransferLeader),
    /// Go on with one replica when a majority is lost for good; no cluster is needed
    #[cfg(feature = "server")]
    Recover(recover::Recover),
    /// Make the replica that answers write a snapshot and drop the log before it
    Snapshot,
}

/// `muster cluster status`
#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Show it again every second
    #[arg(short, long)]
    watch: bool,
    #[command(flatten)]
    freshness: Freshness,
}

/// `muster cluster transfer-leader`
#[derive(Debug, Args)]
pub(crate) struct TransferLeader {
    /// The replica that should lead; any other that is up to date if none is given
    #[arg(long, value_name = "REPLICA")]
    to: Option<u64>,
}

impl Verb {
    /// Does it.
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
            let status = look(&client, self.freshness.consistency()).await?;
            let text = render(&screen, &StatusView::from(status))?;
            if !self.watch {
                screen.data(&text)?;
                return Ok(Exit::Ok);
            }
            screen.redraw(&text)?;
            tokio::time::sleep(REFRESH).await;
        }
    }
}

/// The status, from the leader if it answers: nobody else knows how far the others are, and when they were heard. Where it may be
/// stale, any replica's word is what was asked for.
async fn look(
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

fn render(screen: &Screen, status: &StatusView) -> Result<String, Failure> {
    match screen.format {
        Format::Table | Format::Wide => Ok(status.render(screen.now())),
        Format::Name => Ok(format!("{}\n", status.cluster_id())),
        format => render_document(format, status),
    }
}

impl TransferLeader {
    async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let client = options.connect().await?;
        let asked = client.transfer_leader(self.to.map(ReplicaId)).await?;
        let screen = options.screen();
        screen.tell(&match screen.format {
            Format::Table | Format::Wide => format!("replica {asked} was asked to lead\n"),
            Format::Name => format!("{asked}\n"),
            format => render_document(format, &serde_json::json!({"to_replica": asked}))?,
        })?;
        Ok(Exit::Ok)
    }
}

async fn snapshot(options: &Options) -> Result<Exit, Failure> {
    let client = options.connect().await?;
    let (replica, revision) = client.trigger_snapshot().await?;
    let screen = options.screen();
    screen.tell(&match screen.format {
        Format::Table | Format::Wide => {
            format!("replica {replica} writes a snapshot at revision {revision} or later\n")
        }
        Format::Name => format!("{replica}\n"),
        format => {
            let done = serde_json::json!({"replica": replica, "revision": revision});
            render_document(format, &done)?
        }
    })?;
    Ok(Exit::Ok)
}
