//! Printing a list once, or again after every change.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::{Args, ValueEnum};
use muster_client::{Client, ClientError, WatchFilter, WatchUpdate};
use muster_model::health::Phase;
use muster_model::ids::Revision;
use muster_proto::v1;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Row, Screen, render_rows};

/// Changes within this time are displayed together.
const SETTLE: Duration = Duration::from_millis(200);
/// Maximum age of a displayed list, even without changes: it contains relative times.
const REFRESH: Duration = Duration::from_secs(10);

/// Filter of hosts or GPUs by health phase.
#[derive(Clone, Debug, Args)]
pub(crate) struct PhaseFilter {
    /// Only hosts or GPUs in this health phase; repeatable
    #[arg(long, value_enum)]
    phase: Vec<PhaseName>,
    /// Only hosts or GPUs with a hold by a rule, such as no gangs
    #[arg(long)]
    pub(crate) restrictions: bool,
}

/// Health phase of a host or GPU, set by a rule or an admin.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum PhaseName {
    /// In use
    Healthy,
    /// In use, and monitored
    Suspect,
    /// Nothing new is placed; running tasks are to leave, or may end
    Draining,
    /// Out of placement, by a rule or by an admin
    Blocked,
    /// Being reset, rebooted or worked on
    Repairing,
    /// Waits for an active check to pass
    Checking,
    /// Takes only work that can be lost
    Probation,
    /// Returned to its vendor
    Rma,
}

impl PhaseFilter {
    /// API names of the phases.
    pub(crate) fn phases(&self) -> Vec<String> {
        let phases = self.phase.iter().flat_map(|name| name.phases());
        phases.map(|phase| phase.name().to_owned()).collect()
    }
}

impl PhaseName {
    const fn phases(self) -> &'static [Phase] {
        match self {
            Self::Healthy => &[Phase::Healthy],
            Self::Suspect => &[Phase::Suspect],
            Self::Draining => &[Phase::Draining, Phase::DrainingAdmin],
            Self::Blocked => &[Phase::Blocked, Phase::BlockedAdmin],
            Self::Repairing => &[Phase::Repairing],
            Self::Checking => &[Phase::Checking],
            Self::Probation => &[Phase::Probation],
            Self::Rma => &[Phase::Rma],
        }
    }
}

/// Reports which of the named hosts do not exist; returns the exit of a command that lists the others.
pub(crate) async fn check_hosts(
    client: &Client,
    names: &[String],
    consistency: v1::Consistency,
) -> Result<Exit, Failure> {
    if names.is_empty() {
        return Ok(Exit::Ok);
    }
    let request = v1::ListHostsRequest {
        names: names.to_vec(),
        consistency: consistency.into(),
        ..v1::ListHostsRequest::default()
    };
    let (_, known) = client.list_hosts(request).await?;
    let known: BTreeSet<&str> = known.iter().map(|host| host.name.as_str()).collect();
    let unknown = names.iter().filter(|name| !known.contains(name.as_str()));
    let lines: Vec<String> = unknown
        .map(|name| format!("host `{name}` does not exist"))
        .collect();
    if lines.is_empty() {
        return Ok(Exit::Ok);
    }
    Failure::list(lines)
        .help("`muster host list` shows the hosts")
        .print();
    Ok(Exit::Error)
}

/// Prints the rows from `read`; with `watch`, again after every event, forever.
pub(crate) async fn show<R: Row>(
    client: &Client,
    screen: &Screen,
    watch: bool,
    read: impl AsyncFn() -> Result<(Revision, Vec<R>), ClientError>,
) -> Result<Exit, Failure> {
    let (revision, rows) = read().await?;
    let text = render_rows(screen, revision.get(), &rows)?;
    if !watch {
        screen.report(&text)?;
        return Ok(Exit::Ok);
    }
    client.discover().await?;
    screen.redraw(&text)?;
    let mut events = client.watch(Some(revision), WatchFilter::default());
    loop {
        let changed = tokio::time::timeout(REFRESH, next_change(&mut events, screen)).await;
        if let Ok(changed) = changed {
            changed?;
            tokio::time::sleep(SETTLE).await;
        }
        let (revision, rows) = read().await?;
        screen.redraw(&render_rows(screen, revision.get(), &rows)?)?;
        events = client.watch(Some(revision), WatchFilter::default());
    }
}

async fn next_change(
    events: &mut muster_client::Watch,
    screen: &Screen,
) -> Result<(), ClientError> {
    loop {
        match events.next().await {
            Ok(WatchUpdate::Events { .. }) | Err(ClientError::Compacted { .. }) => return Ok(()),
            Ok(WatchUpdate::Bookmark { .. }) => {}
            Ok(WatchUpdate::Resumed { replica, cause }) => {
                screen.progress(&format!("note: {cause}; continuing with {replica}"));
            }
            Err(error) => return Err(error),
        }
    }
}
