//! Command that repeats a run on an external cluster.

use crate::cluster::NamedAgent;
use crate::run::external::TargetOptions;

/// The command with the same random draws, applied to the cluster as it is by then. Process ids are
/// repeated although killed processes have new ones; certificates and tokens from variables are not
/// included.
pub(super) fn command(options: &TargetOptions) -> String {
    let mut command = format!(
        "muster chaos run --target {} --seed {} --repetitions {}",
        options.cluster.addresses.join(","),
        options.seed,
        options.repetitions
    );
    let mut add = |flag: &str, values: Vec<String>| {
        if !values.is_empty() {
            command.push_str(&format!(" --{flag} {}", values.join(",")));
        }
    };
    add("context", options.context.iter().cloned().collect());
    let allowed = options.allowed.iter().map(|it| it.name().to_owned());
    add("allow", allowed.collect());
    let named = |agent: &NamedAgent| format!("{}={}", agent.host, agent.pid);
    add("agent-pid", options.agents.iter().map(named).collect());
    let replicas = options.replicas.iter().map(ToString::to_string);
    add("replica-pid", replicas.collect());
    add("queue", options.queue.iter().cloned().collect());
    if let Some((trainer, folder)) = &options.gpu_ledger {
        add("gpu-ledger", vec![folder.display().to_string()]);
        add("trainer", vec![trainer.display().to_string()]);
    }
    command
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use muster_client::ClientConfig;

    use super::*;
    use crate::cluster::Fault;

    #[test]
    fn the_command_repeats_every_option() {
        let agent = |host: &str, pid| NamedAgent {
            host: host.to_owned(),
            pid,
        };
        let bare = TargetOptions {
            cluster: ClientConfig::new(["a:1", "b:2"]),
            context: None,
            allowed: BTreeSet::new(),
            agents: Vec::new(),
            replicas: Vec::new(),
            user: "ada".to_owned(),
            queue: None,
            gpu_ledger: None,
            repetitions: 1,
            seed: 7,
            out: PathBuf::from("out"),
        };
        let head = "muster chaos run --target a:1,b:2 --seed 7 --repetitions 1";
        assert_eq!(command(&bare), head);
        let full = TargetOptions {
            context: Some("lab".to_owned()),
            allowed: BTreeSet::from([Fault::AgentKilled, Fault::ReplicaKilled]),
            agents: vec![agent("node01", 11), agent("node02", 12)],
            replicas: vec![21],
            queue: Some("night".to_owned()),
            gpu_ledger: Some((PathBuf::from("/opt/trainer"), PathBuf::from("/ledger"))),
            ..bare
        };
        let rest = "--context lab --allow agent-killed,replica-killed --agent-pid node01=11,node02=12 --replica-pid 21 \
                    --queue night --gpu-ledger /ledger --trainer /opt/trainer";
        assert_eq!(command(&full), format!("{head} {rest}"));
    }
}
