//! `muster debug log-level`.

use std::time::Duration;

use clap::Args;
use muster_client::Client;
use muster_documents::{LogFilter, LogFilters};
use muster_proto::v1;
use muster_proto::v1::debug_target::Process;
use muster_service::logging::LevelChange;

use crate::command::debug::client_of;
use crate::connection::{Options, current_user};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Format, render_document};
use crate::parse::{self, format_duration};

/// Default duration.
const SPAN: Duration = Duration::from_secs(600);

/// `muster debug log-level`
///
/// Reverts automatically afterwards, also after a restart of the process. Use `logging.filter` for permanent
/// changes.
#[derive(Debug, Args)]
#[command(
    after_help = "muster debug log-level --replica 2 muster_scheduler::leader=debug --for 10m"
)]
pub(crate) struct LogLevel {
    #[command(flatten)]
    whose: Targets,
    /// The change: TARGET=LEVEL for a module as named in the logs, or LEVEL for everything; off, error, warn,
    /// info, debug, trace
    #[arg(value_name = "TARGET=LEVEL", value_parser = change)]
    change: LevelChange,
    /// Duration (10m); at most 24h
    #[arg(long = "for", value_name = "DURATION", value_parser = parse::duration)]
    span: Option<Duration>,
}

/// One or more processes.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
struct Targets {
    /// A replica, by id; repeatable
    #[arg(long, value_name = "ID")]
    replica: Vec<u64>,
    /// The worker of a host, by name; repeatable
    #[arg(long, value_name = "HOST")]
    worker: Vec<String>,
}

fn change(text: &str) -> Result<LevelChange, String> {
    text.parse()
        .map_err(|error: muster_service::logging::InvalidLevel| error.to_string())
}

impl LogLevel {
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let client = options.connect().await?;
        let screen = options.screen();
        let span = self.span.unwrap_or(SPAN);
        let (change, author) = (self.change.to_string(), current_user());
        let mut done: Vec<(String, String)> = Vec::new();
        let replicas = match self.whose.replica.is_empty() {
            true => Vec::new(),
            false => client.status(v1::Consistency::Stale).await?.replicas,
        };
        for id in self.whose.replica {
            let replica = replicas.iter().find(|replica| replica.id == id);
            let replica = replica.ok_or_else(|| {
                Failure::new(format!("replica {id} does not exist"))
                    .help("`muster cluster members` shows the replicas")
            })?;
            let replica: Client = client_of(&client, replica).await?;
            let process = Process::ReplicaId(id);
            let filter = replica.set_log_level(&author, process, &change, span);
            done.push((format!("replica {id}"), filter.await?));
        }
        for host in self.whose.worker {
            let process = Process::Host(host.clone());
            let filter = client.set_log_level(&author, process, &change, span);
            done.push((format!("worker {host}"), filter.await?));
        }
        let span_ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let span_text = format_duration(span_ms);
        screen.report(&match screen.format {
            Format::Table | Format::Wide => {
                let lines = done.iter().map(|(process, filter)| {
                    format!("{process} logs {change} for {span_text}; effective filter: {filter}\n")
                });
                lines.collect()
            }
            Format::Name => done
                .iter()
                .map(|(process, _)| format!("{process}\n"))
                .collect(),
            format => {
                let processes = done.into_iter();
                let processes = processes.map(|(process, filter)| LogFilter { process, filter });
                let filters = LogFilters {
                    for_ms: span_ms,
                    processes: processes.collect(),
                };
                render_document(format, &filters)?
            }
        })?;
        Ok(Exit::Ok)
    }
}
