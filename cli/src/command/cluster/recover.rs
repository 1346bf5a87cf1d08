//! `muster cluster recover`.

use std::io::{self, BufRead as _, IsTerminal as _};
use std::path::PathBuf;

use clap::Args;
use jiff::Timestamp;
use muster_documents::{Instant, RecoveredReplica};
use muster_scheduler::offline::{Peer, SourceReplica};

use crate::connection::Options;
use crate::exit::Exit;
use crate::failure::{Failure, chain};
use crate::output::{Format, Screen, ago, instant, note, render_document};
use crate::view::backup::saved_members;

/// `muster cluster recover`
///
/// For the permanent loss of a majority of the voters. Run it on one replica that is left, which must be
/// stopped. If several are left, inspect each with --dry-run first, and choose the one with the highest term,
/// and among those the highest index. It becomes the only member; the others must never be started again, and
/// new ones join with new ids (docs/backup.md).
#[derive(Debug, Args)]
pub(crate) struct Recover {
    /// Data directory of the source replica
    #[arg(long, value_name = "DIR")]
    from_survivor: PathBuf,
    /// Only print the data of the replica and what may be lost
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
}

impl Recover {
    pub(crate) fn run(self, options: &Options) -> Result<Exit, Failure> {
        let survivor = SourceReplica::read(&self.from_survivor)
            .map_err(|error| Failure::new(chain(&error)))?;
        let screen = options.screen();
        if screen.is_table() || !self.dry_run {
            note(&describe(&survivor, screen.now()));
        }
        if self.dry_run {
            return print(&screen, &document(&survivor));
        }
        if !self.yes {
            confirm(survivor.cluster_id())?;
        }
        let before = document(&survivor);
        let (id, cluster) = (survivor.replica_id(), survivor.cluster_id().to_owned());
        let own = survivor
            .members()
            .into_iter()
            .find(|(peer, _)| peer.id == id);
        let kept = survivor
            .recover()
            .map_err(|error| Failure::new(chain(&error)))?;
        screen.report(&match screen.format {
            Format::Table | Format::Wide => {
                let address = own.map_or_else(String::new, |(peer, _)| peer.address);
                format!(
                    "replica {id} is the only member of cluster {cluster} now; its old data is kept in {}\n\
                     start it; new replicas join with empty data directories, new ids, and --join {address}\n",
                    kept.display()
                )
            }
            Format::Name => format!("{id}\n"),
            format => {
                let recovered = RecoveredReplica {
                    kept_in: Some(kept.display().to_string()),
                    ..before
                };
                render_document(format, &recovered)?
            }
        })?;
        Ok(Exit::Ok)
    }
}

/// Describes the data of the replica, and what may be lost.
fn describe(survivor: &SourceReplica, now: Timestamp) -> String {
    let loss = survivor.loss();
    let id = survivor.replica_id();
    let others = survivor
        .members()
        .into_iter()
        .filter(|(peer, _)| peer.id != id);
    let others: Vec<String> = others.map(|(peer, _)| Peer::to_string(&peer)).collect();
    let mut text = format!(
        "replica {id} of cluster {} has everything up to log index {} of term {}, revision {}, written {} ({})\n",
        survivor.cluster_id(),
        loss.index,
        loss.term,
        survivor.state().revision,
        instant(loss.time_ms),
        ago(now, Instant { ms: loss.time_ms }),
    );
    text += "permanently lost: everything that the others acknowledged after that; its extent is unknown\n";
    if loss.voted_term > loss.term {
        text += &format!(
            "there was an election after its last entry (term {}): another replica may have led since then\n",
            loss.voted_term
        );
    }
    if loss.unconfirmed > 0 {
        text += &format!(
            "kept: {} at the end that may not have been acknowledged\n",
            match loss.unconfirmed {
                1 => "1 entry".to_owned(),
                more => format!("{more} entries"),
            }
        );
    }
    text += &format!(
        "never start these again, remove their data directories: {}\n",
        if others.is_empty() {
            "none".to_owned()
        } else {
            others.join(", ")
        }
    );
    let live = survivor
        .state()
        .jobs
        .values()
        .filter(|job| !job.phase.is_terminal())
        .count();
    text += &format!(
        "{}; waiting jobs start only once no unknown task can hold a lease",
        match live {
            1 => "1 job continues".to_owned(),
            count => format!("{count} jobs continue"),
        }
    );
    text
}

/// The document of the data found, before anything is changed.
fn document(survivor: &SourceReplica) -> RecoveredReplica {
    let loss = survivor.loss();
    RecoveredReplica {
        cluster_id: survivor.cluster_id().to_owned(),
        replica_id: survivor.replica_id(),
        revision: survivor.state().revision.get(),
        term: loss.term,
        index: loss.index,
        voted_term: loss.voted_term,
        unconfirmed_entries: loss.unconfirmed,
        written_at: Instant { ms: loss.time_ms },
        members: saved_members(&survivor.members()),
        kept_in: None,
    }
}

fn print(screen: &Screen, found: &RecoveredReplica) -> Result<Exit, Failure> {
    match screen.format {
        Format::Table | Format::Wide => {}
        Format::Name => screen.report(&format!("{}\n", found.replica_id))?,
        format => screen.report(&render_document(format, found)?)?,
    }
    Ok(Exit::Ok)
}

/// Asks the operator for confirmation.
fn confirm(cluster: &str) -> Result<(), Failure> {
    if !io::stdin().is_terminal() {
        return Err(
            Failure::usage("nothing was changed: confirmation needs a terminal")
                .help("--yes skips the confirmation"),
        );
    }
    note(&format!("type the cluster's name ({cluster}) to continue:"));
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    read.map_err(|error| Failure::new(format!("cannot read the answer: {error}")))?;
    if answer.trim() == cluster {
        return Ok(());
    }
    Err(Failure::new(
        "nothing was changed: that is not the cluster's name",
    ))
}
