//! What `muster chaos run` may do to a cluster of others.

use std::collections::BTreeSet;
use std::num::NonZero;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use muster_chaos::run::{Fault, NamedAgent, TargetOptions};

use crate::command::demo::{own_binary, trainer_program};
use crate::connection::{Options, current_user};
use crate::failure::Failure;

/// Which cluster, and what its owner allows.
#[derive(Debug, Args)]
#[command(next_help_heading = "On a cluster of yours")]
pub(super) struct Target {
    /// Replicas of the cluster as host:port, comma separated; the others are learnt from them
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',')]
    pub(super) target: Vec<String>,
    /// What may be done to it beside submitting jobs; nothing if none is given
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "target", value_parser = fault_parser())]
    allow: Vec<Fault>,
    /// An agent on this machine that may be frozen or killed, if --allow says so: HOST=PID
    #[arg(
        long,
        value_name = "HOST=PID",
        value_delimiter = ',',
        requires = "target"
    )]
    agent_pid: Vec<Agent>,
    /// A replica on this machine that may be frozen or killed, if --allow says so
    #[arg(long, value_name = "PID", value_delimiter = ',', requires = "target")]
    replica_pid: Vec<i32>,
    /// Queue that the jobs wait in; the cluster's default if none is given
    #[arg(long, value_name = "NAME", requires = "target")]
    queue: Option<String>,
    /// A folder that all hosts and this machine share at this path: tasks run the trainer (--trainer, also everywhere) and lock
    /// their GPUs in a folder of the run there. Without it they sleep
    #[arg(long, value_name = "FOLDER", requires = "target")]
    book: Option<PathBuf>,
}

/// `HOST=PID`
#[derive(Clone, Debug)]
struct Agent(NamedAgent);

impl FromStr for Agent {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (host, pid) = text.split_once('=').ok_or(AGENT_FORM)?;
        let pid = pid.parse().map_err(|_| AGENT_FORM)?;
        let host = host.to_owned();
        Ok(Self(NamedAgent { host, pid }))
    }
}

const AGENT_FORM: &str = "an agent is named as HOST=PID";

fn fault_parser() -> impl TypedValueParser<Value = Fault> {
    let names = Fault::OUTSIDE.map(|fault| fault.permission().unwrap_or_default());
    PossibleValuesParser::new(names)
        .try_map(|name| Fault::permitted(&name).ok_or("nothing that can be allowed"))
}

impl Target {
    /// What is wanted, but for what every run has. `trainer` only counts with a book.
    pub(super) fn wanted(
        self,
        connection: &Options,
        trainer: Option<PathBuf>,
        repetitions: NonZero<u32>,
    ) -> Result<TargetOptions, Failure> {
        let allowed: BTreeSet<Fault> = self.allow.into_iter().collect();
        let (agents, replicas) = (self.agent_pid.len(), self.replica_pid.len());
        use Fault::{AgentFrozen, AgentKilled, ReplicaFrozen, ReplicaKilled};
        check_named(
            &allowed,
            [AgentFrozen, AgentKilled],
            ("--agent-pid HOST=PID", agents),
        )?;
        check_named(
            &allowed,
            [ReplicaFrozen, ReplicaKilled],
            ("--replica-pid PID", replicas),
        )?;
        let repeated = repetitions.get() as usize;
        for (fault, named) in [(AgentKilled, agents), (ReplicaKilled, replicas)] {
            if allowed.contains(&fault) && named < repeated {
                return Err(Failure::usage(format!(
                    "what is killed gets another process id: {} can be made {named} times with what is named, not {repeated}",
                    fault.permission().unwrap_or_default()
                )));
            }
        }
        let book = match self.book {
            None => None,
            Some(folder) => Some((trainer_program(trainer, &own_binary()?)?, folder)),
        };
        Ok(TargetOptions {
            cluster: connection.settings_for(self.target)?,
            context: connection.context().map(str::to_owned),
            allowed,
            agents: self.agent_pid.into_iter().map(|agent| agent.0).collect(),
            replicas: self.replica_pid,
            user: current_user(),
            queue: self.queue,
            book,
            repetitions: repetitions.get(),
            seed: 0,
            out: PathBuf::new(),
        })
    }
}

/// What is done to processes needs some that are named, and what is named must be allowed.
fn check_named(
    allowed: &BTreeSet<Fault>,
    faults: [Fault; 2],
    (flag, named): (&str, usize),
) -> Result<(), Failure> {
    let names = faults.map(|fault| fault.permission().unwrap_or_default());
    let names = names.join(" and ");
    match (faults.iter().any(|it| allowed.contains(it)), named) {
        (true, 0) => Err(Failure::usage(format!(
            "{names} need the process that may be hit: {flag}"
        ))),
        (false, 1..) => Err(Failure::usage(format!(
            "{flag} is for {names}: allow one of them"
        ))),
        _ => Ok(()),
    }
}
