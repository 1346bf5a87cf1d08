//! Status of the whole cluster.

use jiff::Timestamp;
use muster_documents::{Instant, Replica, ReplicaRole, Status};

use crate::output::{Cell, Column, Table, Tone, ago};
use crate::view::member::{lag, last_contact};

const REPLICA_COLUMNS: &[Column] = &[
    Column::new("REPLICA"),
    Column::new("ROLE"),
    Column::new("ADDRESS"),
    Column::new("LAG"),
    Column::new("LAST CONTACT"),
];

/// Text for a terminal.
pub(crate) fn render(status: &Status, now: Timestamp) -> String {
    let mut table = Table::new(&[Column::new(""), Column::new("")], false);
    for (key, value) in facts(status, now) {
        table.push(vec![Cell::toned(key, Tone::Faint), value]);
    }
    let mut replicas = Table::new(REPLICA_COLUMNS, false);
    for replica in &status.replicas {
        replicas.push(replica_cells(replica));
    }
    format!("{}\n{}", table.render(false), replicas.render(true))
}

/// Compatible builds: the formats that may be in the log, and those that this build could write.
fn log_formats(status: &Status) -> String {
    let Status {
        command_level: level,
        command_format: own,
        ..
    } = status;
    if level < own {
        return format!(
            "format {level}; {own} once all replicas are known to read it, which excludes older builds"
        );
    }
    format!("format {level}: older builds cannot read it")
}

fn leader(status: &Status, now: Timestamp) -> Cell {
    let Some(leader) = status.leader else {
        let text = format!("none known to replica {}", status.answered_by);
        return Cell::toned(text, Tone::Bad);
    };
    let text = format!(
        "replica {leader} at {}, elected {} (term {}, epoch {})",
        status.leader_address,
        ago(now, status.leader_since.unwrap_or(Instant { ms: 0 })),
        status.term,
        status.leadership_epoch
    );
    match status.has_quorum {
        Some(true) => Cell::toned(text, Tone::Good),
        Some(false) => Cell::toned(
            format!("{text}; no contact to a majority, so changes are impossible"),
            Tone::Bad,
        ),
        None => Cell::toned(
            format!("{text}; according to replica {}", status.answered_by),
            Tone::Waiting,
        ),
    }
}

fn facts(status: &Status, now: Timestamp) -> Vec<(&'static str, Cell)> {
    let (jobs, hosts, gpus) = (&status.jobs, &status.hosts, &status.gpus);
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
            format!("{} (version {})", status.cluster_id, status.version).into(),
        ),
        ("Log", log_formats(status).into()),
        ("Leader", leader(status, now)),
        ("Revision", status.revision.to_string().into()),
        ("Jobs", jobs.into()),
        ("Hosts", hosts.into()),
        ("GPUs", gpus.into()),
    ]
}

fn replica_cells(replica: &Replica) -> Vec<Cell> {
    let tone = match replica.role {
        ReplicaRole::Leader => Tone::Good,
        ReplicaRole::Follower | ReplicaRole::Learner => Tone::Plain,
        ReplicaRole::Candidate | ReplicaRole::Unknown => Tone::Waiting,
    };
    vec![
        replica.id.to_string().into(),
        Cell::toned(replica.role.as_str(), tone),
        (*replica.address).into(),
        lag(replica.lag_entries),
        last_contact(replica.last_heartbeat_age_ms),
    ]
}

#[cfg(test)]
mod tests {
    use muster_proto::v1;

    use super::*;

    fn shown(command_level: u32, command_format: u32) -> String {
        let status = v1::GetStatusResponse {
            command_level,
            command_format,
            ..v1::GetStatusResponse::default()
        };
        log_formats(&Status::from(status))
    }

    #[test]
    fn cluster_status_shows_the_command_format_and_whether_older_builds_read_it() {
        assert_eq!(shown(4, 4), "format 4: older builds cannot read it");
        assert!(shown(3, 4).starts_with("format 3; 4 once all replicas are known to read it"));
        // A leader of a newer build has raised it, and this replica was notified.
        assert!(shown(5, 4).starts_with("format 5: older builds"));
    }

    /// Display of the leader, replica 1, in an answer of replica `answers`, with the ages of the last
    /// contacts.
    fn leader_cell(answers: u64, last_heartbeat_age_ms: [Option<u64>; 2]) -> (Cell, Option<bool>) {
        let replica = |id, role: v1::ReplicaRole, last_heartbeat_age_ms| v1::Replica {
            id,
            role: role.into(),
            last_heartbeat_age_ms,
            ..v1::Replica::default()
        };
        let [second, third] = last_heartbeat_age_ms;
        let status = Status::from(v1::GetStatusResponse {
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
        (leader(&status, Timestamp::UNIX_EPOCH), status.has_quorum)
    }

    #[test]
    fn a_leader_without_a_majority_is_marked() {
        const LEADER: &str = "replica 1 at a:1, elected just now (term 0, epoch 0)";
        let well = leader_cell(1, [Some(20), Some(90_000)]);
        assert_eq!(well, (Cell::toned(LEADER, Tone::Good), Some(true)));
        let alone = format!("{LEADER}; no contact to a majority, so changes are impossible");
        let displayed = leader_cell(1, [None, Some(90_000)]);
        assert_eq!(displayed, (Cell::toned(alone, Tone::Bad), Some(false)));
        let by_another = format!("{LEADER}; according to replica 2");
        let displayed = leader_cell(2, [None, None]);
        assert_eq!(displayed, (Cell::toned(by_another, Tone::Waiting), None));
    }
}
