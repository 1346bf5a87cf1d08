//! A saved file and its contents.

use std::path::Path;

use jiff::Timestamp;
use muster_documents::{Backup, Instant, SavedJobs, SavedMember};
use muster_scheduler::offline::{self, Peer};

use crate::failure::Failure;
use crate::output::{ago, counted};

/// The document of a saved file.
pub(crate) fn document(file: &Path, backup: &offline::Backup) -> Result<Backup, Failure> {
    let size = std::fs::metadata(file);
    let size = size.map_err(|error| Failure::new(format!("{}: {error}", file.display())))?;
    let state = &backup.state;
    let ended = state.jobs.values();
    let ended = ended.filter(|job| job.phase.is_terminal()).count();
    Ok(Backup {
        file: file.display().to_string(),
        cluster_id: backup.about.cluster_id.clone(),
        revision: state.revision.get(),
        taken_at: Instant {
            ms: backup.about.time_ms,
        },
        replica_id: backup.about.replica_id,
        version: backup.about.version.clone(),
        term: backup.term,
        index: backup.index,
        members: saved_members(&backup.members),
        jobs: SavedJobs {
            live: state.jobs.len() - ended,
            ended,
        },
        hosts: state.hosts.len(),
        gpus: state.gpu_hosts.len(),
        queues: state.queues.len(),
        size_bytes: size.len(),
        sha256: backup.digest.clone(),
        encrypted: backup.is_sealed,
        state_hash_is_known: backup.has_known_hash,
    })
}

/// Members of a saved group; learners do not vote.
pub(crate) fn saved_members(members: &[(Peer, bool)]) -> Vec<SavedMember> {
    let members = members.iter().map(|(peer, votes)| SavedMember {
        id: peer.id,
        address: peer.address.clone(),
        votes: *votes,
    });
    members.collect()
}

/// Text for a terminal.
pub(crate) fn render(backup: &Backup, now: Timestamp) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| text += &format!("{name:<10}  {value}\n");
    line(
        "file",
        format!("{}, {} bytes, whole", backup.file, backup.size_bytes),
    );
    line(
        "encrypted",
        if backup.encrypted { "yes" } else { "no" }.to_owned(),
    );
    line("sha256", backup.sha256.clone());
    if !backup.state_hash_is_known {
        let why = "differs from the replica's: this build computes it differently, or reads another state";
        line("hash", why.to_owned());
    }
    line("cluster", backup.cluster_id.clone());
    let taken = ago(now, backup.taken_at);
    line(
        "taken",
        format!(
            "{} ({taken}) by replica {}",
            backup.taken_at, backup.replica_id
        ),
    );
    line(
        "revision",
        format!(
            "{} (log index {}, term {})",
            backup.revision, backup.index, backup.term
        ),
    );
    let SavedJobs { live, ended } = backup.jobs;
    line(
        "jobs",
        format!("{live} that have not ended, {ended} that have"),
    );
    let hosts = counted(backup.hosts as u64, "host");
    line(
        "hosts",
        format!("{hosts}, {}", counted(backup.gpus as u64, "GPU")),
    );
    line("queues", backup.queues.to_string());
    let members: Vec<String> = backup.members.iter().map(member).collect();
    line("members", members.join(", "));
    line("version", backup.version.clone());
    text
}

fn member(member: &SavedMember) -> String {
    let role = if member.votes { "" } else { " (learner)" };
    format!("{}={}{role}", member.id, member.address)
}
