//! Random scripts: users, administrators and faults change a small cluster in virtual time, and the planner decides
//! after each change as the leader does. Two invariants hold whatever the script:
//!
//! - Planning reaches a fixed point, and places no unit again and again at one time.
//! - Nothing is stopped for a unit that then does not start, unless the script changed something in between.
//!
//! `make soak` runs many more of them than CI.

use std::collections::{BTreeMap, BTreeSet};

use muster_control::reactor::timers;
use muster_harness::{Cluster, gang, single};
use muster_model::command::{Block, BlockTarget, Command, GpuHealth, HostCommand, Planned, Victim};
use muster_model::ids::{GpuUuid, HostId, JobId, UnitId};
use muster_model::lifecycle::UnitPhase;
use muster_model::quota::{Amounts, Guarantee, QueueConfig, QueueTree};
use muster_model::spec::JobSpec;
use muster_model::time::TimeMs;
use proptest::prelude::*;

const HOSTS: u32 = 3;
const GPUS_PER_HOST: u32 = 4;
/// Rounds after which planning at one time is taken to go on for ever.
const ROUNDS_MAX: usize = 64;
const QUEUES: [&str; 3] = ["prod", "research", "rest"];

/// How often a unit may be placed at one time: a stop without a grace period may put it elsewhere at once.
const PLACED_MAX: usize = 2;

/// A change of the cluster.
#[derive(Clone, Debug)]
enum Change {
    Submit(Submission),
    /// A job succeeds, or is cancelled.
    End {
        job: usize,
        cancelled: bool,
    },
    /// A host is to be blocked in some seconds, for some seconds.
    PlanBlock {
        host: u32,
        in_s: u64,
        for_s: u64,
    },
    /// Its block, planned or begun, ends.
    Unblock {
        host: u32,
    },
    /// A GPU becomes unfit or fit again.
    Gpu {
        host: u32,
        position: usize,
        fit: bool,
    },
    /// The queues are configured in another way.
    Queues(usize),
    Wait {
        seconds: u64,
    },
}

#[derive(Clone, Debug)]
struct Submission {
    queue: usize,
    gang: bool,
    tasks: u32,
    gpus: u32,
    cpus: u32,
    priority: i32,
    opportunistic: bool,
    run_s: Option<u64>,
    grace_s: u64,
}

impl Submission {
    fn spec(&self) -> JobSpec {
        let mut spec = if self.gang {
            gang("gang", self.tasks, self.gpus)
        } else {
            single("one", self.tasks, self.gpus)
        };
        QUEUES[self.queue % QUEUES.len()].clone_into(&mut spec.queue);
        spec.groups[0].resources.cpus_milli = self.cpus * 1_000;
        spec.priority = self.priority;
        spec.scheduling.opportunistic = self.opportunistic;
        spec.scheduling.run_time_ms_max = self.run_s.map(|seconds| seconds * 1_000);
        spec.stop_grace_ms = self.grace_s * 1_000;
        spec
    }
}

fn submission() -> impl Strategy<Value = Submission> {
    let shape = (any::<bool>(), 1..4u32, 0..=GPUS_PER_HOST, 1..40u32);
    let rights = (0..3usize, 0..3i32, prop::bool::weighted(0.3));
    let times = (prop::option::of(30..900u64), 0..90u64);
    (shape, rights, times).prop_map(|(shape, rights, times)| {
        let (gang, tasks, gpus, cpus) = shape;
        let (queue, priority, opportunistic) = rights;
        let (run_s, grace_s) = times;
        Submission {
            queue,
            gang,
            tasks,
            gpus,
            cpus,
            priority,
            opportunistic,
            run_s,
            grace_s,
        }
    })
}

fn change() -> impl Strategy<Value = Change> {
    let host = || 1..=HOSTS;
    prop_oneof![
        6 => submission().prop_map(Change::Submit),
        2 => (any::<usize>(), prop::bool::weighted(0.3)).prop_map(|(job, cancelled)| Change::End { job, cancelled }),
        2 => (host(), 1..900u64, 30..900u64).prop_map(|(host, in_s, for_s)| Change::PlanBlock { host, in_s, for_s }),
        1 => host().prop_map(|host| Change::Unblock { host }),
        1 => (host(), 0..GPUS_PER_HOST as usize, any::<bool>())
            .prop_map(|(host, position, fit)| Change::Gpu { host, position, fit }),
        1 => (0..TREES).prop_map(Change::Queues),
        5 => (1..300u64).prop_map(|seconds| Change::Wait { seconds }),
    ]
}

/// Number of configurations of the queues.
const TREES: usize = 3;

fn tree(number: usize) -> QueueTree {
    let amounts = |gpus| {
        Guarantee::Amounts(Amounts {
            gpus,
            ..Amounts::default()
        })
    };
    let config = |guarantee, preempt_by_priority, backfill| QueueConfig {
        guarantee,
        preempt_by_priority,
        backfill,
        reserve_after_ms: 60_000,
        ..QueueConfig::default()
    };
    let prod = match number {
        0 => amounts(6),
        _ => amounts(3),
    };
    let configs = [
        config(prod, number != 1, true),
        config(amounts(4), true, number != 2),
        config(amounts(0), number == 1, true),
    ];
    QueueTree {
        queues: QUEUES.map(str::to_owned).into_iter().zip(configs).collect(),
        ..QueueTree::default()
    }
}

/// A claim for which attempts are being stopped.
struct Stopping {
    victims: Vec<Victim>,
    /// Number of changes of the script at the time of the claim.
    at: usize,
}

struct Script {
    cluster: Cluster,
    jobs: Vec<JobId>,
    /// Changes so far other than the passing of time.
    changes: usize,
    /// Claims with victims, by claimant.
    claims: BTreeMap<UnitId, Stopping>,
    /// When the planner wants to decide again at the latest.
    again_at: Option<TimeMs>,
}

impl Script {
    fn new() -> Self {
        let mut cluster = Cluster::with_hosts(HOSTS, GPUS_PER_HOST);
        cluster.configure(tree(0));
        Self {
            cluster,
            jobs: Vec::new(),
            changes: 0,
            claims: BTreeMap::new(),
            again_at: None,
        }
    }

    fn apply(&mut self, change: &Change) -> Result<(), TestCaseError> {
        self.changes += usize::from(!matches!(change, Change::Wait { .. }));
        let request = self.cluster.next_request();
        let author = "grace".to_owned();
        match change {
            Change::Submit(submission) => {
                let job = self.cluster.submit(submission.spec());
                self.jobs.push(job);
            }
            Change::End { job, cancelled } => {
                let Some(job) = self.jobs.get(job % self.jobs.len().max(1)).copied() else {
                    return Ok(());
                };
                if *cancelled {
                    let reason = String::new();
                    let cancel = Command::CancelJob {
                        request,
                        job,
                        author,
                        reason,
                    };
                    // Refused if it has ended.
                    let _refused = self.cluster.apply(&cancel);
                } else {
                    self.cluster.finish_all(job);
                }
            }
            Change::PlanBlock { host, in_s, for_s } => {
                let at = self.cluster.now.after(in_s * 1_000);
                self.cluster.apply(&Command::Block {
                    request,
                    target: BlockTarget::Host(self.host_name(*host)),
                    block: Block {
                        reason: "maintenance".to_owned(),
                        author,
                        evidence: String::new(),
                        since: TimeMs::default(),
                        expires_at: Some(at.after(for_s * 1_000)),
                        drain_deadline: None,
                        planned: Some(Planned {
                            at,
                            notice_ms: 120_000,
                        }),
                    },
                    spares_last: false,
                });
            }
            Change::Unblock { host } => {
                let target = BlockTarget::Host(self.host_name(*host));
                for planned in [true, false] {
                    let request = self.cluster.next_request();
                    // Refused if there is no such block.
                    let _refused = self.cluster.apply(&Command::Unblock {
                        request,
                        target: target.clone(),
                        author: author.clone(),
                        planned,
                    });
                }
            }
            Change::Gpu {
                host,
                position,
                fit,
            } => self.set_gpu(*host, *position, *fit),
            Change::Queues(number) => self.cluster.configure(tree(*number)),
            Change::Wait { seconds } => return self.pass(*seconds),
        }
        self.decide()
    }

    fn host(&self, number: u32) -> HostId {
        let mut hosts = self.cluster.state.hosts.keys();
        let host = hosts.nth(number as usize - 1);
        *host.expect("all hosts are registered")
    }

    fn host_name(&self, number: u32) -> String {
        let host = self.cluster.state.host(self.host(number));
        host.expect("it is registered").name.to_string()
    }

    fn set_gpu(&mut self, host: u32, position: usize, fit: bool) {
        let host = self.host(host);
        let record = self.cluster.state.host(host).expect("it is registered");
        let gpu: GpuUuid = record.gpus[position].uuid;
        let health = match fit {
            true => GpuHealth::Healthy,
            false => GpuHealth::Faulted {
                signal: "xid-79".to_owned(),
                detail: String::new(),
            },
        };
        let leader = self.cluster.leader();
        self.cluster
            .apply(&Command::Host(HostCommand::SetGpuHealth {
                leader,
                host,
                gpu,
                health,
            }));
    }

    /// Lets time pass. Whatever is to stop does so at the end of its grace period.
    fn pass(&mut self, seconds: u64) -> Result<(), TestCaseError> {
        let until = self.cluster.now.after(seconds * 1_000);
        self.end_stops()?;
        while self.cluster.now < until {
            let stops = self.stops().into_iter().map(|(at, _)| at);
            let timer = timers::next(&self.cluster.state);
            let due = stops.chain(timer).chain(self.again_at);
            let next = due.filter(|at| *at > self.cluster.now).min();
            let next = next.unwrap_or(until).min(until);
            self.cluster.wait(next.since(self.cluster.now));
            self.end_stops()?;
        }
        Ok(())
    }

    /// Ends the attempts whose grace periods have passed, and what is placed instead and stopped without one.
    fn end_stops(&mut self) -> Result<(), TestCaseError> {
        for _ in 0..ROUNDS_MAX {
            let now = self.cluster.now;
            let over = self.stops().into_iter().filter(|(at, _)| *at <= now);
            let over: BTreeSet<JobId> = over.map(|(_, job)| job).collect();
            let is_settled = over.is_empty();
            for job in over {
                self.cluster.stop_all(job);
            }
            self.decide()?;
            if is_settled {
                return Ok(());
            }
        }
        Err(TestCaseError::fail(
            "attempts are placed and stopped for ever at one time",
        ))
    }

    /// Jobs of attempts that are being stopped, with the ends of their grace periods.
    fn stops(&self) -> Vec<(TimeMs, JobId)> {
        let jobs = self.cluster.state.jobs.values();
        let attempts = jobs.flat_map(|job| {
            let units = job.units.values();
            units.filter_map(|unit| Some((unit.attempt.as_deref()?, job.id)))
        });
        let stops = attempts.filter_map(|(attempt, job)| {
            let stop = attempt.stop.as_ref()?;
            Some((stop.at.after(stop.grace_ms), job))
        });
        stops.collect()
    }

    /// The leader acts on what is due and plans until nothing more is to be done; what it places starts.
    fn decide(&mut self) -> Result<(), TestCaseError> {
        let mut placed: BTreeMap<UnitId, usize> = BTreeMap::new();
        for _ in 0..ROUNDS_MAX {
            let leader = self.cluster.leader();
            let due: Vec<Command> =
                timers::due(leader, &self.cluster.state, self.cluster.now).collect();
            for command in &due {
                self.cluster.apply(command);
            }
            let plan = self.cluster.plan();
            self.again_at = plan.again_at;
            for step in &plan.steps {
                let applied = self.cluster.apply(step);
                prop_assert!(applied.result.is_ok(), "{step:?}: {:?}", applied.result);
                match step {
                    Command::Place(placement) => {
                        let unit = placement.unit_id();
                        let times = placed.entry(unit).or_default();
                        *times += 1;
                        prop_assert!(
                            *times <= PLACED_MAX,
                            "{unit} is placed {times} times at once"
                        );
                        self.claims.remove(&unit);
                    }
                    Command::Claim(claim) => {
                        let stopping = Stopping {
                            victims: claim.victims.clone(),
                            at: self.changes,
                        };
                        self.claims.insert(claim.unit_id(), stopping);
                    }
                    _ => {}
                }
            }
            for job in self.jobs.clone() {
                self.cluster.start_all(job);
            }
            self.check_claims()?;
            if plan.steps.is_empty() && due.is_empty() {
                return Ok(());
            }
        }
        Err(TestCaseError::fail("planning reaches no fixed point"))
    }

    /// A claim for which something was stopped ends with the start of its unit, unless the script changed
    /// something.
    fn check_claims(&mut self) -> Result<(), TestCaseError> {
        let state = &self.cluster.state;
        let changes = self.changes;
        let gone: Vec<UnitId> = { self.claims.keys().copied() }
            .filter(|claimant| !state.index.claims.contains_key(claimant))
            .collect();
        for claimant in gone {
            let Some(claim) = self.claims.remove(&claimant) else {
                continue;
            };
            let job = state.job(claimant.job);
            let phase = job.and_then(|job| job.unit_phase(claimant.unit));
            let in_vain = phase == Some(UnitPhase::Waiting)
                && !claim.victims.is_empty()
                && claim.at == changes;
            prop_assert!(
                !in_vain,
                "{:?} were stopped for {claimant}, which does not start",
                claim.victims
            );
        }
        Ok(())
    }
}

fn run(changes: &[Change]) -> Result<(), TestCaseError> {
    let mut script = Script::new();
    for change in changes {
        script.apply(change)?;
    }
    Ok(())
}

fn script() -> impl Strategy<Value = Vec<Change>> {
    prop::collection::vec(change(), 1..40)
}

/// Jobs of one queue that end by a time limit, and the passing of time.
fn arrivals() -> impl Strategy<Value = Vec<Change>> {
    let submission = submission().prop_map(|drawn| {
        Change::Submit(Submission {
            queue: 2,
            priority: 0,
            opportunistic: false,
            run_s: Some(drawn.run_s.unwrap_or(RUN_S_MAX).min(RUN_S_MAX)),
            grace_s: 0,
            ..drawn
        })
    });
    let wait = (1..60u64).prop_map(|seconds| Change::Wait { seconds });
    prop::collection::vec(prop_oneof![submission, wait], 1..60)
}

/// The longest run time of [`arrivals`].
const RUN_S_MAX: u64 = 300;

/// The first unit of a queue starts within the time that `docs/scheduling.md` promises, whatever mix of GPUs and CPUs
/// the units before and behind it use.
fn check_wait_of_head(changes: &[Change]) -> Result<(), TestCaseError> {
    let mut script = Script::new();
    let bound_ms = tree(0).queues[QUEUES[2]].reserve_after_ms + RUN_S_MAX * 1_000;
    let mut head: Option<(UnitId, TimeMs)> = None;
    let steps = changes.iter().flat_map(|change| match change {
        Change::Wait { seconds } => vec![Change::Wait { seconds: 1 }; *seconds as usize],
        other => vec![other.clone()],
    });
    // In the end all of them start.
    let rest = std::iter::repeat_n(Change::Wait { seconds: 10 }, changes.len() * 60);
    for change in steps.chain(rest) {
        script.apply(&change)?;
        let now = script.cluster.now;
        let jobs = script.cluster.state.jobs.values();
        let mut waiting =
            jobs.filter_map(|job| Some(UnitId::new(job.id, job.waiting_units().next()?)));
        head = match (waiting.next(), head) {
            (Some(unit), Some((known, since))) if unit == known => {
                let waited_ms = now.since(since);
                prop_assert!(
                    waited_ms <= bound_ms,
                    "{unit} waits for {waited_ms} ms as the head"
                );
                Some((unit, since))
            }
            (unit, _) => unit.map(|unit| (unit, now)),
        };
    }
    prop_assert!(head.is_none(), "{head:?} still waits");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_stopped_in_vain(changes in script()) {
        run(&changes)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn the_head_of_a_queue_starts_in_time(changes in arrivals()) {
        check_wait_of_head(&changes)?;
    }
}

mod soak {
    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

        #[test]
        fn nothing_is_stopped_in_vain(changes in script()) {
            run(&changes)?;
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

        #[test]
        fn the_head_of_a_queue_starts_in_time(changes in arrivals()) {
            check_wait_of_head(&changes)?;
        }
    }
}
