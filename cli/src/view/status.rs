//! Status of the whole cluster.

use jiff::Timestamp;
use muster_proto::v1;
use serde::Serialize;

use crate::output::{Cell, Column, Table, Tone, ago, instant, span};
use crate::view::member::SILENT_MS;
use crate::view::word::word;

const REPLICA_COLUMNS: &[Column] = &[
    Column::new("REPLICA"),
    Column::new("ROLE"),
    Column::new("ADDRESS"),
    Column::new("BEHIND"),
    Column::new("HEARD"),
];

/// The leader, the state of the replicas, and counts of all objects.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct StatusView {
    cluster_id: String,
    version: String,
    command_level: u32,
    command_format: u32,
    revision: u64,
    time: String,
    answered_by: u64,
    leader: Option<u64>,
    leader_address: String,
    /// Whether the leader is in contact with a majority; `None` if the answer is not from the leader.
    hears_majority: Option<bool>,
    term: u64,
    leadership_epoch: u64,
    leader_since: Option<String>,
    replicas: Vec<ReplicaView>,
    jobs: JobCountsView,
    hosts: HostCountsView,
    gpus: GpuCountsView,
    #[serde(skip)]
    leader_since_ms: u64,
}

/// One replica.
#[derive(Clone, Debug, Serialize)]
struct ReplicaView {
    id: u64,
    role: String,
    address: String,
    matched_index: Option<u64>,
    lag_entries: Option<u64>,
    heard_ago_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct JobCountsView {
    queued: u64,
    running: u64,
    cancelling: u64,
    succeeded: u64,
    failed: u64,
    cancelled: u64,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct HostCountsView {
    up: u32,
    suspect: u32,
    lost: u32,
    blocked: u32,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct GpuCountsView {
    total: u64,
    free: u64,
    held: u64,
    blocked: u64,
    faulted: u64,
    unreachable: u64,
}

impl From<v1::GetStatusResponse> for StatusView {
    fn from(status: v1::GetStatusResponse) -> Self {
        let hears_majority = hears_majority(&status);
        let jobs = status.jobs.unwrap_or_default();
        let hosts = status.hosts.unwrap_or_default();
        let gpus = status.gpus.unwrap_or_default();
        Self {
            cluster_id: status.cluster_id,
            version: status.version,
            command_level: status.command_level,
            command_format: status.command_format,
            revision: status.revision,
            time: instant(status.time_ms),
            answered_by: status.replica_id,
            leader: status.leader_id,
            leader_address: status.leader_address,
            hears_majority,
            term: status.term,
            leadership_epoch: status.leadership_epoch,
            leader_since: (status.leader_since_ms > 0).then(|| instant(status.leader_since_ms)),
            replicas: status.replicas.into_iter().map(ReplicaView::from).collect(),
            jobs: JobCountsView {
                queued: jobs.queued,
                running: jobs.running,
                cancelling: jobs.cancelling,
                succeeded: jobs.succeeded,
                failed: jobs.failed,
                cancelled: jobs.cancelled,
            },
            hosts: HostCountsView {
                up: hosts.up,
                suspect: hosts.suspect,
                lost: hosts.lost,
                blocked: hosts.blocked,
            },
            gpus: GpuCountsView {
                total: gpus.total,
                free: gpus.free,
                held: gpus.held,
                blocked: gpus.blocked,
                faulted: gpus.faulted,
                unreachable: gpus.unreachable,
            },
            leader_since_ms: status.leader_since_ms,
        }
    }
}

impl From<v1::Replica> for ReplicaView {
    fn from(replica: v1::Replica) -> Self {
        Self {
            id: replica.id,
            role: word(replica.role().as_str_name(), "REPLICA_ROLE_")
                .replace("unspecified", "unknown"),
            address: replica.address,
            matched_index: replica.matched_index,
            lag_entries: replica.lag_entries,
            heard_ago_ms: replica.heard_ago_ms,
        }
    }
}

/// Whether a majority of the voters was recently in contact with the leader, which only the leader knows.
fn hears_majority(status: &v1::GetStatusResponse) -> Option<bool> {
    if status.leader_id != Some(status.replica_id) {
        return None;
    }
    let voters = status.replicas.iter();
    let voters = voters.filter(|replica| replica.role() != v1::ReplicaRole::Learner);
    let is_heard = |replica: &&v1::Replica| replica.heard_ago_ms.is_some_and(|ms| ms <= SILENT_MS);
    let (all, heard) = (voters.clone().count(), voters.filter(is_heard).count());
    Some(2 * heard > all)
}

impl StatusView {
    /// The cluster's name.
    pub(crate) fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    /// Text for a terminal.
    pub(crate) fn render(&self, now: Timestamp) -> String {
        let mut facts = Table::new(&[Column::new(""), Column::new("")], false);
        for (key, value) in self.facts(now) {
            facts.push(vec![Cell::toned(key, Tone::Faint), value]);
        }
        let mut replicas = Table::new(REPLICA_COLUMNS, false);
        for replica in &self.replicas {
            replicas.push(replica.cells());
        }
        format!("{}\n{}", facts.render(false), replicas.render(true))
    }

    /// Compatible builds: the formats that may be in the log, and those that this build could write.
    fn log_formats(&self) -> String {
        let Self {
            command_level: level,
            command_format: own,
            ..
        } = self;
        if level < own {
            return format!(
                "format {level}; {own} once all replicas are known to read it, which excludes older builds"
            );
        }
        format!("format {level}: older builds cannot read it")
    }

    fn leader(&self, now: Timestamp) -> Cell {
        let Some(leader) = self.leader else {
            let told = format!("none known to replica {}", self.answered_by);
            return Cell::toned(told, Tone::Bad);
        };
        let told = format!(
            "replica {leader} at {}, elected {} (term {}, epoch {})",
            self.leader_address,
            ago(now, self.leader_since_ms),
            self.term,
            self.leadership_epoch
        );
        match self.hears_majority {
            Some(true) => Cell::toned(told, Tone::Good),
            Some(false) => Cell::toned(
                format!("{told}; no contact to a majority, so changes are impossible"),
                Tone::Bad,
            ),
            None => Cell::toned(
                format!("{told}; according to replica {}", self.answered_by),
                Tone::Waiting,
            ),
        }
    }

    fn facts(&self, now: Timestamp) -> Vec<(&'static str, Cell)> {
        let (jobs, hosts, gpus) = (self.jobs, self.hosts, self.gpus);
        let jobs = format!(
            "{} running, {} queued, {} cancelling; {} succeeded, {} failed, {} cancelled",
            jobs.running, jobs.queued, jobs.cancelling, jobs.succeeded, jobs.failed, jobs.cancelled
        );
        let hosts = format!(
            "{} up, {} suspect, {} lost; {} blocked",
            hosts.up, hosts.suspect, hosts.lost, hosts.blocked
        );
        let gpus = format!(
            "{} held and {} free of {}; {} blocked, {} faulted, {} unreachable",
            gpus.held, gpus.free, gpus.total, gpus.blocked, gpus.faulted, gpus.unreachable
        );
        vec![
            (
                "Cluster",
                format!("{} (version {})", self.cluster_id, self.version).into(),
            ),
            ("Log", self.log_formats().into()),
            ("Leader", self.leader(now)),
            ("Revision", self.revision.to_string().into()),
            ("Jobs", jobs.into()),
            ("Hosts", hosts.into()),
            ("GPUs", gpus.into()),
        ]
    }
}

impl ReplicaView {
    fn cells(&self) -> Vec<Cell> {
        let tone = match &*self.role {
            "leader" => Tone::Good,
            "follower" | "learner" => Tone::Plain,
            _ => Tone::Waiting,
        };
        let lag = self.lag_entries.map(|lag| format!("{lag} entries"));
        let heard = self.heard_ago_ms.map(|ms| format!("{} ago", span(ms)));
        let is_silent = self.heard_ago_ms.is_some_and(|ms| ms > SILENT_MS);
        vec![
            self.id.to_string().into(),
            Cell::toned(&*self.role, tone),
            (*self.address).into(),
            lag.unwrap_or_default().into(),
            Cell::toned(
                heard.unwrap_or_default(),
                if is_silent { Tone::Bad } else { Tone::Plain },
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(command_level: u32, command_format: u32) -> String {
        let status = v1::GetStatusResponse {
            command_level,
            command_format,
            ..v1::GetStatusResponse::default()
        };
        StatusView::from(status).log_formats()
    }

    #[test]
    fn it_says_which_builds_can_follow() {
        assert_eq!(shown(4, 4), "format 4: older builds cannot read it");
        assert!(shown(3, 4).starts_with("format 3; 4 once all replicas are known to read it"));
        // A leader of a newer build has raised it, and this replica was notified.
        assert!(shown(5, 4).starts_with("format 5: older builds"));
    }

    /// Display of the leader, replica 1, in an answer of replica `answers`, with the ages of the last
    /// contacts.
    fn leader_as_told(answers: u64, heard_ago_ms: [Option<u64>; 2]) -> (Cell, Option<bool>) {
        let replica = |id, role: v1::ReplicaRole, heard_ago_ms| v1::Replica {
            id,
            role: role.into(),
            heard_ago_ms,
            ..v1::Replica::default()
        };
        let [second, third] = heard_ago_ms;
        let status = StatusView::from(v1::GetStatusResponse {
            replica_id: answers,
            leader_id: Some(1),
            leader_address: "a:1".to_owned(),
            replicas: vec![
                replica(1, v1::ReplicaRole::Leader, Some(0)),
                replica(2, v1::ReplicaRole::Follower, second),
                replica(3, v1::ReplicaRole::Follower, third),
                replica(4, v1::ReplicaRole::Learner, Some(0)),
            ],
            ..v1::GetStatusResponse::default()
        });
        (status.leader(Timestamp::UNIX_EPOCH), status.hears_majority)
    }

    #[test]
    fn a_leader_without_a_majority_is_told_of() {
        const LEADER: &str = "replica 1 at a:1, elected just now (term 0, epoch 0)";
        let well = leader_as_told(1, [Some(20), Some(90_000)]);
        assert_eq!(well, (Cell::toned(LEADER, Tone::Good), Some(true)));
        let alone = format!("{LEADER}; no contact to a majority, so changes are impossible");
        let told = leader_as_told(1, [None, Some(90_000)]);
        assert_eq!(told, (Cell::toned(alone, Tone::Bad), Some(false)));
        let by_another = format!("{LEADER}; according to replica 2");
        let told = leader_as_told(2, [None, None]);
        assert_eq!(told, (Cell::toned(by_another, Tone::Waiting), None));
    }
}
