//! `muster snapshot`.

mod save;

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use muster_documents::RestoredReplica;
use muster_scheduler::offline::{Backup, Key, Peer, RebuildTarget};
use muster_tls::is_loopback;

use crate::connection::Options;
use crate::exit::Exit;
use crate::failure::{Failure, chain};
use crate::output::{Format, Screen, instant, render_document};
use crate::view::backup;

/// Tolerance for a clock behind that of the replica that saved a file: above the skew of synchronized clocks,
/// and below the time of a restore.
const CLOCK_SKEW_MS_MAX: u64 = 10_000;

/// Commands of `muster snapshot`.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Save the cluster's complete state to a file, and check it
    Save(save::Save),
    /// Check every byte of a saved file and show its contents; needs no running cluster
    Inspect(Inspect),
    /// Create the data of a new cluster's first replica from a saved file; needs no running cluster
    ///
    /// Everything that was acknowledged after the save is lost. The old cluster must not run any more.
    /// Workers that still run tasks of it keep those that the file contains, and stop the others; waiting
    /// jobs are held back for as long as an unknown task may still run (docs/backup.md).
    Restore(Restore),
}

/// The key of an encrypted file.
#[derive(Debug, Args)]
pub(crate) struct KeyFile {
    /// File with the key, 64 hexadecimal digits: `openssl rand -hex 32` creates one
    #[arg(long = "key-file", alias = "encrypt-key-file", value_name = "FILE")]
    path: Option<PathBuf>,
}

/// `muster snapshot inspect`
#[derive(Debug, Args)]
pub(crate) struct Inspect {
    /// The saved file
    file: PathBuf,
    #[command(flatten)]
    key: KeyFile,
}

/// `muster snapshot restore`
#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// The saved file
    file: PathBuf,
    /// Data directory of the replica; empty, or not yet existing
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// Name of the new cluster; by default that of the old one
    #[arg(long, value_name = "NAME")]
    cluster_id: Option<String>,
    /// Id of the new cluster's first replica
    #[arg(long, value_name = "ID", default_value_t = 1)]
    replica_id: u64,
    /// Address at which others will reach it: host:port
    #[arg(long, value_name = "ADDRESS")]
    advertise: String,
    /// The clock of this machine is right, although the file was saved later by its own clock: the clock of
    /// that replica was wrong
    ///
    /// Fencing numbers for workers are derived from this machine's clock. If it is behind, workers of the old
    /// cluster consider the new one outdated, and do not obey it.
    #[arg(long)]
    clock_is_right: bool,
    #[command(flatten)]
    key: KeyFile,
}

impl Verb {
    /// Runs the command.
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        match self {
            Self::Save(save) => save.run(options).await,
            Self::Inspect(inspect) => inspect.run(options),
            Self::Restore(restore) => restore.run(options),
        }
    }
}

impl KeyFile {
    /// The key, if given.
    pub(crate) fn read(&self) -> Result<Option<Key>, Failure> {
        let Some(path) = &self.path else {
            return Ok(None);
        };
        let about =
            |detail: String| Failure::usage(format!("key file {}: {detail}", path.display()));
        let text = fs::read_to_string(path).map_err(|error| about(error.to_string()))?;
        let key = Key::parse(&text).map_err(|error| about(error.to_string()))?;
        Ok(Some(key))
    }
}

/// Reads a saved file and verifies all of it.
pub(crate) fn read(path: &Path, key: Option<&Key>) -> Result<Backup, Failure> {
    let about = |detail: String| Failure::new(format!("{}: {detail}", path.display()));
    let file = File::open(path).map_err(|error| about(error.to_string()))?;
    Backup::read(&mut BufReader::new(file), key).map_err(|error| about(chain(&error)))
}

impl Inspect {
    fn run(self, options: &Options) -> Result<Exit, Failure> {
        let backup = read(&self.file, self.key.read()?.as_ref())?;
        let document = backup::document(&self.file, &backup)?;
        let screen = options.screen();
        screen.data(&render(&screen, &document)?)?;
        Ok(Exit::Ok)
    }
}

impl Restore {
    fn run(self, options: &Options) -> Result<Exit, Failure> {
        let usage = |rule: &str| Err(Failure::usage(rule.to_owned()));
        if self.replica_id == 0 {
            return usage("--replica-id must not be 0");
        }
        let port = self
            .advertise
            .rsplit_once(':')
            .map(|(_, port)| port.parse::<u16>());
        if !matches!(port, Some(Ok(1..))) {
            return usage("--advertise is not host:port");
        }
        if self.cluster_id.as_deref() == Some("") {
            return usage("--cluster-id must not be empty");
        }
        let backup = read(&self.file, self.key.read()?.as_ref())?;
        let snapshot = backup::document(&self.file, &backup)?;
        let screen = options.screen();
        if !self.clock_is_right {
            let about = &backup.about;
            let now_ms = u64::try_from(screen.now().as_millisecond()).unwrap_or_default();
            refuse_from_the_future(&self.file, about.replica_id, about.time_ms, now_ms)?;
        }
        let target = RebuildTarget {
            cluster_id: { self.cluster_id }.unwrap_or_else(|| backup.about.cluster_id.clone()),
            replica: Peer::new(self.replica_id, self.advertise),
            data_dir: self.data_dir,
        };
        let restored = target.restore(backup);
        restored.map_err(|error| Failure::new(chain(&error)))?;
        screen.data(&match screen.format {
            Format::Table | Format::Wide => summary(&snapshot, &target),
            Format::Name => format!("{}\n", target.cluster_id),
            format => {
                let restored = RestoredReplica {
                    cluster_id: target.cluster_id,
                    replica_id: target.replica.id,
                    address: target.replica.address,
                    data_dir: target.data_dir.display().to_string(),
                    snapshot,
                };
                render_document(format, &restored)?
            }
        })?;
        Ok(Exit::Ok)
    }
}

/// Refuses a file from the future: a new group's numbers are derived from this machine's clock
/// ([`RebuildTarget::restore`]), and must exceed all numbers of the old group.
fn refuse_from_the_future(
    file: &Path,
    replica: u64,
    saved_ms: u64,
    now_ms: u64,
) -> Result<(), Failure> {
    if saved_ms <= now_ms.saturating_add(CLOCK_SKEW_MS_MAX) {
        return Ok(());
    }
    let refused = Failure::new(format!(
        "{} was saved at {}, but this machine's clock is at {}: workers do not obey a new cluster whose \
         clock is behind",
        file.display(),
        instant(saved_ms),
        instant(now_ms),
    ));
    Err(refused.help(format!(
        "set the clock; or give --clock-is-right if the clock of replica {replica}, which saved the file, was wrong"
    )))
}

fn summary(snapshot: &muster_documents::Backup, target: &RebuildTarget) -> String {
    let (cluster, folder) = (&target.cluster_id, target.data_dir.display());
    let (id, address) = (target.replica.id, &target.replica.address);
    format!(
        "{folder} contains replica {id} of cluster {cluster}, with the state of cluster {} at {}\n\
         later acknowledged changes are lost; start it only after the old cluster has stopped:\n{}\
         others join it with empty data directories, new ids, and --join {address}\n",
        snapshot.cluster_id,
        snapshot.taken_at,
        start(target),
    )
}

/// The command that starts the restored replica, with a note on the certificates, which the file does not
/// know.
fn start(target: &RebuildTarget) -> String {
    let (cluster, folder) = (&target.cluster_id, target.data_dir.display());
    let (id, address) = (target.replica.id, target.replica.address.as_str());
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    let is_here = is_loopback(address);
    let host = match host {
        "localhost" => "127.0.0.1",
        host if is_here => host,
        host if host.starts_with('[') => "[::]",
        _ => "0.0.0.0",
    };
    let command = format!(
        "  muster scheduler --cluster-id {cluster} --replica-id {id} --peer {id}={address} --listen \
         {host}:{port} --data-dir {folder}\n"
    );
    let certificates = "and --tls-ca, --tls-certificate, --tls-key with its certificates, or --insecure without any\n";
    command + if is_here { "" } else { certificates }
}

pub(crate) fn render(
    screen: &Screen,
    document: &muster_documents::Backup,
) -> Result<String, Failure> {
    match screen.format {
        Format::Table | Format::Wide => Ok(backup::render(document, screen.now())),
        Format::Name => Ok(format!("{}\n", document.cluster_id)),
        format => render_document(format, document),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn the_restored_replica_listens_at_its_advertised_address() {
        let listen = |address: &str| {
            let command = start(&RebuildTarget {
                cluster_id: "east".to_owned(),
                replica: Peer::new(4, address),
                data_dir: PathBuf::from("data"),
            });
            let mut listen = command
                .split_whitespace()
                .skip_while(|word| *word != "--listen");
            let address = listen.nth(1).unwrap().to_owned();
            (address, command.contains("--tls-ca"))
        };
        let there = |address: &str| (address.to_owned(), true);
        let here = |address: &str| (address.to_owned(), false);
        assert_eq!(listen("node1:7400"), there("0.0.0.0:7400"));
        assert_eq!(listen("[fd00::1]:7400"), there("[::]:7400"));
        assert_eq!(listen("127.0.0.1:7500"), here("127.0.0.1:7500"));
        assert_eq!(listen("localhost:7500"), here("127.0.0.1:7500"));
        assert_eq!(listen("[::1]:7500"), here("[::1]:7500"));
    }

    #[test]
    fn a_file_of_later_than_now_is_refused_with_both_times() {
        let refuse = |saved_ms, now_ms| {
            refuse_from_the_future(Path::new("saved.backup"), 3, saved_ms, now_ms)
        };
        for saved_ms in [0, 1_000_000, 1_000_000 + CLOCK_SKEW_MS_MAX] {
            assert!(refuse(saved_ms, 1_000_000).is_ok(), "{saved_ms}");
        }
        let refused = refuse(3_600_000, 1_000_000).unwrap_err().text();
        for expected in [
            "saved.backup was saved at 1970-01-01T01:00:00.000Z",
            "clock is at 1970-01-01T00:16:40.000Z",
        ] {
            assert!(refused.contains(expected), "{refused}");
        }
    }
}
