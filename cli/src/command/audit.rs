//! `muster audit`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use muster_client::{AuditRecords, Client, ClientConfig, ClientError};
use muster_documents::AuditRecord;
use muster_proto::v1;
use tokio::sync::mpsc;

use crate::connection::{Options, current_user};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Format, Screen, note, render_rows, to_json_line};
use crate::parse;

/// Messages of replicas buffered for display.
const MESSAGES_AHEAD: usize = 16;
/// Longest wait for a replica that does not answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Pause before an unresponsive replica is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// Interval of membership refreshes.
const MEMBERSHIP_INTERVAL: Duration = Duration::from_secs(10);

/// Commands of `muster audit`.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Changes of all replicas together: user, address, request and answer
    Log(Log),
}

/// `muster audit log`
#[derive(Debug, Args)]
pub(crate) struct Log {
    /// Only calls since this time ago (2h)
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    since: Option<Duration>,
    /// Only calls of this user; of other callers: "a replica", "worker NAME", "join token ID"
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Continue with new calls as they arrive
    #[arg(short, long, conflicts_with = "export")]
    follow: bool,
    /// Write them into a file instead, one JSON document per line
    #[arg(long, value_name = "FILE")]
    export: Option<PathBuf>,
}

/// Answer of a replica.
type ReplicaAnswer = (String, Result<Vec<v1::AuditRecord>, ClientError>);

/// Records of all replicas.
#[derive(Debug, Default)]
struct Gathered {
    /// Ordered by time.
    rows: Vec<AuditRecord>,
    /// The sequence number of the last record of each replica, by its address.
    last: BTreeMap<String, u64>,
    /// Replicas that did not answer, and why.
    silent: Vec<(String, ClientError)>,
}

impl Verb {
    /// Runs the command.
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        match self {
            Self::Log(log) => log.run(options).await,
        }
    }
}

impl Log {
    async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let client = options.connect().await?;
        let status = client.status(v1::Consistency::Stale).await?;
        let screen = options.screen();
        let since_ms = self.since.map(|since| {
            let now_ms = u64::try_from(screen.now().as_millisecond()).unwrap_or_default();
            now_ms.saturating_sub(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
        });
        let request = v1::ReadAuditLogRequest {
            author: current_user(),
            after_sequence: 0,
            since_ms: since_ms.unwrap_or_default(),
            user: self.user.clone().unwrap_or_default(),
            follow: false,
        };
        let (sender, receiver) = mpsc::channel(MESSAGES_AHEAD);
        let replicas = status.replicas.into_iter().map(|replica| replica.address);
        let replicas: Vec<String> = replicas.collect();
        for address in &replicas {
            let (config, sender) = (client_config_for(&client, address), sender.clone());
            tokio::spawn(read_request(
                config,
                request.clone(),
                address.clone(),
                sender,
            ));
        }
        drop(sender);
        let gathered = gather(receiver).await?;
        if !self.follow {
            return self.show(&screen, &gathered);
        }
        let (sender, receiver) = mpsc::channel(MESSAGES_AHEAD);
        let request = v1::ReadAuditLogRequest {
            follow: true,
            ..request
        };
        tokio::spawn(ask_all(client, request, replicas, gathered.last, sender));
        follow(&screen, &gathered.rows, receiver).await
    }

    /// Prints all records, and the replicas that did not answer.
    fn show(&self, screen: &Screen, gathered: &Gathered) -> Result<Exit, Failure> {
        let Gathered { rows, silent, .. } = gathered;
        for (address, error) in silent {
            note(&format!("the replica at {address} did not answer: {error}"));
        }
        match &self.export {
            Some(path) => export(path, rows)?,
            None => screen.report(&render_rows(screen, 0, rows)?)?,
        }
        // A missing replica must not look like an empty log.
        Ok(if silent.is_empty() {
            Exit::Ok
        } else {
            Exit::Error
        })
    }
}

/// Collects answers until all senders are done.
async fn gather(mut receiver: mpsc::Receiver<ReplicaAnswer>) -> Result<Gathered, Failure> {
    let mut gathered = Gathered::default();
    while let Some((address, answer)) = receiver.recv().await {
        match answer {
            Ok(records) => {
                if let Some(record) = records.last() {
                    gathered.last.insert(address, record.sequence);
                }
                let rows = records.into_iter().map(AuditRecord::from);
                gathered.rows.extend(rows);
            }
            Err(error @ ClientError::Refused { .. }) => return Err(error.into()),
            Err(error) => gathered.silent.push((address, error)),
        }
    }
    gathered.rows.sort_by_key(AuditRecord::order);
    Ok(gathered)
}

fn export(path: &PathBuf, rows: &[AuditRecord]) -> Result<(), Failure> {
    if path.exists() {
        let message = format!("{} already exists", path.display());
        return Err(Failure::usage(message).help("choose another file, or remove this one"));
    }
    let written = File::create_new(path).and_then(|file| {
        let mut out = BufWriter::new(file);
        for row in rows {
            let line =
                to_json_line(row).map_err(|failure| std::io::Error::other(failure.text()))?;
            out.write_all(line.as_bytes())?;
        }
        out.flush()?;
        out.get_ref().sync_all()
    });
    written.map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}

/// Prints the existing records, and then new ones as they arrive.
async fn follow(
    screen: &Screen,
    before: &[AuditRecord],
    mut receiver: mpsc::Receiver<ReplicaAnswer>,
) -> Result<Exit, Failure> {
    let lines = Screen {
        headers: false,
        format: match screen.format {
            Format::Json | Format::Yaml => Format::Jsonl,
            format => format,
        },
        ..screen.clone()
    };
    lines.data(&render_rows(&lines, 0, before)?)?;
    while let Some((address, answer)) = receiver.recv().await {
        match answer {
            Ok(records) => {
                let rows: Vec<AuditRecord> = records.into_iter().map(AuditRecord::from).collect();
                lines.data(&render_rows(&lines, 0, &rows)?)?;
            }
            Err(error @ ClientError::Refused { .. }) => return Err(error.into()),
            Err(error) => note(&format!(
                "the replica at {address} does not answer, retrying: {error}"
            )),
        }
    }
    Err(Failure::new("no replica answers"))
}

/// Configuration of a client for this replica only.
fn client_config_for(client: &Client, address: &str) -> ClientConfig {
    ClientConfig {
        addresses: vec![address.to_owned()],
        ..client.config().clone()
    }
}

/// Forwards the records of each replica after its last known one, existing and future, also of replicas that
/// join later.
async fn ask_all(
    client: Client,
    request: v1::ReadAuditLogRequest,
    mut found: Vec<String>,
    last: BTreeMap<String, u64>,
    sender: mpsc::Sender<ReplicaAnswer>,
) {
    let mut asked = BTreeSet::new();
    while !sender.is_closed() {
        for address in found.drain(..) {
            if asked.insert(address.clone()) {
                let (config, sender) = (client_config_for(&client, &address), sender.clone());
                let request = v1::ReadAuditLogRequest {
                    after_sequence: last.get(&address).copied().unwrap_or_default(),
                    ..request.clone()
                };
                tokio::spawn(poll_replica(config, request, address, sender));
            }
        }
        tokio::time::sleep(MEMBERSHIP_INTERVAL).await;
        match client.status(v1::Consistency::Stale).await {
            Ok(status) => found.extend(status.replicas.into_iter().map(|it| it.address)),
            Err(error) => tracing::debug!(%error, "cannot read the membership"),
        }
    }
}

/// Asks one replica repeatedly, each time for the records after its last one; a failure is reported once.
async fn poll_replica(
    config: ClientConfig,
    mut request: v1::ReadAuditLogRequest,
    address: String,
    sender: mpsc::Sender<ReplicaAnswer>,
) {
    let mut is_missed = false;
    while !sender.is_closed() {
        let (own, mut answers) = mpsc::channel(1);
        tokio::spawn(read_request(
            config.clone(),
            request.clone(),
            address.clone(),
            own,
        ));
        while let Some((_, answer)) = answers.recv().await {
            if let Ok(records) = &answer {
                let last = records.last().map(|record| record.sequence);
                request.after_sequence = last.unwrap_or(request.after_sequence);
            }
            let is_passing = matches!(&answer, Err(error) if error.refusal().is_none());
            let is_known = is_passing && is_missed;
            is_missed = is_passing;
            if !is_known && sender.send((address.clone(), answer)).await.is_err() {
                return;
            }
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

/// Forwards the records of one replica.
async fn read_request(
    config: ClientConfig,
    request: v1::ReadAuditLogRequest,
    address: String,
    sender: mpsc::Sender<ReplicaAnswer>,
) {
    let from_replica = |answer| (address.clone(), answer);
    let mut records = match open(config, request).await {
        Ok(records) => records,
        Err(error) => return drop(sender.send(from_replica(Err(error))).await),
    };
    loop {
        let next = match records.next().await {
            Ok(None) => return,
            Ok(Some(records)) => Ok(records),
            Err(error) => Err(error),
        };
        let is_over = next.is_err();
        if sender.send(from_replica(next)).await.is_err() || is_over {
            return;
        }
    }
}

async fn open(
    config: ClientConfig,
    request: v1::ReadAuditLogRequest,
) -> Result<AuditRecords, ClientError> {
    let config = ClientConfig {
        deadline: ANSWER_MAX,
        unreachable_deadline: Duration::ZERO,
        discover: false,
        ..config
    };
    Client::connect(config).await?.read_audit_log(request).await
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[tokio::test]
    async fn records_of_all_replicas_are_ordered_by_time() {
        let record = |replica_id, sequence, time_ms| v1::AuditRecord {
            replica_id,
            sequence,
            time_ms,
            ..v1::AuditRecord::default()
        };
        let (sender, receiver) = mpsc::channel(MESSAGES_AHEAD);
        let first = vec![record(1, 7, 10), record(1, 8, 30)];
        let second = vec![record(2, 3, 20), record(2, 4, 40)];
        sender.send(("a:1".to_owned(), Ok(first))).await.unwrap();
        sender.send(("b:1".to_owned(), Ok(second))).await.unwrap();
        drop(sender);
        let gathered = gather(receiver).await.unwrap();
        let order: Vec<(u64, u64, u64)> = gathered.rows.iter().map(AuditRecord::order).collect();
        assert_eq!(order, [(10, 1, 7), (20, 2, 3), (30, 1, 8), (40, 2, 4)]);
        // The next request continues from there.
        assert_eq!(gathered.last["a:1"], 8);
        assert_eq!(gathered.last["b:1"], 4);
    }
}
