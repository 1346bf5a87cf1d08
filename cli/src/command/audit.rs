//! `muster audit`.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use muster_client::{AuditRecords, Client, ClientConfig, ClientError};
use muster_proto::v1;
use tokio::sync::mpsc;

use crate::connection::{Options, current_user};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Format, Screen, note, render_rows, to_json_line};
use crate::parse;
use crate::view::AuditView;

/// Messages of replicas that wait to be shown.
const MESSAGES_AHEAD: usize = 16;
/// Longest wait for a replica that does not answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Pause before a replica that tells nothing any more is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// Time between two looks at who the replicas are.
const LOOK: Duration = Duration::from_secs(10);

/// What to do with the audit log.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Who changed what, from where, and what the answer was; of all replicas together
    Log(Log),
}

/// `muster audit log`
#[derive(Debug, Args)]
pub(crate) struct Log {
    /// Only calls of so long ago (2h) or later
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    since: Option<Duration>,
    /// Only calls of this user; of others: "a replica", "worker NAME", "join token ID"
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Go on with calls as they come
    #[arg(short, long, conflicts_with = "export")]
    follow: bool,
    /// Write them into a file instead, one JSON document a line
    #[arg(long, value_name = "FILE")]
    export: Option<PathBuf>,
}

/// What a replica tells.
type Told = (String, Result<Vec<v1::AuditRecord>, ClientError>);

impl Verb {
    /// Does it.
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
            follow: self.follow,
        };
        let (sender, receiver) = mpsc::channel(MESSAGES_AHEAD);
        let replicas = { status.replicas.into_iter() }.map(|replica| replica.address);
        if self.follow {
            let asked = replicas.collect();
            tokio::spawn(ask_all(client, request, (asked, sender)));
            return follow(&screen, receiver).await;
        }
        for address in replicas {
            let (config, sender) = (alone(&client, &address), sender.clone());
            tokio::spawn(ask(config, request.clone(), (address, sender)));
        }
        drop(sender);
        self.show(&screen, receiver).await
    }

    /// All of it in the order of time, once every replica has told all that it has.
    async fn show(
        &self,
        screen: &Screen,
        mut receiver: mpsc::Receiver<Told>,
    ) -> Result<Exit, Failure> {
        let mut rows: Vec<AuditView> = Vec::new();
        let mut silent: Vec<(String, ClientError)> = Vec::new();
        while let Some((address, told)) = receiver.recv().await {
            match told {
                Ok(records) => rows.extend(records.into_iter().map(AuditView::from)),
                Err(error @ ClientError::Refused { .. }) => return Err(error.into()),
                Err(error) => silent.push((address, error)),
            }
        }
        rows.sort_by_key(AuditView::order);
        for (address, error) in &silent {
            note(&format!(
                "the replica at {address} did not tell what it has: {error}"
            ));
        }
        match &self.export {
            Some(path) => export(path, &rows)?,
            None => screen.tell(&render_rows(screen, 0, &rows)?)?,
        }
        // What is missing must not look like nothing.
        Ok(if silent.is_empty() {
            Exit::Ok
        } else {
            Exit::Error
        })
    }
}

fn export(path: &PathBuf, rows: &[AuditView]) -> Result<(), Failure> {
    if path.exists() {
        let told = format!("{} is there already", path.display());
        return Err(Failure::usage(told).help("name another file, or remove that one"));
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

async fn follow(screen: &Screen, mut receiver: mpsc::Receiver<Told>) -> Result<Exit, Failure> {
    let lines = Screen {
        headers: false,
        format: match screen.format {
            Format::Json | Format::Yaml => Format::Jsonl,
            format => format,
        },
        ..screen.clone()
    };
    while let Some((address, told)) = receiver.recv().await {
        match told {
            Ok(records) => {
                let rows: Vec<AuditView> = records.into_iter().map(AuditView::from).collect();
                lines.data(&render_rows(&lines, 0, &rows)?)?;
            }
            Err(error @ ClientError::Refused { .. }) => return Err(error.into()),
            Err(error) => note(&format!(
                "the replica at {address} tells nothing now, and is asked again: {error}"
            )),
        }
    }
    Err(Failure::new("no replica tells anything any more"))
}

/// Only this replica.
fn alone(client: &Client, address: &str) -> ClientConfig {
    ClientConfig {
        addresses: vec![address.to_owned()],
        ..client.config().clone()
    }
}

/// Passes on what each replica has and will have, also of those that join later.
async fn ask_all(
    client: Client,
    request: v1::ReadAuditLogRequest,
    (mut found, sender): (Vec<String>, mpsc::Sender<Told>),
) {
    let mut asked = BTreeSet::new();
    while !sender.is_closed() {
        for address in found.drain(..) {
            if asked.insert(address.clone()) {
                let (config, sender) = (alone(&client, &address), sender.clone());
                tokio::spawn(keep_asking(config, request.clone(), (address, sender)));
            }
        }
        tokio::time::sleep(LOOK).await;
        match client.status(v1::Consistency::Stale).await {
            Ok(status) => found.extend(status.replicas.into_iter().map(|it| it.address)),
            Err(error) => tracing::debug!(%error, "who the replicas are is not known now"),
        }
    }
}

/// Asks one replica again and again, each time for what it has not told yet; that it does not answer is told once.
async fn keep_asking(
    config: ClientConfig,
    mut request: v1::ReadAuditLogRequest,
    (address, sender): (String, mpsc::Sender<Told>),
) {
    let mut is_missed = false;
    while !sender.is_closed() {
        let (own, mut told) = mpsc::channel(1);
        tokio::spawn(ask(config.clone(), request.clone(), (address.clone(), own)));
        while let Some((_, answer)) = told.recv().await {
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

/// Passes on what one replica has.
async fn ask(
    config: ClientConfig,
    request: v1::ReadAuditLogRequest,
    (address, sender): (String, mpsc::Sender<Told>),
) {
    let told = |told| (address.clone(), told);
    let mut records = match open(config, request).await {
        Ok(records) => records,
        Err(error) => return drop(sender.send(told(Err(error))).await),
    };
    loop {
        let next = match records.next().await {
            Ok(None) => return,
            Ok(Some(records)) => Ok(records),
            Err(error) => Err(error),
        };
        let is_over = next.is_err();
        if sender.send(told(next)).await.is_err() || is_over {
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
