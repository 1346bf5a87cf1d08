//! `muster job events`.

mod event_filter;

use std::collections::BTreeMap;

use clap::Args;
use event_filter::{EventFilter, event_kind};
use muster_client::{Client, ClientError, Watch, WatchFilter, WatchUpdate};
use muster_documents::{Event, HostNames};
use muster_model::ids::{JobId, Revision};
use muster_model::time::TimeMs;
use muster_proto::v1;

use crate::connection::Options;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Format, Screen, render_document, to_json_line};
use crate::view::event::line;

/// Units of a job whose attempts are looked up by number; for more, only attempts placed during the watch are
/// known.
const UNITS_MAX: usize = 1_000;

/// `muster job events`
///
/// Without a job: the events of the whole cluster.
#[derive(Debug, Args)]
pub(crate) struct Events {
    /// The job, by id; all events by default
    job: Option<u64>,
    /// Continue with new events until the job has ended, across failures of replicas
    #[arg(short, long, visible_alias = "watch")]
    follow: bool,
    /// Only events of this attempt, counted from 1
    #[arg(long, requires = "job")]
    attempt: Option<u32>,
    /// Only events of this task, and of its whole attempts
    #[arg(long, requires = "job")]
    task: Option<u32>,
    /// Only events of these kinds, as displayed: task_started,task_exited
    #[arg(long, value_name = "KINDS", value_delimiter = ',', value_parser = event_kind)]
    kind: Vec<v1::EventKind>,
    /// Start after this revision, where an earlier run ended
    #[arg(long, value_name = "REVISION")]
    since: Option<u64>,
}

impl Events {
    /// Runs the command.
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let screen = options.screen();
        let client = options.connect_to_follow().await?;
        let (watch_filter, start, until) = self.bounds(&client).await?;
        let from = self.since.map_or(start, Revision);
        let mut printer = Printer {
            hosts: host_names(&client).await?,
            event_filter: self.event_filter(&client).await?,
            client,
            screen,
            watch_filter,
        };
        printer.print_all(from, until).await
    }

    async fn event_filter(&self, client: &Client) -> Result<EventFilter, ClientError> {
        let filter = EventFilter::of_kinds(&self.kind);
        match self.job {
            Some(job) if self.task.is_some() || self.attempt.is_some() => {
                let consistency = v1::Consistency::Linearizable;
                let detail = client.get_job(JobId(job), UNITS_MAX, consistency).await?;
                Ok(filter.limited_to(&detail, self.task, self.attempt))
            }
            _ => Ok(filter),
        }
    }

    /// The events to watch, the start, and the end unless events are followed.
    async fn bounds(
        &self,
        client: &Client,
    ) -> Result<(WatchFilter, Revision, Option<Revision>), ClientError> {
        let consistency = v1::Consistency::Linearizable;
        let Some(job) = self.job.map(JobId) else {
            let status = client.status(consistency).await?;
            let now = Revision(status.revision);
            let start = if self.follow { now } else { Revision(0) };
            return Ok((WatchFilter::default(), start, (!self.follow).then_some(now)));
        };
        // A job's id is the revision of its submission.
        let start = Revision(job.get().saturating_sub(1));
        let detail = client.get_job(job, 1, consistency).await?;
        let until = (!self.follow || detail.is_finished()).then_some(detail.revision);
        Ok((WatchFilter::job(job), start, until))
    }
}

/// Prints events as they arrive.
struct Printer {
    client: Client,
    screen: Screen,
    hosts: HostNames,
    watch_filter: WatchFilter,
    event_filter: EventFilter,
}

impl Printer {
    async fn print_all(
        &mut self,
        from: Revision,
        until: Option<Revision>,
    ) -> Result<Exit, Failure> {
        let mut watch = self.client.watch(Some(from), self.watch_filter.clone());
        loop {
            let position = match watch.next().await {
                Ok(WatchUpdate::Events {
                    revision,
                    time,
                    events,
                }) => {
                    let over = self.is_over(&events);
                    self.print(revision, time, events).await?;
                    if over {
                        return Ok(Exit::Ok);
                    }
                    revision
                }
                Ok(WatchUpdate::Bookmark { revision }) => revision,
                Ok(WatchUpdate::Resumed { replica, cause }) => {
                    self.screen
                        .progress(&format!("note: {cause}; continuing with {replica}"));
                    continue;
                }
                Err(ClientError::Compacted { compacted, .. }) => {
                    watch = self.skip_to(compacted);
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            if until.is_some_and(|until| position >= until) {
                return Ok(Exit::Ok);
            }
        }
    }

    /// Reports that older events are no longer kept, and continues with the rest.
    fn skip_to(&self, compacted: Revision) -> Watch {
        self.screen.progress(&format!(
            "note: some events up to revision {compacted} are no longer kept; starting after that"
        ));
        self.client
            .watch(Some(compacted), self.watch_filter.clone())
    }

    /// Whether the watched job has ended.
    fn is_over(&self, events: &[v1::Event]) -> bool {
        let finished =
            |event: &v1::Event| matches!(event.kind, Some(v1::event::Kind::JobFinished(_)));
        !self.watch_filter.jobs.is_empty() && events.iter().any(finished)
    }

    async fn print(
        &mut self,
        revision: Revision,
        time: TimeMs,
        events: Vec<v1::Event>,
    ) -> Result<(), Failure> {
        self.learn_hosts(&events).await?;
        let mut text = String::new();
        for event in events {
            let Some(event) = Event::new(revision.get(), time.0, event, &self.hosts) else {
                continue;
            };
            let document = serde_json::to_value(&event);
            let document = document.map_err(|error| Failure::internal(&error))?;
            if !self
                .event_filter
                .matches(event.fact.kind(), &document["detail"])
            {
                continue;
            }
            text.push_str(&match self.screen.format {
                Format::Table | Format::Wide => line(&event),
                Format::Name => format!("{}\n", event.revision),
                Format::Yaml => format!("---\n{}", render_document(Format::Yaml, &event)?),
                Format::Json | Format::Jsonl => to_json_line(&event)?,
            });
        }
        self.screen.data(&text)
    }

    /// Reads the hosts again if an event names a new one.
    async fn learn_hosts(&mut self, events: &[v1::Event]) -> Result<(), ClientError> {
        let unknown = events
            .iter()
            .flat_map(host_ids)
            .any(|id| !self.hosts.contains_key(&id));
        if unknown {
            self.hosts = host_names(&self.client).await?;
        }
        Ok(())
    }
}

fn host_ids(event: &v1::Event) -> Vec<u32> {
    use v1::event::Kind;
    match &event.kind {
        Some(Kind::AttemptPlaced(event)) => event.host_ids.clone(),
        Some(Kind::TaskPrepared(event)) => vec![event.host_id],
        Some(Kind::TaskStarted(event)) => vec![event.host_id],
        Some(Kind::TaskExited(event)) => vec![event.host_id],
        Some(Kind::TaskLost(event)) => vec![event.host_id],
        Some(Kind::MemberLeaving(event)) => vec![event.host_id],
        Some(Kind::MemberVacated(event)) => vec![event.host_id],
        Some(Kind::MemberSwapped(event)) => vec![event.host_id, event.from_host_id],
        _ => Vec::new(),
    }
}

async fn host_names(client: &Client) -> Result<HostNames, ClientError> {
    let request = v1::ListHostsRequest {
        consistency: v1::Consistency::Stale.into(),
        ..v1::ListHostsRequest::default()
    };
    let (_, hosts) = client.list_hosts(request).await?;
    let names: BTreeMap<u32, String> = hosts.into_iter().map(|host| (host.id, host.name)).collect();
    Ok(names)
}
