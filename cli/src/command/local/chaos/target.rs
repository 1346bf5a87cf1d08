//! Options of `muster chaos run` for an existing cluster.

use std::collections::BTreeSet;
use std::num::NonZero;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use muster_chaos::cluster::{Fault, NamedAgent};
use muster_chaos::run::{EXTERNAL_FAULTS, TargetOptions};

use crate::command::local::demo::{own_binary, trainer_program};
use crate::connection::{Options, current_user};
use crate::failure::Failure;

/// The target cluster, and the faults that its owner permits.
#[derive(Debug, Args)]
#[command(next_help_heading = "On an existing cluster")]
pub(super) struct Target {
    /// Replicas of the cluster as host:port, comma separated; the others are discovered through them
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',')]
    pub(super) target: Vec<String>,
    /// Permitted faults beside submitting jobs; none by default
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "target", value_parser = fault_parser())]
    allow: Vec<Fault>,
    /// An agent on this machine that may be frozen or killed, if --allow permits it: HOST=PID
    #[arg(
        long,
        value_name = "HOST=PID",
        value_delimiter = ',',
        requires = "target"
    )]
    agent_pid: Vec<Agent>,
    /// A replica on this machine that may be frozen or killed, if --allow permits it
    #[arg(long, value_name = "PID", value_delimiter = ',', requires = "target")]
    replica_pid: Vec<i32>,
    /// Queue of the jobs; by default the cluster's default queue
    #[arg(long, value_name = "NAME", requires = "target")]
    queue: Option<String>,
    /// A folder shared by all hosts and this machine at this path: tasks run the trainer (--trainer, also
    /// everywhere) and lock their GPUs in a folder of the run there. Without it they sleep
    #[arg(long, value_name = "FOLDER", requires = "target")]
    gpu_ledger: Option<PathBuf>,
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

const AGENT_FORM: &str = "must be HOST=PID";

fn fault_parser() -> impl TypedValueParser<Value = Fault> {
    let names = PossibleValuesParser::new(EXTERNAL_FAULTS.map(Fault::name));
    names.try_map(|name| {
        Fault::named(&name, &EXTERNAL_FAULTS).ok_or("not a fault that can be allowed")
    })
}

impl Target {
    /// The target of a run, without the options that every run has. `trainer` applies only with a ledger
    /// folder.
    pub(super) fn target_options(
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
            "--agent-pid HOST=PID",
            agents,
        )?;
        check_named(
            &allowed,
            [ReplicaFrozen, ReplicaKilled],
            "--replica-pid PID",
            replicas,
        )?;
        let repeated = repetitions.get() as usize;
        for (fault, named) in [(AgentKilled, agents), (ReplicaKilled, replicas)] {
            if allowed.contains(&fault) && named < repeated {
                return Err(Failure::usage(format!(
                    "a killed process gets a new id: {} can be injected {named} times with the named \
                     processes, not {repeated}",
                    fault.name()
                )));
            }
        }
        let gpu_ledger = match self.gpu_ledger {
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
            gpu_ledger,
            repetitions: repetitions.get(),
            seed: 0,
            out: PathBuf::new(),
        })
    }
}

/// Faults of processes need named processes, and named processes need a permitted fault.
fn check_named(
    allowed: &BTreeSet<Fault>,
    faults: [Fault; 2],
    flag: &str,
    named: usize,
) -> Result<(), Failure> {
    let names = faults.map(Fault::name).join(" and ");
    match (faults.iter().any(|it| allowed.contains(it)), named) {
        (true, 0) => Err(Failure::usage(format!(
            "{names} need a target process: {flag}"
        ))),
        (false, 1..) => Err(Failure::usage(format!(
            "{flag} is for {names}: allow one of them"
        ))),
        _ => Ok(()),
    }
}
