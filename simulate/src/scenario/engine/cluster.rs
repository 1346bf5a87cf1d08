//! State changed command by command, audited after each, with the resulting log.

use muster_engine::apply::apply;
use muster_engine::audit::audit;
use muster_engine::state::{Answer, State, StateParts};
use muster_harness::request_key;
use muster_model::command::Command;
use muster_model::ids::{JobId, LeadershipEpoch, ReplicaId, RequestKey, Revision};
use muster_model::rejection::Rejection;
use muster_model::time::TimeMs;

use crate::scenario::engine::Failure;

/// Start time of every scenario: 2024-01-01, so that arithmetic that assumes 0 is noticed.
pub(crate) const BEGIN: TimeMs = TimeMs(1_704_067_200_000);

/// A command and its result.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) revision: Revision,
    pub(crate) time: TimeMs,
    pub(crate) command: Command,
    pub(crate) result: Result<Answer, Rejection>,
}

/// A state and its log.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    pub(crate) state: State,
    pub(crate) now: TimeMs,
    pub(crate) log: Vec<Entry>,
    requests: u64,
    replicas: u64,
    /// Number of commands after which the leader is killed and replaced.
    cut_after: Option<usize>,
}

impl Cluster {
    /// An empty cluster with a leader. With `cut_after` the leader is killed after that number of commands.
    pub(crate) fn new(cut_after: Option<usize>) -> Result<Self, Failure> {
        let mut cluster = Self {
            state: State::default(),
            now: BEGIN,
            log: Vec::new(),
            requests: 0,
            replicas: 0,
            cut_after,
        };
        cluster.new_leader()?;
        Ok(cluster)
    }

    /// Starts a new leadership.
    pub(crate) fn new_leader(&mut self) -> Result<(), Failure> {
        self.replicas += 1;
        let replica = ReplicaId(self.replicas);
        self.apply(Command::LeaderBegan { replica }).map(|_| ())
    }

    /// The current leadership.
    pub(crate) const fn leader(&self) -> LeadershipEpoch {
        self.state.leadership.epoch
    }

    /// A fresh request key.
    pub(crate) const fn next_request(&mut self) -> RequestKey {
        self.requests += 1;
        request_key(self.requests)
    }

    /// Applies a command now.
    ///
    /// # Errors
    /// If the state fails its audit afterwards. A refusal is a result, not an error.
    pub(crate) fn apply(&mut self, command: Command) -> Result<Result<Answer, Rejection>, Failure> {
        let applied = apply(&mut self.state, self.now, &command);
        let result = applied.result.clone();
        self.log.push(Entry {
            revision: applied.revision,
            time: self.now,
            command,
            result: applied.result,
        });
        let findings = audit(&self.state);
        if !findings.is_empty() {
            return Err(Failure::Audit(findings));
        }
        if self.cut_after == Some(self.log.len()) {
            self.cut_after = None;
            self.new_leader()?;
        }
        Ok(result)
    }

    /// The job with the given name.
    pub(crate) fn job(&self, name: &str) -> Result<JobId, Failure> {
        let jobs = self.state.jobs.values().rev();
        jobs.into_iter()
            .find(|job| job.spec.name == name)
            .map(|job| job.id)
            .ok_or_else(|| Failure::Unknown(format!("there is no job `{name}`")))
    }

    /// Rebuilds the state from the log and from its parts, compares, and continues with the one from its
    /// parts.
    pub(crate) fn restart(&mut self) -> Result<(), Failure> {
        let mut replayed = State::default();
        for entry in &self.log {
            let applied = apply(&mut replayed, entry.time, &entry.command);
            if applied.result != entry.result {
                return Err(Failure::Restart {
                    way: "replayed from the log",
                    what: format!(
                        "revision {} returned {:?} before and {:?} now",
                        entry.revision, entry.result, applied.result
                    ),
                });
            }
        }
        compare("replayed from the log", &self.state, &replayed)?;
        let restored = State::restore(parts(&self.state));
        compare("restored from its parts", &self.state, &restored)?;
        self.state = restored;
        Ok(())
    }
}

fn compare(way: &'static str, known: &State, rebuilt: &State) -> Result<(), Failure> {
    let differing = [
        ("hash", known.state_hash() != rebuilt.state_hash()),
        ("jobs", known.jobs != rebuilt.jobs),
        ("hosts", known.hosts != rebuilt.hosts),
        ("queues", known.queues != rebuilt.queues),
        ("topology", known.topology != rebuilt.topology),
        (
            "half-life",
            known.history_half_life_ms != rebuilt.history_half_life_ms,
        ),
        ("defragment", known.defragment != rebuilt.defragment),
        ("index", known.index != rebuilt.index),
    ];
    let names: Vec<&str> = differing
        .into_iter()
        .filter_map(|(name, differs)| differs.then_some(name))
        .collect();
    if names.is_empty() {
        return Ok(());
    }
    let mut what = names.join(", ");
    if known.index != rebuilt.index {
        what.push_str(&first_difference(&known.index, &rebuilt.index));
    }
    Err(Failure::Restart { way, what })
}

/// The first line in which two values differ, with its field.
fn first_difference(known: &impl std::fmt::Debug, rebuilt: &impl std::fmt::Debug) -> String {
    /// Indentation of a field's name.
    const FIELD: &str = "    ";
    let (known, rebuilt) = (format!("{known:#?}"), format!("{rebuilt:#?}"));
    let mut field = "";
    let mut rebuilt = rebuilt.lines();
    for line in known.lines() {
        let name = line.strip_prefix(FIELD);
        if let Some(name) = name.filter(|name| !name.starts_with([' ', '}', ')', ']'])) {
            field = name;
        }
        let other = rebuilt.next().unwrap_or("nothing");
        if line != other {
            let (line, other) = (line.trim(), other.trim());
            return format!(" (in `{field}` kept `{line}`, rebuilt `{other}`)");
        }
    }
    " (the rebuilt one has more)".to_owned()
}

/// The parts of a state that a snapshot would hold.
fn parts(state: &State) -> StateParts {
    let requests = state.requests.iter();
    StateParts {
        revision: state.revision,
        time: state.time,
        leadership: state.leadership,
        refounding: state.refounding,
        replicas: state.replicas.clone(),
        jobs: state
            .jobs
            .values()
            .map(|job| job.as_ref().clone())
            .collect(),
        hosts: (state.hosts.values().map(|host| host.as_ref().clone())).collect(),
        queues: (state.queues.values().map(|queue| queue.as_ref().clone())).collect(),
        history_half_life_ms: state.history_half_life_ms,
        defragment: state.defragment,
        job_defaults: state.job_defaults,
        reliability: state.reliability,
        ledger: state.ledger,
        health: state.health.clone(),
        health_rules: state.health_rules.clone(),
        configured_topology: state.configured_topology.clone(),
        users: { state.users.iter() }
            .map(|(name, user)| (name.clone(), user.as_ref().clone()))
            .collect(),
        join_tokens: { state.join_tokens.iter() }
            .map(|(id, token)| (id.clone(), token.as_ref().clone()))
            .collect(),
        requests: requests.map(|(id, answer)| (id, answer.clone())).collect(),
        events: state.events.clone(),
    }
}
