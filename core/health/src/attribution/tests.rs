//! Attribution tests, after the catalogue of faults.

use std::collections::BTreeSet;

use muster_model::command::{MemoryUsage, SignalSender};
use muster_model::health::Severity;
use muster_model::time::{DAY_MS, SECOND_MS};

use super::*;

const NOW: TimeMs = TimeMs(100 * DAY_MS);

/// Builder of an ended attempt.
struct Play {
    exits: Vec<Option<Exit>>,
    gpus: Vec<Vec<GpuUuid>>,
    tasks: Vec<TaskShape>,
    findings: Vec<Finding>,
    history: History,
    stop: Option<StopReason>,
    gone: Option<HostId>,
    meaning: Option<ExitMeaning>,
}

#[derive(Clone, Copy)]
struct TaskShape {
    has_begun: bool,
    ran_ms: u64,
    step: Option<u64>,
    busy_permille: Option<u16>,
    held_before_mib: u64,
    crashed_in_nccl: bool,
}

const SHAPE: TaskShape = TaskShape {
    has_begun: true,
    ran_ms: 3_600_000,
    step: None,
    busy_permille: None,
    held_before_mib: 0,
    crashed_in_nccl: false,
};

fn code(code: i32, evidence: &str) -> Option<Exit> {
    Some(Exit {
        code: Some(code),
        evidence: evidence.to_owned(),
        ..Exit::default()
    })
}

fn signal(signal: i32, evidence: &str) -> Option<Exit> {
    Some(Exit {
        signal: Some(signal),
        evidence: evidence.to_owned(),
        ..Exit::default()
    })
}

impl Play {
    /// Tasks with these exits, one per host, on GPUs 10 and 11 of host 1, 20 and 21 of host 2 and so on.
    fn of(exits: &[Option<Exit>]) -> Self {
        let gpus = (1..=exits.len() as u128).map(|host| vec![GpuUuid(host * 10)]);
        Self {
            exits: exits.to_vec(),
            gpus: gpus.collect(),
            tasks: vec![SHAPE; exits.len()],
            findings: Vec::new(),
            history: History::default(),
            stop: None,
            gone: None,
            meaning: None,
        }
    }

    fn found(mut self, rule: &str, component: Component, before_s: i64) -> Self {
        let at = NOW.0.saturating_add_signed(-before_s * SECOND_MS as i64);
        self.findings.push(Finding {
            sequence: self.findings.len() as u64 + 1,
            rule: rule.to_owned(),
            component,
            severity: Severity::Fatal,
            metric: String::new(),
            measured: 1,
            code: None,
            cluster: None,
            evidence: format!("{rule} was seen"),
            at: TimeMs(at),
        });
        self
    }

    fn xid(mut self, code: u32, gpu: u128, before_s: i64) -> Self {
        self = self.found("xid", Component::Gpu(GpuUuid(gpu)), before_s);
        let finding = self.findings.last_mut().expect("it was added");
        finding.code = Some(code);
        finding.evidence = format!("Xid {code}");
        if matches!(code, 13 | 31 | 43) {
            finding.severity = Severity::Warn;
        }
        if code == 94 {
            finding.severity = Severity::Degraded;
        }
        self
    }

    fn attribute(&self) -> AttributionOutcome {
        self.attribute_by(&RuleSet::shipped().expect("the shipped rules parse"))
    }

    fn attribute_by(&self, rules: &RuleSet) -> AttributionOutcome {
        let tasks: Vec<TaskEnd<'_>> = (0..self.exits.len())
            .map(|at| {
                let TaskShape {
                    has_begun,
                    ran_ms,
                    step,
                    busy_permille,
                    held_before_mib,
                    crashed_in_nccl,
                } = self.tasks[at];
                TaskEnd {
                    task: TaskIndex(at as u32),
                    host: HostId(at as u32 + 1),
                    gpus: &self.gpus[at],
                    exit: self.exits[at].as_ref(),
                    has_begun,
                    ran_ms,
                    step,
                    busy_permille,
                    held_before_mib,
                    crashed_in_nccl,
                }
            })
            .collect();
        attribute(&Ended {
            job: JobId(1),
            user: "ann",
            tasks: &tasks,
            stop: self.stop.as_ref(),
            decisive: None,
            gone_host: self.gone,
            unfit: None,
            meaning: self.meaning,
            at: NOW,
            findings: &self.findings,
            rules,
            history: &self.history,
        })
    }

    /// Class, component, charge and measures, in one line.
    fn summary(&self) -> String {
        let found = self.attribute().attribution;
        let measures: Vec<&str> = found.measures.iter().map(|it| it.name()).collect();
        let component = match found.component {
            Some(Component::Gpu(gpu)) => format!(" gpu{}", gpu.0),
            Some(Component::Host(host)) => format!(" host{host}"),
            Some(component) => format!(" {component}"),
            None => String::new(),
        };
        format!(
            "{}{component} {} {}: {}",
            found.class,
            found.confidence_permille,
            found.charge,
            measures.join(" ")
        )
    }
}

#[test]
fn every_kind_of_end_has_its_cause() {
    let python = |error: &str| code(1, error);
    for (name, play, expected) in [
        (
            "1: XID 79",
            Play::of(&[signal(6, "NCCL communicator was aborted")]).xid(79, 10, 2),
            "gpu gpu10 950 infra: requeue avoid",
        ),
        (
            "3: XID 48 and 63",
            Play::of(&[signal(6, "")]).xid(63, 10, 1).xid(48, 10, 2),
            "gpu gpu10 950 infra: requeue avoid",
        ),
        (
            "4: XID 94 with its task",
            Play::of(&[python("CUDA error: an illegal memory access")]).xid(94, 10, 1),
            "gpu gpu10 950 infra: requeue avoid",
        ),
        (
            "5: XID 31 once",
            Play::of(&[python(
                "RuntimeError: CUDA error: an illegal memory access was encountered",
            )])
            .xid(31, 10, 1),
            "user 600 user: requeue",
        ),
        (
            "12: uncorrected ECC",
            Play::of(&[signal(6, "")]).found("ecc_unc_volatile", Component::Gpu(GpuUuid(10)), 20),
            "gpu gpu10 950 infra: requeue avoid",
        ),
        (
            "15: GPU lost",
            Play::of(&[python("CUDA error: unknown error")]).found(
                "gpu_lost",
                Component::Gpu(GpuUuid(10)),
                0,
            ),
            "gpu gpu10 950 infra: requeue avoid",
        ),
        (
            "24: left-over memory",
            Play {
                tasks: vec![TaskShape {
                    held_before_mib: 10_240,
                    ..SHAPE
                }],
                ..Play::of(&[python(
                    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
                )])
            },
            "gpu gpu10 900 infra: requeue avoid",
        ),
        (
            "own GPU memory",
            Play::of(&[python("torch.cuda.OutOfMemoryError: CUDA out of memory.")]),
            "user 900 user: requeue",
        ),
        (
            "27: damaged checkpoint",
            Play::of(&[python(
                "RuntimeError: PytorchStreamReader failed reading zip archive",
            )]),
            "storage 900 none: previous_checkpoint",
        ),
        (
            "29: host disk full",
            Play::of(&[python("OSError: [Errno 28] No space left on device")]),
            "host host1 900 infra: requeue avoid",
        ),
        (
            "29: quota",
            Play::of(&[python("OSError: [Errno 122] Disk quota exceeded")]),
            "user 900 user: requeue",
        ),
        (
            "30: storage",
            Play::of(&[python("OSError: [Errno 116] Stale file handle")]),
            "storage 900 infra: back_off",
        ),
        (
            "31: root file system",
            Play::of(&[python("OSError: [Errno 30] Read-only file system")]).found(
                "fs_readonly",
                Component::Host(HostId(1)),
                5,
            ),
            "host host1 950 infra: requeue avoid",
        ),
        (
            "32: memory limit",
            Play::of(&[Some(Exit {
                signal: Some(9),
                out_of_memory: true,
                memory: Some(MemoryUsage {
                    limit_bytes: 1 << 30,
                    peak_bytes: 1 << 30,
                }),
                ..Exit::default()
            })]),
            "user 900 user: requeue",
        ),
        (
            "33: host out of memory",
            Play::of(&[Some(Exit {
                signal: Some(9),
                sender: Some(SignalSender::Kernel),
                ..Exit::default()
            })]),
            "host host1 900 infra: requeue avoid",
        ),
        (
            "36: host rebooted",
            Play {
                gone: Some(HostId(1)),
                ..Play::of(&[None])
            },
            "host host1 950 infra: requeue avoid",
        ),
        (
            "38: cut off",
            Play::of(&[
                code(0, ""),
                Some(Exit {
                    lease_expired: true,
                    signal: Some(9),
                    ..Exit::default()
                }),
            ]),
            "host host2 950 infra: requeue avoid",
        ),
        (
            "47: preempted",
            Play {
                stop: Some(StopReason::Preempted),
                ..Play::of(&[signal(15, "")])
            }
            .xid(45, 10, 0),
            "scheduler 1000 none: requeue",
        ),
        (
            "cancelled",
            Play {
                stop: Some(StopReason::Cancelled),
                ..Play::of(&[signal(15, "")])
            },
            "scheduler 1000 none: ",
        ),
        (
            "48: free by contract",
            Play {
                meaning: Some(ExitMeaning::RetryFree),
                ..Play::of(&[code(42, "")])
            },
            "user 1000 none: requeue",
        ),
        (
            "48: final by contract",
            Play {
                meaning: Some(ExitMeaning::Fail),
                ..Play::of(&[code(42, "")])
            },
            "user 1000 user: no_retry",
        ),
        (
            "import error",
            Play::of(&[python("ModuleNotFoundError: No module named 'x'")]),
            "user 900 user: no_retry",
        ),
        (
            "import error on a lost mount",
            Play::of(&[python("ModuleNotFoundError: No module named 'x'")]).found(
                "nfs_hang",
                Component::Host(HostId(9)),
                5,
            ),
            "user 900 user: no_retry",
        ),
        (
            "command not found",
            Play::of(&[code(127, "")]),
            "user 900 user: no_retry",
        ),
        (
            "driver at the start",
            Play {
                tasks: vec![TaskShape {
                    ran_ms: 5_000,
                    ..SHAPE
                }],
                ..Play::of(&[python(
                    "CUDA driver version is insufficient for CUDA runtime version",
                )])
            },
            "host host1 900 infra: requeue avoid",
        ),
        (
            "could not start",
            Play::of(&[Some(Exit {
                start_error: Some("no such folder".to_owned()),
                ..Exit::default()
            })]),
            "host host1 700 infra: requeue avoid",
        ),
        (
            "no account",
            Play::of(&[Some(Exit {
                start_error: Some("NO_ACCOUNT: this host has no account `ada`".to_owned()),
                ..Exit::default()
            })]),
            "site 1000 none: requeue avoid",
        ),
        (
            "a program that is not there",
            Play::of(&[not_there()]),
            "user 700 none: requeue avoid",
        ),
        (
            "bus error",
            Play::of(&[signal(7, "")]),
            "user 700 user: requeue",
        ),
        (
            "bus error as a shell says it",
            Play::of(&[code(135, "")]),
            "user 700 user: requeue",
        ),
        (
            "segmentation fault",
            Play::of(&[signal(11, "")]),
            "user 600 user: requeue",
        ),
        (
            "segmentation fault in NCCL",
            Play {
                tasks: vec![TaskShape {
                    crashed_in_nccl: true,
                    ..SHAPE
                }],
                ..Play::of(&[signal(11, "")])
            },
            "software 800 infra: requeue",
        ),
        (
            "killed by an unknown process",
            Play::of(&[signal(9, "")]),
            "unknown 200 user: retry_elsewhere",
        ),
        (
            "adapter",
            Play::of(&[python("NET/IB : Got completion with error 12, opcode 0")]),
            "nic host1 500 infra: requeue",
        ),
        (
            "gang that did not find together",
            Play {
                tasks: vec![
                    SHAPE,
                    TaskShape {
                        has_begun: false,
                        ..SHAPE
                    },
                ],
                ..Play::of(&[
                    python("torch.distributed.elastic RendezvousTimeoutError"),
                    code(0, ""),
                ])
            },
            "host host2 700 infra: requeue avoid",
        ),
        (
            "shared memory",
            Play::of(&[python(
                "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error",
            )]),
            "user 700 user: requeue",
        ),
        (
            "no number",
            Play::of(&[python("ValueError: loss is nan")]),
            "user 300 user: requeue",
        ),
        (
            "hardware by its words alone",
            Play::of(&[python(
                "RuntimeError: CUDA error: uncorrectable ECC error encountered",
            )]),
            "gpu gpu10 900 infra: requeue avoid check_idle",
        ),
        (
            "nothing",
            Play::of(&[code(1, "")]),
            "unknown 200 user: retry_elsewhere",
        ),
    ] {
        assert_eq!(play.summary(), expected, "{name}");
    }
}

fn not_there() -> Option<Exit> {
    Some(Exit {
        start_error: Some("MISSING_FILE: starting `pyhton` failed: No such file".to_owned()),
        ..Exit::default()
    })
}

#[test]
fn a_missing_program_is_the_jobs_fault_until_several_users_miss_files_on_the_host() {
    let mut play = Play::of(&[not_there()]);
    play.history.users_missing = 1;
    assert_eq!(play.summary(), "user 700 none: requeue avoid");
    play.history.users_missing = 2;
    assert_eq!(play.summary(), "site 700 none: requeue avoid");
    // On two hosts it is certainly the job's, whatever others miss; another error on the first host does not
    // count.
    let exit = not_there().expect("an exit");
    play.history.attempts = vec![failed(&[7], Signature::of(&exit))];
    assert_eq!(play.summary(), "user 900 none: back_off");
    play.history.attempts = vec![failed(&[7], Signature::default())];
    assert_eq!(play.summary(), "site 700 none: requeue avoid");
}

#[test]
fn a_component_whose_name_contains_its_class_is_named_alone() {
    let attribution = Play::of(&[not_there()]).attribute().attribution;
    let named = |class, name| {
        Attribution {
            class,
            ..attribution.clone()
        }
        .named(name)
    };
    let paid = "70 % sure, not charged";
    assert_eq!(
        named(Class::Host, Some("host node04")),
        format!("host node04, {paid}")
    );
    assert_eq!(
        named(Class::Gpu, Some("GPU-1")),
        format!("gpu (GPU-1), {paid}")
    );
    assert_eq!(named(Class::User, None), format!("user, {paid}"));
}

#[test]
fn a_storage_fault_of_the_host_explains_an_apparent_user_error() {
    let mut play = Play::of(&[code(1, "FileNotFoundError: [Errno 2] /data/x")]);
    play = play.found("mount_missing", Component::Host(HostId(1)), 30);
    play.findings[0].severity = Severity::Degraded;
    assert_eq!(play.summary(), "storage host1 800 infra: requeue avoid");
}

#[test]
fn findings_count_from_ten_minutes_before_to_five_after() {
    let at = |before_s| {
        Play::of(&[code(1, "")])
            .xid(79, 10, before_s)
            .attribute()
            .attribution
            .class
    };
    assert_eq!(at(600), Class::Gpu);
    assert_eq!(at(601), Class::Unknown);
    assert_eq!(at(-300), Class::Gpu);
    assert_eq!(at(-301), Class::Unknown);
    // A fault of another host's GPU has no influence.
    let other = Play::of(&[code(1, "")]).xid(79, 990, 5);
    assert_eq!(other.attribute().attribution.class, Class::Unknown);
}

#[test]
fn the_dead_gpu_is_blamed_and_not_the_peers_that_miss_it() {
    let ends = [
        code(1, "ncclRemoteError"),
        code(1, "ncclRemoteError"),
        code(1, "x"),
    ];
    let play = Play::of(&ends).xid(74, 10, 9).xid(74, 20, 8).xid(79, 30, 7);
    assert_eq!(play.summary(), "gpu gpu30 950 infra: requeue avoid");
    // Without one, the first link error counts.
    let play = Play::of(&ends).xid(74, 10, 8).xid(74, 20, 9);
    assert_eq!(
        play.attribute().attribution.component,
        Some(Component::Gpu(GpuUuid(20)))
    );
    // Of simultaneous findings, the higher rank; of others, the earlier.
    let together = Play::of(&ends).xid(119, 10, 9).xid(95, 20, 6);
    assert_eq!(
        together.attribute().attribution.component,
        Some(Component::Gpu(GpuUuid(20)))
    );
    let apart = Play::of(&ends).xid(119, 10, 90).xid(95, 20, 6);
    assert_eq!(
        apart.attribute().attribution.component,
        Some(Component::Gpu(GpuUuid(10)))
    );
}

/// One rank breaks, 63 report that their peer is gone.
#[test]
fn only_the_first_error_of_a_gang_is_blamed() {
    let mut ends = vec![code(1, "NCCL WARN call to recv failed: remote process exited"); 64];
    ends[17] = signal(11, "");
    let play = Play::of(&ends);
    let found = play.attribute();
    assert_eq!(
        (found.attribution.class, found.attribution.step),
        (Class::User, Step::ConclusiveEnd)
    );
    assert_eq!(found.suspicions, []);
    assert!(found.attribution.evidence.contains(&"signal 11".to_owned()));
    // By time, where tasks report one.
    let late = code(1, "KeyError: 'a'\nraised at 900");
    let early = code(
        1,
        "torch.cuda.OutOfMemoryError: CUDA out of memory\nraised at 800",
    );
    assert_eq!(Play::of(&[late, early]).summary(), "user 900 user: requeue");
}

#[test]
fn a_hang_suspects_the_outlier_and_blocks_none() {
    let hang = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)";
    let mut play = Play::of(&vec![signal(6, hang); 4]);
    for (task, step) in play.tasks.iter_mut().zip([9, 9, 7, 9]) {
        task.step = Some(step);
    }
    assert_eq!(play.summary(), "unknown host3 300 user: retry_elsewhere");
    let milli: Vec<u32> = play
        .attribute()
        .suspicions
        .iter()
        .map(|it| it.milli)
        .collect();
    assert_eq!(milli, [100, 100, 1_000, 100]);
    // By utilization, where no task counts operations.
    let mut play = Play::of(&vec![signal(6, hang); 3]);
    for (task, busy) in play.tasks.iter_mut().zip([1_000, 0, 1_000]) {
        task.busy_permille = Some(busy);
    }
    assert_eq!(
        play.attribute().attribution.component,
        Some(Component::Host(HostId(2)))
    );
    let outcome = Play::of(&vec![signal(6, hang); 3]).attribute();
    assert_eq!(
        (outcome.attribution.component, outcome.suspicions.len()),
        (None, 0)
    );
}

fn failed(hosts: &[u32], signature: Signature) -> PastFailure {
    PastFailure {
        hosts: hosts.iter().map(|host| HostId(*host)).collect(),
        signature,
    }
}

#[test]
fn a_job_that_fails_everywhere_is_to_blame_itself() {
    let exit = signal(11, "").expect("an exit");
    let same = Signature::of(&exit);
    let mut play = Play::of(&[Some(exit)]);
    play.history.attempts = vec![failed(&[7, 8], same)];
    assert_eq!(play.summary(), "user 900 user: back_off");
    assert!(play.attribute().takes_back);
    // On the same hosts, or with another signature, nothing is proven.
    for past in [
        failed(&[1, 8], same),
        failed(
            &[7],
            Signature {
                signal: Some(7),
                ..same
            },
        ),
    ] {
        play.history.attempts = vec![past];
        assert_eq!(play.attribute().attribution.class, Class::User);
        assert!(!play.attribute().takes_back);
    }
    // Hard evidence takes precedence.
    play.history.attempts = vec![failed(&[7, 8], same)];
    assert_eq!(
        play.xid(79, 10, 1).attribute().attribution.class,
        Class::Gpu
    );
}

fn ambiguous(job: u64, user: &str, hours_ago: u64) -> UnexplainedFailure {
    UnexplainedFailure {
        job: JobId(job),
        user: user.to_owned(),
        at: TimeMs(NOW.0 - hours_ago * 3_600_000),
        cause: None,
        runs_elsewhere: true,
    }
}

#[test]
fn a_gpu_on_which_two_users_fail_is_blocked_for_a_check() {
    let with = |past: Vec<UnexplainedFailure>, runs_elsewhere: bool| {
        let mut play = Play::of(&[code(
            1,
            "RuntimeError: CUDA error: unspecified launch failure",
        )]);
        play.history.gpus.insert(GpuUuid(10), past);
        play.history.runs_elsewhere = runs_elsewhere;
        play.summary()
    };
    assert_eq!(
        with(vec![ambiguous(2, "bob", 3)], true),
        "gpu gpu10 700 infra: requeue avoid block_for_check"
    );
    // One user's jobs, an old failure, or programs that succeed nowhere.
    let queued = "gpu gpu10 400 user: retry_elsewhere check_idle";
    assert_eq!(with(vec![ambiguous(2, "ann", 3)], true), queued);
    assert_eq!(with(vec![ambiguous(2, "bob", 3)], false), queued);
    assert_eq!(
        with(vec![ambiguous(2, "bob", 25)], true),
        "user 600 user: requeue"
    );
    assert_eq!(
        with(vec![ambiguous(1, "ann", 3)], true),
        "user 600 user: requeue"
    );
}

#[test]
fn the_history_rule_sets_the_number_of_jobs_and_the_window_that_blame_a_gpu() {
    let mut play = Play::of(&[code(1, "")]);
    let past = vec![ambiguous(2, "bob", 3), ambiguous(3, "eve", 9)];
    play.history.gpus.insert(GpuUuid(10), past);
    play.history.runs_elsewhere = true;
    let attributed = |to: &str| {
        let rules = RuleSet::edited("history", "2 in 24h", to);
        let found = play.attribute_by(&rules).attribution;
        (
            found.class,
            found.evidence.first().cloned().unwrap_or_default(),
        )
    };
    let gpu = GpuUuid(10);
    let three = format!("3 jobs of 3 users failed on {gpu} within 24 h");
    assert_eq!(attributed("3 in 24h"), (Class::Gpu, three));
    assert_eq!(attributed("4 in 24h").0, Class::Unknown);
    let two = format!("2 jobs of 2 users failed on {gpu} within 4 h");
    assert_eq!(attributed("2 in 4h"), (Class::Gpu, two));
    assert_eq!(attributed("2 in 2h").0, Class::Unknown);
}

#[test]
fn a_certain_user_error_is_not_attributed_to_a_gpu_with_earlier_failures() {
    let mut play = Play::of(&[code(1, "KeyError: 'a'")]);
    play.history
        .gpus
        .insert(GpuUuid(10), vec![ambiguous(2, "bob", 3)]);
    play.history.runs_elsewhere = true;
    assert_eq!(play.summary(), "user 900 user: no_retry");
}

#[test]
fn an_image_that_fails_for_many_is_software() {
    let mut play = Play::of(&[signal(6, "")]);
    play.history.image = ImageSpread { jobs: 3, hosts: 3 };
    assert_eq!(play.summary(), "software 600 user: back_off");
    play.history.image = ImageSpread { jobs: 3, hosts: 2 };
    assert_eq!(play.attribute().attribution.class, Class::Unknown);
}

#[test]
fn nan_losses_on_one_gpu_make_it_suspect() {
    let mut play = Play::of(&[code(1, "ValueError: loss is nan")]);
    let wrong = |job, user| UnexplainedFailure {
        cause: Some(muster_model::evidence::Cause::Numbers),
        ..ambiguous(job, user, 2)
    };
    play.history.gpus.insert(GpuUuid(10), vec![wrong(2, "bob")]);
    assert_eq!(play.summary(), "user 300 user: requeue");
    play.history
        .gpus
        .insert(GpuUuid(10), vec![wrong(2, "bob"), wrong(3, "eve")]);
    assert_eq!(
        play.summary(),
        "gpu gpu10 500 infra: requeue avoid check_idle"
    );
}

#[test]
fn one_retry_on_other_hosts_decides_an_open_attribution() {
    let hosts =
        |hosts: &[u32]| -> BTreeSet<HostId> { hosts.iter().map(|it| HostId(*it)).collect() };
    let first = hosts(&[1, 2, 3, 4]);
    assert!(suspects(&first, &hosts(&[4, 5]), None).is_empty());
    let suspicions = suspects(&first, &hosts(&[5, 6, 7, 8]), Some(HostId(2)));
    let milli: Vec<u32> = suspicions.iter().map(|it| it.milli).collect();
    assert_eq!(milli, [250, 1_000, 250, 250]);
    let mut play = Play::of(&[code(1, "")]);
    play.history.was_retried_elsewhere = true;
    assert_eq!(play.summary(), "unknown 200 user: back_off");
}

#[test]
fn evidence_is_bounded() {
    let mut play = Play::of(&[code(1, "")]);
    for _ in 0..50 {
        play = play.xid(95, 10, 3);
    }
    assert_eq!(
        play.attribute().attribution.evidence.len(),
        EVIDENCE_LINES_MAX
    );
}
