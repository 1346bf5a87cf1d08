//! Benchmark of `apply`: submit, place, start and exit of single-GPU jobs, on a cluster that is kept about 95
//! % full with a backlog of waiting jobs.
//!
//! `cargo run -p muster-harness --example apply_speed -- [hosts] [waiting jobs] [jobs]`
#![expect(
    clippy::disallowed_methods,
    reason = "a benchmark reads the clock; the core itself does not"
)]
#![expect(
    clippy::disallowed_types,
    reason = "a benchmark reads the clock; the core itself does not"
)]

use std::collections::VecDeque;
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use muster_engine::apply::apply;
use muster_engine::state::Answer;
use muster_harness::{Cluster, exit_with, gpu_uuid, request_key, single};
use muster_model::command::{Command, Placement, TaskOutcome, TaskPlacement, TaskReport};
use muster_model::ids::{AttemptEpoch, HostId, JobId, TaskIndex, UnitIndex};

const GPUS_PER_HOST: u32 = 8;
const KINDS: [&str; 4] = ["submit", "place", "started", "exited"];

/// A GPU by host and index.
type Slot = (u32, u32);

struct Bench {
    cluster: Cluster,
    spent: [Duration; 4],
    requests: u64,
    free: VecDeque<Slot>,
    running: VecDeque<(JobId, AttemptEpoch, Slot)>,
}

impl Bench {
    fn new(hosts: u32) -> Self {
        let mut cluster = Cluster::with_hosts(hosts, GPUS_PER_HOST);
        cluster.observer.enabled = false;
        // Consecutive slots are on different hosts, as after a while of mixed work.
        let free = (0..GPUS_PER_HOST)
            .flat_map(|gpu| (1..=hosts).map(move |host| (host, gpu)))
            .collect();
        Self {
            cluster,
            spent: [Duration::ZERO; 4],
            requests: 1 << 32,
            free,
            running: VecDeque::new(),
        }
    }

    fn timed(&mut self, kind: usize, command: &Command) -> (u64, Answer) {
        let began = Instant::now();
        let applied = apply(&mut self.cluster.state, self.cluster.now, command);
        self.spent[kind] += began.elapsed();
        let answer = applied
            .result
            .expect("the benchmark proposes only commands that fit");
        (applied.revision.get(), answer)
    }

    fn submit(&mut self) -> JobId {
        self.requests += 1;
        let command = Command::SubmitJob {
            request: request_key(self.requests),
            spec: Arc::new(single("train", 1, 1)),
        };
        match self.timed(0, &command) {
            (_, Answer::Job(job)) => job,
            (_, other) => panic!("a submission was answered with {other:?}"),
        }
    }

    fn place(&mut self, job: JobId) {
        let slot = self
            .free
            .pop_front()
            .expect("the benchmark keeps some GPUs free");
        let command = Command::Place(Placement {
            leader: self.cluster.leader(),
            job,
            unit: UnitIndex(0),
            basis: muster_model::command::AllocationBasis::Share,
            barrier: false,
            tasks: Arc::from([TaskPlacement {
                task: TaskIndex(0),
                host: HostId(slot.0),
                gpus: vec![gpu_uuid(slot.0, slot.1)],
            }]),
        });
        let (revision, _) = self.timed(1, &command);
        let epoch = AttemptEpoch(revision);
        self.report(2, job, epoch, TaskOutcome::Started);
        self.running.push_back((job, epoch, slot));
    }

    fn end_oldest(&mut self) {
        if let Some((job, epoch, slot)) = self.running.pop_front() {
            self.report(3, job, epoch, TaskOutcome::Exited(exit_with(0)));
            self.free.push_back(slot);
        }
    }

    fn report(&mut self, kind: usize, job: JobId, epoch: AttemptEpoch, outcome: TaskOutcome) {
        let command = Command::ReportTask(TaskReport {
            leader: self.cluster.leader(),
            job,
            unit: UnitIndex(0),
            epoch,
            task: TaskIndex(0),
            outcome,
        });
        self.timed(kind, &command);
    }
}

fn main() -> std::io::Result<()> {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u32>());
    let mut next = |default| numbers.next().and_then(Result::ok).unwrap_or(default);
    let (hosts, waiting, jobs) = (next(5_000), next(100_000), next(200_000));
    let mut bench = Bench::new(hosts);
    for _ in 0..waiting {
        bench.submit();
    }
    let full = hosts * GPUS_PER_HOST / 20 * 19;
    for _ in 0..full {
        let job = bench.submit();
        bench.place(job);
    }
    bench.spent = [Duration::ZERO; 4];
    for _ in 0..jobs {
        let job = bench.submit();
        bench.end_oldest();
        bench.place(job);
    }
    let mut out = std::io::stdout().lock();
    let per_job = |span: Duration| span.as_secs_f64() * 1e6 / f64::from(jobs);
    for (kind, span) in KINDS.iter().zip(bench.spent) {
        writeln!(out, "{kind:8} {:6.2} us", per_job(span))?;
    }
    let all: Duration = bench.spent.iter().sum();
    writeln!(
        out,
        "whole    {:6.2} us per job ({:.0} jobs/s) at {hosts} hosts, {waiting} waiting",
        per_job(all),
        1e6 / per_job(all)
    )?;
    let began = Instant::now();
    let hash = bench.cluster.state.state_hash();
    writeln!(
        out,
        "hash     {:?} over {} jobs ({hash:016x})",
        began.elapsed(),
        bench.cluster.state.jobs.len()
    )
}
