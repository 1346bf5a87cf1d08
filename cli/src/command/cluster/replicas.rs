//! `muster cluster members`, `add`, `promote`, `remove`, `replace`.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use muster_client::{Client, ClientConfig, ClientError};
use muster_documents::{ChangedReplica, Member};
use muster_model::ids::ReplicaId;
use muster_proto::v1;
use muster_proto::v1::change_replicas_request::Change;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::connection::{Freshness, Options};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Format, Screen, note, render_document, render_rows};
use crate::parse;

/// Interval of checks of a replica that catches up.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Longest wait for a replica's version.
const VERSION_DEADLINE: Duration = Duration::from_secs(1);
/// Default limit of the time to catch up.
const CATCH_UP_MAX: Duration = Duration::from_mins(10);
/// Lag in log entries at which a learner may become a voter: the scheduler's `PROMOTION_LAG_ENTRIES_MAX`.
const LEVEL_LAG_ENTRIES_MAX: u64 = 256;

/// `muster cluster members`
#[derive(Debug, Args)]
pub(crate) struct Members {
    #[command(flatten)]
    freshness: Freshness,
}

/// `muster cluster add`
#[derive(Debug, Args)]
#[command(
    after_help = "The replica must already be running, with an empty data directory:\n\n  \
    muster scheduler --replica-id 4 --join node1:7400,node2:7400 --advertise node4:7400"
)]
pub(crate) struct Add {
    /// The new replica: an id that was never used, above all others, and its address
    #[arg(value_name = "ID=HOST:PORT", value_parser = parse::replica)]
    replica: (ReplicaId, String),
    /// Leave it a learner: it receives the log and does not vote
    #[arg(long)]
    learner: bool,
    #[command(flatten)]
    wait_max: CatchUpTimeout,
}

/// `muster cluster promote`
#[derive(Debug, Args)]
pub(crate) struct Promote {
    /// The learner that should vote
    #[arg(value_name = "ID")]
    replica: u64,
    #[command(flatten)]
    wait_max: CatchUpTimeout,
}

/// `muster cluster remove`
#[derive(Debug, Args)]
pub(crate) struct Remove {
    /// The replica to remove permanently: a leader hands leadership over first
    #[arg(value_name = "ID")]
    replica: u64,
    /// Also if fewer than three voters are left, which survive no failure
    #[arg(long)]
    force: bool,
}

/// `muster cluster replace`
#[derive(Debug, Args)]
#[command(
    after_help = "The new replica must already be running, with an empty data directory; `muster cluster \
        add --help` shows how."
)]
pub(crate) struct Replace {
    /// The voter to replace, dead or alive
    #[arg(value_name = "OLD")]
    old: u64,
    /// The new replica; the id alone if it is a learner already
    #[arg(value_name = "NEW=HOST:PORT", value_parser = parse::replica_or_id)]
    new: (ReplicaId, Option<String>),
    #[command(flatten)]
    wait_max: CatchUpTimeout,
}

/// Limit of the wait for a replica that catches up.
#[derive(Clone, Copy, Debug, Args)]
struct CatchUpTimeout {
    /// Longest time to catch up once the replica is added (10m); a later call continues where this one ended.
    /// The wait for a replica that does not answer is limited by the leader, to 5s
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    timeout: Option<Duration>,
}

impl Members {
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let client = options.connect_to_follow().await?;
        let screen = options.screen();
        let status = super::read_status(&client, self.freshness.consistency()).await?;
        let versions = versions(&client, &status.replicas).await;
        let rows: Vec<Member> = status
            .replicas
            .into_iter()
            .map(|replica| {
                let version = versions.get(&replica.id).cloned();
                Member::new(replica, version)
            })
            .collect();
        screen.data(&render_rows(&screen, status.revision, &rows)?)?;
        Ok(Exit::Ok)
    }
}

/// The versions of the replicas that answer, each asked individually.
async fn versions(client: &Client, replicas: &[v1::Replica]) -> BTreeMap<u64, String> {
    let mut asked = JoinSet::new();
    for replica in replicas {
        let config = ClientConfig {
            addresses: vec![replica.address.clone()],
            ..client.config().clone()
        };
        asked.spawn(version(replica.id, config));
    }
    asked.join_all().await.into_iter().flatten().collect()
}

async fn version(id: u64, config: ClientConfig) -> Option<(u64, String)> {
    let config = ClientConfig {
        deadline: VERSION_DEADLINE,
        per_try_deadline: VERSION_DEADLINE,
        unreachable_deadline: Duration::ZERO,
        discover: false,
        ..config
    };
    let client = Client::connect(config).await.ok()?;
    let status = client.status(v1::Consistency::Stale).await.ok()?;
    // Another replica may listen there by now.
    (status.replica_id == id).then_some((id, status.version))
}

impl Add {
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let client = options.connect_to_follow().await?;
        let screen = options.screen();
        let (id, address) = self.replica;
        let added = client.change_replicas(add(id, &address), false).await?;
        if self.learner {
            return report_change(&screen, id, "is a learner", "was already a learner", &added);
        }
        screen.progress(&format!(
            "replica {id} at {address} added as a learner; it catches up before it votes"
        ));
        let change = Change::PromoteReplicaId(id.get());
        let promoted = catch_up(&client, &screen, id, change, self.wait_max).await?;
        report_change(&screen, id, "votes", "was already a voter", &promoted)
    }
}

impl Promote {
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let client = options.connect_to_follow().await?;
        let screen = options.screen();
        let id = ReplicaId(self.replica);
        let change = Change::PromoteReplicaId(self.replica);
        let promoted = catch_up(&client, &screen, id, change, self.wait_max).await?;
        report_change(&screen, id, "votes", "was already a voter", &promoted)
    }
}

impl Remove {
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let client = options.connect_to_follow().await?;
        let screen = options.screen();
        let change = Change::RemoveReplicaId(self.replica);
        let removed = client.change_replicas(change, self.force).await?;
        let id = ReplicaId(self.replica);
        report_change(
            &screen,
            id,
            "was removed",
            "had already been removed",
            &removed,
        )
    }
}

impl Replace {
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let client = options.connect_to_follow().await?;
        let screen = options.screen();
        let (new, address) = self.new;
        if let Some(address) = address {
            client.change_replicas(add(new, &address), false).await?;
            screen.progress(&format!(
                "replica {new} at {address} added as a learner; it catches up before it replaces replica {}",
                self.old
            ));
        }
        let change = Change::Replace(v1::ReplaceReplica {
            old_replica_id: self.old,
            new_replica_id: new.get(),
        });
        let replaced = catch_up(&client, &screen, new, change, self.wait_max).await?;
        let done = format!("replaces replica {}", self.old);
        report_change(&screen, new, &done, "had already replaced it", &replaced)
    }
}

fn add(id: ReplicaId, address: &str) -> Change {
    Change::Add(v1::AddReplica {
        replica_id: id.get(),
        address: address.to_owned(),
    })
}

/// Waits until a learner has nearly caught up, printing its lag, and promotes it. Under load it may fall
/// behind between the check and the request: then it is checked again.
async fn catch_up(
    client: &Client,
    screen: &Screen,
    id: ReplicaId,
    change: Change,
    wait_max: CatchUpTimeout,
) -> Result<v1::ChangeReplicasResponse, Failure> {
    let deadline = Instant::now() + wait_max.timeout.unwrap_or(CATCH_UP_MAX);
    let mut shown = None;
    loop {
        let status = client.status(v1::Consistency::Linearizable).await?;
        let replica = status.replicas.iter().find(|known| known.id == id.get());
        let lag = replica.and_then(|replica| replica.lag_entries);
        let is_learner = replica.is_some_and(|replica| replica.role() == v1::ReplicaRole::Learner);
        // Followers do not know the lag of others: then the leader is asked at once, and refuses a promotion
        // that is too early.
        if !is_learner || lag.is_none_or(|lag| lag <= LEVEL_LAG_ENTRIES_MAX) {
            match client.change_replicas(change.clone(), false).await {
                Ok(changed) => return Ok(changed),
                Err(error) if is_learner && lags(&error) && Instant::now() < deadline => {}
                Err(error) => return Err(error.into()),
            }
        } else if Instant::now() >= deadline {
            let lag = lag.unwrap_or_default();
            return Err(
                Failure::new(format!("replica {id} still lags by {lag} log entries"))
                    .exiting(Exit::TimedOut)
                    .help(format!(
                        "it continues to catch up; `muster cluster promote {id}` makes it a voter"
                    )),
            );
        }
        if lag != shown {
            shown = lag;
            let lag = lag.map_or_else(String::new, |lag| format!(": {lag} log entries behind"));
            screen.progress(&format!("replica {id} is catching up{lag}"));
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// Whether a retry may succeed: the replica lags, or has no contact to the leader yet.
fn lags(error: &ClientError) -> bool {
    error.refusal().is_some_and(|refusal| {
        refusal.reason == "NOT_LEVEL" || refusal.reason == "CHANGE_UNDER_WAY"
    })
}

fn report_change(
    screen: &Screen,
    id: ReplicaId,
    done: &str,
    was_so: &str,
    answer: &v1::ChangeReplicasResponse,
) -> Result<Exit, Failure> {
    if !answer.warning.is_empty() && screen.is_table() {
        note(&format!("warning: {}", answer.warning));
    }
    let outcome = if answer.changed { done } else { was_so };
    screen.report(&match screen.format {
        Format::Table | Format::Wide => format!("replica {id} {outcome}\n"),
        Format::Name => format!("{id}\n"),
        format => {
            let warning = Some(&answer.warning).filter(|warning| !warning.is_empty());
            let changed = ChangedReplica {
                replica: id.get(),
                changed: answer.changed,
                warning: warning.cloned(),
            };
            render_document(format, &changed)?
        }
    })?;
    Ok(Exit::Ok)
}
