//! `muster chaos inject`: drills on a running cluster.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use muster_client::Client;
use muster_model::ids::GpuUuid;
use muster_proto::v1;
use muster_proto::v1::injection::What;

use crate::connection::Options;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::note;

/// `muster chaos inject`
///
/// Injects a fault on a host with simulated GPUs, through the same path as a real one: its worker evaluates
/// it by the cluster's rules, and the leader reacts. A host with real GPUs refuses.
#[derive(Debug, Args)]
#[command(
    after_help = "muster chaos inject signal node01:3 xid-79; muster health list; muster chaos inject heal node01:3"
)]
pub(crate) struct Inject {
    #[command(subcommand)]
    fault: Fault,
}

#[derive(Debug, Subcommand)]
enum Fault {
    /// A GPU shows a fault, until it is healed
    Signal(Signal),
    /// A GPU is healthy again
    Heal(Heal),
    /// A GPU, an adapter or the host reports this reading, repeatedly, until the next reading
    Reading(Reading),
    /// The kernel writes a line into its log
    Line(Line),
    /// A check of the site ends
    Check(Check),
}

#[derive(Debug, Args)]
struct Signal {
    /// A GPU, by UUID or as HOST:INDEX
    gpu: String,
    /// The signal: xid-48, gpu-lost, ecc-uncorrectable, ...
    signal: String,
    /// Detail, as text
    #[arg(long, default_value = "injected")]
    detail: String,
}

#[derive(Debug, Args)]
struct Heal {
    /// A GPU, by UUID or as HOST:INDEX
    gpu: String,
}

#[derive(Debug, Args)]
struct Reading {
    /// HOST, HOST:INDEX for a GPU, or HOST:PORT for a port of an adapter (node01:mlx5_0/1)
    component: String,
    /// The rule of the reading (muster health rules)
    rule: String,
    /// The reading, as METRIC=VALUE
    #[arg(required = true, value_parser = metric)]
    metrics: Vec<(String, i64)>,
    /// Only once; also ends a repeated reading
    #[arg(long)]
    once: bool,
}

#[derive(Debug, Args)]
struct Line {
    /// The host
    host: String,
    /// The line, without its time
    text: String,
}

#[derive(Debug, Args)]
struct Check {
    /// The host
    host: String,
    /// The check's name
    name: String,
    /// Its exit code, as in Nagios plugins: 0 healthy, 1 degraded, 2 fatal
    code: i32,
    /// Its output
    #[arg(default_value = "injected", value_name = "OUTPUT")]
    printed: String,
}

/// `METRIC=VALUE`.
fn metric(text: &str) -> Result<(String, i64), String> {
    let (name, value) = text.split_once('=').ok_or("must be METRIC=VALUE")?;
    let value = value
        .parse()
        .map_err(|_| format!("`{value}` is not a whole number"))?;
    Ok((name.to_owned(), value))
}

impl Inject {
    /// Runs the command.
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let client = options.connect().await?;
        let (host, what) = self.fault.resolve(&client).await?;
        let what = v1::Injection { what: Some(what) };
        client.inject_fault(&host, what).await?;
        note(&format!(
            "injected on host {host}; see `muster health list`"
        ));
        Ok(Exit::Ok)
    }
}

impl Fault {
    /// The host, and the injection.
    async fn resolve(self, client: &Client) -> Result<(String, What), Failure> {
        Ok(match self {
            Self::Signal(signal) => {
                let (host, gpu) = gpu(client, &signal.gpu).await?;
                let fault = v1::GpuFault {
                    signal: signal.signal,
                    detail: signal.detail,
                };
                let fault = Some(fault);
                (host, What::Signal(v1::InjectedSignal { gpu, fault }))
            }
            Self::Heal(heal) => {
                let (host, gpu) = gpu(client, &heal.gpu).await?;
                (host, What::Signal(v1::InjectedSignal { gpu, fault: None }))
            }
            Self::Reading(reading) => reading.resolve(client).await?,
            Self::Line(line) => (line.host, What::KernelLine(line.text)),
            Self::Check(check) => {
                let ended = v1::InjectedCheck {
                    name: check.name,
                    code: check.code,
                    output: check.printed,
                };
                (check.host, What::Check(ended))
            }
        })
    }
}

impl Reading {
    async fn resolve(self, client: &Client) -> Result<(String, What), Failure> {
        let part = self.component.split_once(':');
        let is_gpu = part.is_some_and(|(_, part)| part.parse::<u32>().is_ok())
            || self.component.parse::<GpuUuid>().is_ok();
        let (host, gpu, adapter) = match part {
            _ if is_gpu => {
                let (host, gpu) = gpu(client, &self.component).await?;
                (host, gpu, String::new())
            }
            Some((host, adapter)) => (host.to_owned(), String::new(), adapter.to_owned()),
            None => (self.component, String::new(), String::new()),
        };
        let metrics: BTreeMap<String, i64> = self.metrics.into_iter().collect();
        let reading = v1::InjectedReading {
            gpu,
            adapter,
            rule: self.rule,
            metrics,
            lasts: !self.once,
        };
        Ok((host, What::Reading(reading)))
    }
}

/// The host and the UUID of a GPU given by UUID or location.
async fn gpu(client: &Client, text: &str) -> Result<(String, String), Failure> {
    let place = text.split_once(':');
    let hosts = place.map(|(host, _)| host.to_owned());
    let request = v1::ListGpusRequest {
        hosts: hosts.into_iter().collect(),
        ..v1::ListGpusRequest::default()
    };
    let (_, gpus) = client.list_gpus(request).await?;
    let is_it = |gpu: &v1::Gpu| match place {
        Some((_, index)) => gpu.index.to_string() == index,
        None => gpu.uuid == text,
    };
    let found = gpus.into_iter().find(is_it);
    found.map(|gpu| (gpu.host, gpu.uuid)).ok_or_else(|| {
        Failure::usage(format!("unknown GPU {text}"))
            .help("give a UUID (GPU-...) or HOST:INDEX (node01:3); muster gpu list shows them")
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use clap::{Command, FromArgMatches as _};
    use muster_chaos::trials::Trial;
    use muster_health::rules::{Condition, Rule, RuleSet};
    use muster_model::health::ComponentKind;

    use super::*;

    const TABLE: &str = include_str!("../../../docs/faults.md");

    /// Splits a command line as a shell does; only double quotes are special.
    fn split_like_a_shell(text: &str) -> Vec<String> {
        let mut arguments = Vec::new();
        for (index, part) in text.split('"').enumerate() {
            if index % 2 == 1 {
                arguments.push(part.to_owned());
            } else {
                arguments.extend(part.split_whitespace().map(str::to_owned));
            }
        }
        arguments
    }

    /// The component that a rule reads, and the one that it applies to: rules for racks read their hosts.
    fn kinds(rule: &Rule, place: &str) -> (ComponentKind, ComponentKind) {
        let named = match place.split_once(':') {
            None => ComponentKind::Host,
            Some((_, part)) if part.parse::<u32>().is_ok() => ComponentKind::Gpu,
            Some(_) => ComponentKind::Nic,
        };
        match rule.component {
            ComponentKind::Rack => (ComponentKind::Host, named),
            kind => (kind, named),
        }
    }

    fn names(rule: &Rule, metric: &str) -> bool {
        let sides = [&rule.degraded.when, &rule.fatal.when];
        let mut conditions = rule.healthy.iter().chain(sides.into_iter().flatten());
        conditions.any(|condition: &Condition| condition.metric == metric)
    }

    #[test]
    fn every_documented_inject_command_is_valid() {
        let rules = RuleSet::shipped().unwrap();
        let rows = TABLE.lines().filter(|line| line.starts_with("| "));
        let cells = rows.skip(1).map(|row| row.split(" | ").nth(2).unwrap());
        let mut played = 0;
        for cell in cells.filter(|cell| *cell != "-") {
            played += 1;
            let text = cell.trim_matches('`');
            if let Some(name) = text.strip_prefix("tasks --trial ") {
                assert!(Trial::named(name).is_some(), "{cell}");
                continue;
            }
            let command = Inject::augment_args(Command::new("chaos"));
            let parsed = command.try_get_matches_from(split_like_a_shell(text));
            let parsed = parsed.unwrap_or_else(|error| panic!("{cell}: {error}"));
            if let Fault::Reading(reading) = Inject::from_arg_matches(&parsed).unwrap().fault {
                let rule = rules.rule(&reading.rule);
                let rule = rule.unwrap_or_else(|| panic!("{cell}: there is no such rule"));
                let (read_of, named) = kinds(rule, &reading.component);
                assert_eq!(read_of, named, "{cell}");
                for (metric, _) in &reading.metrics {
                    assert!(names(rule, metric), "{cell}: it names no `{metric}`");
                }
            }
        }
        assert!(played > 0, "the table has another form");
    }
}
