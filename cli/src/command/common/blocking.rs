//! Options and execution of blocks and unblocks of hosts and GPUs.

use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use muster_client::Client;
use muster_documents::{BlockImpact, UnblockedTarget};
use muster_proto::v1;

use crate::connection::current_user;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Format, Screen, render_documents, span};
use crate::parse;
use crate::view::{BlockedSoFar, ImpactView};

/// Default time for tasks to leave: enough for a checkpoint of many GPUs.
const DRAIN_DEADLINE_DEFAULT: Duration = Duration::from_secs(300);

/// Options of every block.
#[derive(Clone, Debug, Args)]
pub(crate) struct BlockOptions {
    /// The reason, shown to every user who meets the block
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Your observations, for a later investigation
    #[arg(long, value_name = "TEXT", default_value = "")]
    evidence: String,
    /// End the block automatically after this time
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    expires: Option<Duration>,
    /// Change nothing; print which jobs would be affected
    #[arg(long)]
    dry_run: bool,
}

/// Options of a block that may move away running tasks.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct DrainOptions {
    /// Move away what runs there: tasks are asked to save their work and leave, and continue elsewhere
    #[arg(long)]
    drain: bool,
    /// With --drain: time that tasks get to leave; then they are killed [default: 5m]
    // Not with the id `deadline`: that is the option of every request, and options with the same id share one
    // value.
    #[arg(
        long,
        visible_alias = "deadline",
        value_name = "DURATION",
        value_parser = parse::duration,
        requires = "drain"
    )]
    grace: Option<Duration>,
}

impl DrainOptions {
    /// Time for tasks to leave; `None` if they may stay.
    pub(crate) fn grace(self) -> Option<Duration> {
        self.drain
            .then(|| self.grace.unwrap_or(DRAIN_DEADLINE_DEFAULT))
    }
}

/// Options of a block of hosts.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct HostOptions {
    /// Block the host even if no other host of its pool accepts work
    #[arg(long, conflicts_with = "at")]
    force: bool,
    /// Schedule the block: at an instant (2026-11-30T06:00:00Z), or after a time (3d); --expires and the time
    /// to leave count from then
    #[arg(long, value_name = "WHEN", value_parser = parse::coming)]
    at: Option<u64>,
    /// With --at: for this long before, place only work whose run time limit ends in time [default: 1h]
    #[arg(long, value_name = "DURATION", value_parser = parse::duration, requires = "at")]
    notice: Option<Duration>,
}

/// Start of a block, and its effect on running tasks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Terms {
    /// Time for tasks to leave; they may stay if `None`.
    pub(crate) drain: Option<Duration>,
    /// Options for hosts only: a scheduled start, and whether the last host of a pool may be blocked.
    pub(crate) host: Option<HostOptions>,
}

impl HostOptions {
    /// Whether the block is scheduled for later.
    pub(crate) const fn is_for_later(&self) -> bool {
        self.at.is_some()
    }
}

/// A host or GPU to block or unblock, with its name.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// For display: the host's name, the GPU's UUID.
    pub(crate) name: String,
    /// For the wire.
    pub(crate) wire: v1::BlockTarget,
}

impl Target {
    /// A host.
    pub(crate) fn host(name: String) -> Self {
        let target = v1::block_target::Target::Host(name.clone());
        Self::new(name, target)
    }

    /// A GPU.
    pub(crate) fn gpu(uuid: String) -> Self {
        let target = v1::block_target::Target::Gpu(uuid.clone());
        Self::new(uuid, target)
    }

    /// Whether it is a host.
    pub(crate) const fn is_host(&self) -> bool {
        matches!(self.wire.target, Some(v1::block_target::Target::Host(_)))
    }

    fn new(name: String, target: v1::block_target::Target) -> Self {
        let wire = v1::BlockTarget {
            target: Some(target),
        };
        Self { name, wire }
    }
}

impl BlockOptions {
    /// Whether this is a dry run.
    pub(crate) fn dry_run(&self) -> bool {
        self.dry_run
    }

    /// Blocks every target, with a drain deadline if tasks must leave; prints the affected jobs.
    ///
    /// One target's failure does not keep the others from being blocked.
    pub(crate) async fn block(
        &self,
        client: &Client,
        screen: &Screen,
        targets: &[Target],
        terms: Terms,
    ) -> Result<Exit, Failure> {
        self.check(terms)?;
        let mut impacts = Vec::new();
        let mut blocked_so_far = BlockedSoFar::default();
        let is_forced = terms.host.is_some_and(|host| host.force);
        let mut failed = false;
        for target in targets {
            let request = self.request(target, terms);
            let begins_at_ms = request.begins_at_ms;
            match client.block(request).await {
                Ok(answer) => {
                    let (name, is_host) = (&target.name, target.is_host());
                    let mut impact =
                        ImpactView::new(name, is_host, self.dry_run, begins_at_ms, answer);
                    if self.dry_run || begins_at_ms.is_some() {
                        blocked_so_far.evaluate(&mut impact, is_forced);
                    }
                    impacts.push(impact);
                }
                Err(error) => {
                    failed = true;
                    Failure::from(error).print();
                }
            }
        }
        print(screen, &impacts, terms.drain.is_some())?;
        Ok(if failed { Exit::Error } else { Exit::Ok })
    }

    /// Refuses contradictory options.
    fn check(&self, terms: Terms) -> Result<(), Failure> {
        if let (Some(expires), Some(grace)) = (self.expires, terms.drain)
            && expires < grace
        {
            let problem = format!(
                "the block would expire after {} (--expires), before the drain deadline of {}",
                span(milliseconds(expires)),
                span(milliseconds(grace))
            );
            let help = "raise --expires, or shorten the drain deadline";
            return Err(Failure::usage(problem).help(help));
        }
        Ok(())
    }

    fn request(&self, target: &Target, terms: Terms) -> v1::BlockRequest {
        let begins_at_ms = terms.host.and_then(|host| host.at);
        let notice = terms.host.and_then(|host| host.notice);
        let now_ms = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default();
        let from_ms = begins_at_ms.unwrap_or(now_ms);
        let deadline = |span| from_ms.saturating_add(milliseconds(span));
        v1::BlockRequest {
            request_id: String::new(),
            target: Some(target.wire.clone()),
            reason: self.reason.clone(),
            author: current_user(),
            evidence: self.evidence.clone(),
            expires_at_ms: self.expires.map(deadline),
            drain_deadline_ms: terms.drain.map(deadline),
            dry_run: self.dry_run,
            begins_at_ms,
            notice_ms: notice.map(milliseconds),
            force: terms.host.is_some_and(|host| host.force),
        }
    }
}

fn milliseconds(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn print(screen: &Screen, impacts: &[ImpactView], drain: bool) -> Result<(), Failure> {
    let text = match screen.format {
        Format::Table | Format::Wide => {
            let texts = impacts
                .iter()
                .map(|impact| impact.render(drain, screen.now()));
            texts.collect()
        }
        Format::Name => impacts
            .iter()
            .map(|view| format!("{}\n", view.impact.target))
            .collect(),
        format => {
            let documents: Vec<&BlockImpact> = impacts.iter().map(|view| &view.impact).collect();
            render_documents(format, &documents)?
        }
    };
    screen.report(&text)
}

/// Unblocks every target, or cancels scheduled blocks; one target's failure does not affect the others.
pub(crate) async fn unblock(
    client: &Client,
    screen: &Screen,
    targets: &[Target],
    planned: bool,
) -> Result<Exit, Failure> {
    let mut exit = Exit::Ok;
    let mut done = Vec::new();
    let outcome = match planned {
        true => "will not be blocked",
        false => "unblocked",
    };
    for target in targets {
        let (wire, user) = (target.wire.clone(), current_user());
        let answer = match planned {
            true => client.cancel_planned_block(wire, &user).await,
            false => client.unblock(wire, &user).await,
        };
        match answer {
            Ok(_) if screen.is_table() => screen.report(&format!("{} {outcome}\n", target.name))?,
            Ok(_) if screen.format == Format::Name => {
                screen.report(&format!("{}\n", target.name))?
            }
            Ok(revision) => done.push(UnblockedTarget {
                target: target.name.clone(),
                revision: revision.get(),
            }),
            Err(error) => {
                exit = Exit::Error;
                Failure::from(error).print();
            }
        }
    }
    if !screen.is_table() && screen.format != Format::Name {
        screen.report(&render_documents(screen.format, &done)?)?;
    }
    Ok(exit)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use clap::{Parser, Subcommand};

    use super::*;
    use crate::connection::Options;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
        #[command(subcommand)]
        verb: Verb,
    }

    #[derive(Debug, Subcommand)]
    enum Verb {
        Block {
            #[command(flatten)]
            drain: DrainOptions,
        },
    }

    /// Deadline of the request, and time for tasks to leave.
    fn spans(line: &str) -> (Duration, Option<Duration>) {
        let line = Line::try_parse_from(line.split_whitespace()).unwrap();
        let Verb::Block { drain } = line.verb;
        (line.options.deadline(), drain.grace())
    }

    #[test]
    fn the_deadline_of_a_request_is_not_the_time_that_tasks_get_to_leave() {
        let secs = Duration::from_secs;
        let default_deadline = spans("muster block").0;
        let default = Some(DRAIN_DEADLINE_DEFAULT);
        assert_eq!(
            spans("muster --deadline 20s block --drain"),
            (secs(20), default)
        );
        for flags in ["--deadline 40s", "--grace 40s"] {
            let of_tasks = spans(&format!("muster block --drain {flags}"));
            assert_eq!(of_tasks, (default_deadline, Some(secs(40))), "{flags}");
            let of_both = spans(&format!("muster --deadline 20s block --drain {flags}"));
            assert_eq!(of_both, (secs(20), Some(secs(40))), "{flags}");
        }
    }
}
