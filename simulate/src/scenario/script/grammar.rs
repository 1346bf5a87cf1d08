//! Syntax of every statement, shared by error messages and documentation.

/// A statement's name and syntax.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Grammar {
    pub(crate) name: &'static str,
    /// The allowed syntax.
    pub(crate) usage: &'static str,
}

const fn of(name: &'static str, usage: &'static str) -> Grammar {
    Grammar { name, usage }
}

/// All statements.
pub(crate) const STATEMENTS: &[Grammar] = &[
    of("levels", "levels [above=pod,rack] [inside=socket,pcie]"),
    of(
        "hosts",
        "hosts COUNT [gpus=8] [model=H100] [cpus=64] [memory=1024] [name=n] [LEVEL=CELL for every level above] \
         [LEVEL=GPUS for levels inside] [reported]",
    ),
    of(
        "queues",
        "queues FILE, or queues with YAML on indented lines below",
    ),
    of(
        "topology",
        "topology FILE, or topology with YAML on indented lines below",
    ),
    of(
        "submit",
        "submit JOB [gang] [opportunistic] [lazy] [pack|spread|exclusive] [tasks=1] [gpus=0] [cpus=1] [memory=1] \
         [models=A,B] [min=TASKS] [per_host=TASKS] [group=NAME] [group_within=LEVEL|LEVEL?] [group_tasks=TASKS] \
         [on_gpus=HOST:GPU,...] [queue=NAME] [user=NAME] [priority=0] [within=LEVEL|LEVEL?] [on=HOST,...] \
         [not_on=HOST,...] [pinned=NAME] [run_time=TIME] [assembly=TIME] [grace=TIME] [retries=1] [lasts=TIME] \
         [+ GROUP and that group's tasks=, gpus=, cpus=, memory=, models=, min=, per_host=, group_within=, \
         group_tasks=, on_gpus=]",
    ),
    of("cancel", "cancel JOB"),
    of("finish", "finish JOB [task=N]"),
    of("fail", "fail JOB [task=N] [code=1]"),
    of("checkpoint", "checkpoint JOB [step=N]"),
    of("bad", "bad HOST|HOST:GPU [SIGNAL]"),
    of("good", "good HOST|HOST:GPU"),
    of("suspect", "suspect HOST"),
    of(
        "block",
        "block HOST|HOST:GPU [reason=TEXT] [for=TIME], block HOST in=TIME [notice=1h] [reason=TEXT] [for=TIME]",
    ),
    of(
        "drain",
        "drain HOST|HOST:GPU [reason=TEXT] [within=TIME] [for=TIME], \
         drain HOST in=TIME [notice=1h] [reason=TEXT] [within=TIME] [for=TIME]",
    ),
    of("unblock", "unblock HOST|HOST:GPU, unblock HOST planned"),
    of("advance", "advance TIME"),
    of("workers", "workers obey|hold"),
    of("planner", "planner auto|hold"),
    of("plan", "plan [once]"),
    of("start", "start JOB"),
    of("stopped", "stopped JOB"),
    of("leader", "leader"),
    of("restart", "restart"),
    of("every_cut", "every_cut"),
    of(
        "expect",
        "expect placed|running|stopping|succeeded|failed|cancelled JOB [units=N] [on=HOST,...] [hosts=N] \
         [gpus=HOST:GPU,...] [tasks=N] [basis=share|cells|opportunistic], expect waiting JOB [because TEXT], \
         expect claim JOB [victims=JOB,...|none], expect no-claim JOB, expect free GPUS [on=HOST], \
         expect used QUEUE GPUS, expect together JOB LEVEL, expect refused [TEXT]",
    ),
    of("show", "show [hosts|queues|jobs|JOB]"),
    of("explain", "explain JOB"),
    of(
        "repeat",
        "repeat COUNT [every=TIME], then statements with {n} for the round, then end",
    ),
    of("end", "end, after repeat"),
];

/// Syntax of a statement.
pub(crate) fn grammar_of(name: &str) -> Option<&'static Grammar> {
    STATEMENTS.iter().find(|grammar| grammar.name == name)
}

/// All names, for an error message.
pub(crate) fn names() -> String {
    let names: Vec<&str> = STATEMENTS.iter().map(|grammar| grammar.name).collect();
    names.join(", ")
}
