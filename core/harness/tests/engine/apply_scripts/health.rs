//! Script commands for health: findings, repairs and checks, rules and breakers.

use std::fmt::Write as _;

use muster_health::rules::RuleSet;
use muster_model::command::{Command, HealthCommand};
use muster_model::health::{Component, Finding, Severity, WorkStep};
use muster_model::ids::{HostId, LeadershipEpoch};
use muster_model::time::TimeMs;

use crate::apply_scripts::runner::{Args, Result, Runner, gpu};

impl Runner {
    /// `found HOST[/GPU|:PORT] RULE [SEVERITY] [xid=CODE] [seq=] [incarnation=] [from=HOST]`.
    pub(crate) fn found(&self, args: &mut Args<'_>, leader: LeadershipEpoch) -> Result<Command> {
        let text: String = args.positional()?;
        let component = component(&text)?;
        let (host, _) = text.split_once([':', '/']).unwrap_or((&text, ""));
        let host = HostId(args.key_or("from", host.parse()?)?);
        let rule: String = args.positional()?;
        let severity: String = args.optional()?.unwrap_or_else(|| "fatal".to_owned());
        let incarnation = args.key_or("incarnation", 1)?;
        let acknowledged = self.cluster.state.health.acknowledged(host, incarnation);
        let code: Option<u32> = args.key("xid")?;
        let finding = Finding {
            sequence: args.key_or("seq", acknowledged + 1)?,
            metric: rule.clone(),
            rule,
            component,
            severity: Severity::of(&severity).ok_or("no such severity")?,
            measured: 1,
            code,
            cluster: None,
            evidence: code.map_or_else(|| "seen".to_owned(), |code| format!("Xid {code}")),
            at: TimeMs(0),
        };
        Ok(Command::Health(HealthCommand::Report {
            leader,
            host,
            incarnation,
            findings: vec![finding],
        }))
    }

    /// `work HOST[/GPU] begun|passed|failed [since=MS]`.
    pub(crate) fn work(&self, args: &mut Args<'_>, leader: LeadershipEpoch) -> Result<Command> {
        let component = component(&args.positional::<String>()?)?;
        let step: String = args.positional()?;
        let known = self.cluster.state.health.condition(&component);
        let since = known.map_or(0, |known| known.since.0);
        Ok(Command::Health(HealthCommand::Work {
            leader,
            component,
            step: WorkStep::of(&step).ok_or("no such step")?,
            since: TimeMs(args.key_or("since", since)?),
            evidence: "by a script".to_owned(),
        }))
    }

    /// `health_rules [TEXT]`, without a text the shipped ones; `ship_rules VERSION [FIRST_WAIT_S]`;
    /// `reset_breaker POOL`; `drain_lemon HOST`; `restarted HOST RULE [worked=]`; `health_tick`.
    pub(crate) fn health_command(
        &mut self,
        name: &str,
        args: &mut Args<'_>,
        leader: LeadershipEpoch,
    ) -> Result<Command> {
        let author = "grace".to_owned();
        Ok(Command::Health(match name {
            "health_rules" => HealthCommand::SetRules {
                request: self.request(args)?,
                author,
                text: match args.optional::<String>()? {
                    // A text that is no rule file is passed on unchanged.
                    Some(text) => RuleSet::whole_text(&text).unwrap_or(text).into(),
                    None => RuleSet::SHIPPED_TEXT.into(),
                },
                shipped: None,
            },
            "ship_rules" => {
                let version = args.positional()?;
                let wait_s = args.optional::<u64>()?.unwrap_or(900);
                HealthCommand::ShipRules {
                    leader,
                    version,
                    text: RuleSet::shipped_text_with(wait_s, 3_600).into(),
                }
            }
            "reset_breaker" => HealthCommand::ResetBreaker {
                request: self.request(args)?,
                author,
                pool: args.positional()?,
            },
            "drain_lemon" => HealthCommand::DrainLemon {
                leader,
                host: HostId(args.positional()?),
            },
            "restarted" => {
                let (host, rule) = (HostId(args.positional()?), args.positional()?);
                let orders = self.cluster.state.health.orders(host, std::iter::empty());
                let since = orders.into_iter().find(|order| order.rule == rule);
                HealthCommand::Restarted {
                    leader,
                    host,
                    rule,
                    since: since.map(|order| order.since).unwrap_or_default(),
                    worked: args.key_or("worked", true)?,
                    evidence: "by a script".to_owned(),
                }
            }
            _ => HealthCommand::Tick { leader },
        }))
    }

    /// Shows the phase of every component with a health record, and the orders to workers.
    pub(crate) fn health(&self) -> String {
        let state = &self.cluster.state;
        let mut text = String::new();
        for (component, condition) in state.health.conditions() {
            let strikes = condition.strikes_at(state.time);
            let ready_ms = condition.ready_at.since(state.time);
            let _ = write!(
                text,
                "{} {} strikes={strikes} ready in {ready_ms} ms",
                display_name(component),
                condition.phase
            );
            for held in &condition.holds {
                let _ = write!(text, " {} keeps {} off", held.rule, held.what);
            }
            for mute in &condition.mutes {
                let _ = write!(text, " mutes {}", mute.rule);
            }
            if condition.pending.is_some() {
                text.push_str(" and something pending");
            }
            text.push('\n');
        }
        for host in state.hosts.values() {
            let gpus = host.gpus.iter().map(|gpu| gpu.uuid);
            for order in state.health.orders(host.id, gpus) {
                let place = display_name(&order.component);
                let _ = writeln!(text, "  host {} is to {} {place}", host.id, order.action);
            }
        }
        text
    }
}

fn component(text: &str) -> Result<Component> {
    if let Some((host, port)) = text.split_once(':') {
        return Ok(Component::Nic {
            host: HostId(host.parse()?),
            name: port.to_owned(),
        });
    }
    if text.contains('/') {
        return Ok(Component::Gpu(gpu(text)?));
    }
    Ok(Component::Host(HostId(text.parse()?)))
}

/// Name of a component in scripts.
pub(crate) fn display_name(component: &Component) -> String {
    match component {
        Component::Gpu(uuid) => format!("gpu {}/{}", uuid.0 / 1_000, uuid.0 % 1_000),
        other => other.to_string(),
    }
}
