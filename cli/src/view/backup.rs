//! A saved file and its contents.

use std::path::Path;

use jiff::Timestamp;
use muster_engine::state::State;
use muster_scheduler::offline::Backup;
use serde::Serialize;

use crate::failure::Failure;
use crate::output::{ago, counted, instant};

/// A saved file.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct BackupView {
    file: String,
    cluster_id: String,
    revision: u64,
    taken_at: String,
    #[serde(skip)]
    taken_at_ms: u64,
    replica_id: u64,
    version: String,
    term: u64,
    index: u64,
    members: Vec<MemberOf>,
    jobs: Jobs,
    hosts: usize,
    gpus: usize,
    queues: usize,
    size_bytes: u64,
    sha256: String,
    encrypted: bool,
    state_hash_is_known: bool,
}

/// A member of the saved group.
#[derive(Clone, Debug, Serialize)]
struct MemberOf {
    id: u64,
    address: String,
    votes: bool,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Jobs {
    live: usize,
    ended: usize,
}

impl BackupView {
    pub(crate) fn new(file: &Path, backup: &Backup) -> Result<Self, Failure> {
        let size = std::fs::metadata(file);
        let size = size.map_err(|error| Failure::new(format!("{}: {error}", file.display())))?;
        let member = |(peer, votes): &(muster_scheduler::offline::Peer, bool)| MemberOf {
            id: peer.id,
            address: peer.address.clone(),
            votes: *votes,
        };
        let state = &backup.state;
        Ok(Self {
            file: file.display().to_string(),
            cluster_id: backup.about.cluster_id.clone(),
            revision: state.revision.get(),
            taken_at: instant(backup.about.time_ms),
            taken_at_ms: backup.about.time_ms,
            replica_id: backup.about.replica_id,
            version: backup.about.version.clone(),
            term: backup.term,
            index: backup.index,
            members: backup.members.iter().map(member).collect(),
            jobs: jobs(state),
            hosts: state.hosts.len(),
            gpus: state.gpu_hosts.len(),
            queues: state.queues.len(),
            size_bytes: size.len(),
            sha256: backup.digest.clone(),
            encrypted: backup.is_sealed,
            state_hash_is_known: backup.has_known_hash,
        })
    }

    pub(crate) fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    pub(crate) fn taken_at(&self) -> &str {
        &self.taken_at
    }

    /// Text for a terminal.
    pub(crate) fn render(&self, now: Timestamp) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: String| text += &format!("{name:<10}  {value}\n");
        line(
            "file",
            format!("{}, {} bytes, whole", self.file, self.size_bytes),
        );
        line(
            "encrypted",
            if self.encrypted { "yes" } else { "no" }.to_owned(),
        );
        line("sha256", self.sha256.clone());
        if !self.state_hash_is_known {
            let why = "differs from the replica's: this build computes it differently, or reads another state";
            line("hash", why.to_owned());
        }
        line("cluster", self.cluster_id.clone());
        let taken = ago(now, self.taken_at_ms);
        line(
            "taken",
            format!("{} ({taken}) by replica {}", self.taken_at, self.replica_id),
        );
        line(
            "revision",
            format!(
                "{} (log index {}, term {})",
                self.revision, self.index, self.term
            ),
        );
        let jobs = (self.jobs.live as u64, self.jobs.ended);
        line(
            "jobs",
            format!("{} that have not ended, {} that have", jobs.0, jobs.1),
        );
        let hosts = counted(self.hosts as u64, "host");
        line(
            "hosts",
            format!("{hosts}, {}", counted(self.gpus as u64, "GPU")),
        );
        line("queues", self.queues.to_string());
        let members: Vec<String> = self.members.iter().map(MemberOf::told).collect();
        line("members", members.join(", "));
        line("version", self.version.clone());
        text
    }
}

impl MemberOf {
    fn told(&self) -> String {
        let learns = if self.votes { "" } else { " (learner)" };
        format!("{}={}{learns}", self.id, self.address)
    }
}

fn jobs(state: &State) -> Jobs {
    let ended = { state.jobs.values() }
        .filter(|job| job.phase.is_terminal())
        .count();
    Jobs {
        live: state.jobs.len() - ended,
        ended,
    }
}
