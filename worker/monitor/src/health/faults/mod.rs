//! Scripted tests of the fault catalogue: readings of a worker pass through its rules, the replicated
//! state, the leader's timers and the planner, in virtual time. The output lists the effects of each
//! injection with their delays.
//!
//! One script per group of faults (`testscripts/faults`); `within`, `never` and `at_most` assert its
//! limits, also when the output is regenerated.

mod show;
mod world;

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

use muster_harness::WorkOutcome;
use world::World;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

#[derive(goldenscript::Command)]
enum Command {
    /// Registers hosts, by default with eight GPUs each; their numbers count on from 1. They may lie in
    /// cells (`pod1/rack1`, all at the same depth) and run a given driver release.
    Hosts {
        count: u32,
        #[arg(key)]
        gpus: Option<u32>,
        #[arg(key)]
        within: Option<String>,
        #[arg(key)]
        driver: Option<String>,
    },
    /// `count` jobs of a user that fail without a message on every host, with two retries each; prints
    /// their course.
    Storm {
        count: u32,
        user: String,
    },
    /// Rounds of one task per host, each of a job that takes all CPUs of the host: every fourth task on one
    /// host dies by a segmentation fault, until the host is excluded from placement. Prints the number of
    /// starts, and how often other hosts were excluded.
    Lemon {
        host: u32,
        starts: u32,
    },
    /// Submits a job; it is placed by the planner and runs until it is stopped.
    Run {
        name: String,
        #[arg(key)]
        user: Option<String>,
        #[arg(key)]
        tasks: Option<u32>,
        #[arg(key)]
        gpus: Option<u32>,
        #[arg(key, optional)]
        gang: bool,
        #[arg(key)]
        retries: Option<u32>,
        #[arg(key, optional)]
        preemptible: bool,
    },
    /// A line of a host's kernel log.
    Line {
        host: u32,
        text: String,
    },
    /// A line in a host's kernel log, written by a process.
    Forged {
        host: u32,
        text: String,
    },
    /// A reading of a host, `HOST/GPU` or `HOST:PORT`, repeated every 30 s from now on.
    Reading {
        place: String,
        rule: String,
        #[arg(key, many, optional)]
        values: BTreeMap<String, i64>,
    },
    /// A single reading.
    Once {
        place: String,
        rule: String,
        #[arg(key, many, optional)]
        values: BTreeMap<String, i64>,
    },
    /// A signal of the GPU backend; `healthy` clears it.
    Signal {
        gpu: String,
        word: String,
    },
    /// A check of the site ends with an exit code.
    Check {
        host: u32,
        name: String,
        code: i32,
    },
    /// A task of a job ends.
    Exit {
        job: String,
        task: u32,
        #[arg(key)]
        code: Option<i32>,
        #[arg(key)]
        signal: Option<i32>,
        #[arg(key)]
        says: Option<String>,
        #[arg(key, optional)]
        oom: bool,
        #[arg(key, optional)]
        by_kernel: bool,
    },
    /// A job commits a checkpoint.
    Save {
        job: String,
    },
    /// Time passes: `500ms`, `15s`, `4m`, `12h`, `2d`.
    Wait {
        span: String,
    },
    /// These hosts send no more heartbeats.
    Silent {
        hosts: Vec<u32>,
    },
    /// These hosts send heartbeats again.
    Heartbeats {
        hosts: Vec<u32>,
    },
    /// A host boots.
    Boot {
        host: u32,
    },
    /// Result of repairs and checks from now on, 60 s after their start: `pass`, `fail`, or `hang` forever.
    Work {
        outcome: String,
    },
    /// An operator blocks a host or GPU, or unblocks it.
    Block {
        place: String,
    },
    Unblock {
        place: String,
    },
    /// Sets these default rules to observe mode from now on.
    Observe {
        rules: Vec<String>,
    },
    /// Another replica becomes leader, with the replicated heartbeat times.
    Lead,
    /// Prints the health state.
    Health,
    /// Asserts that an event with this in its line happened within this time after the last injection.
    Within {
        span: String,
        text: String,
    },
    /// Asserts that no event with this in its line happened since the last injection.
    Never {
        text: String,
    },
    /// Asserts that at most this many events with this in their line happened since the last injection.
    AtMost {
        times: usize,
        text: String,
    },
}

struct Faults(World);

impl goldenscript::Runner for Faults {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &goldenscript::Context) -> Result<String> {
        let world = &mut self.0;
        let is_question = matches!(
            command,
            Command::Health
                | Command::Within { .. }
                | Command::Never { .. }
                | Command::AtMost { .. }
                | Command::Wait { .. }
        );
        if !is_question {
            world.inject();
        }
        match command {
            Command::Hosts {
                count,
                gpus,
                within,
                driver,
            } => {
                let (within, driver) = (within.as_deref(), driver.as_deref());
                world.add_hosts(*count, gpus.unwrap_or(8), (within, driver))?;
            }
            Command::Storm { count, user } => return world.storm(*count, user),
            Command::Lemon { host, starts } => return world.lemon(*host, *starts),
            Command::Run {
                name,
                user,
                tasks,
                gpus,
                gang,
                retries,
                preemptible,
            } => {
                let (tasks, gpus) = (tasks.unwrap_or(1), gpus.unwrap_or(1));
                world.submit(name, |spec| {
                    spec.gang = *gang;
                    spec.groups[0].count = tasks;
                    spec.groups[0].resources.gpus = gpus;
                    spec.retry.retries_max = retries.unwrap_or(0);
                    spec.scheduling.opportunistic = *preemptible;
                    if let Some(user) = user {
                        spec.user.clone_from(user);
                    }
                });
            }
            Command::Line { host, text } => world.log(*host, world::KERNEL, text)?,
            Command::Forged { host, text } => world.log(*host, world::USER, text)?,
            Command::Reading {
                place,
                rule,
                values,
            } => world.read(place, rule, values, true)?,
            Command::Once {
                place,
                rule,
                values,
            } => world.read(place, rule, values, false)?,
            Command::Signal { gpu, word } => world.signal(gpu, word)?,
            Command::Check { host, name, code } => world.check(*host, name, *code)?,
            Command::Exit {
                job,
                task,
                code,
                signal,
                says,
                oom,
                by_kernel,
            } => world.exit(
                job,
                *task,
                world::End {
                    code: *code,
                    signal: *signal,
                    evidence: says.clone().unwrap_or_default(),
                    oom: *oom,
                    by_kernel: *by_kernel,
                },
            )?,
            Command::Save { job } => world.save(job)?,
            Command::Wait { span } => world.wait(milliseconds(span)?),
            Command::Silent { hosts } => world.set_heartbeats(hosts, false),
            Command::Heartbeats { hosts } => world.set_heartbeats(hosts, true),
            Command::Boot { host } => world.boot(*host)?,
            Command::Work { outcome } => {
                world.led.outcome = match outcome.as_str() {
                    "pass" => WorkOutcome::Passes,
                    "fail" => WorkOutcome::Fails,
                    "hang" => WorkOutcome::Hangs,
                    _ => return Err("a repair or check must pass, fail or hang".into()),
                }
            }
            Command::Block { place } => world.block(place)?,
            Command::Unblock { place } => world.unblock(place)?,
            Command::Observe { rules } => world.observe(rules)?,
            Command::Lead => world.change_leader(),
            Command::Health => return Ok(world.health()),
            Command::Within { span, text } => world.require_within(milliseconds(span)?, text)?,
            Command::Never { text } => world.require_at_most(0, text)?,
            Command::AtMost { times, text } => world.require_at_most(*times, text)?,
        }
        world.settle();
        Ok(world.take_lines())
    }
}

/// Parses `500ms`, `15s`, `4m`, `12h`, `2d` into milliseconds.
fn milliseconds(span: &str) -> Result<u64> {
    let digits = span.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &span[digits.len()..] {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        other => return Err(format!("unknown unit of time `{other}`").into()),
    };
    Ok(digits.parse::<u64>()? * unit)
}

#[test]
fn every_fault_has_its_reaction_in_its_time() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testscripts/faults");
    let mut scripts: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    scripts.sort();
    assert!(!scripts.is_empty());
    let mut failed = String::new();
    for script in scripts {
        if let Err(error) = goldenscript::run(&mut Faults(World::new()), &script) {
            failed.push_str(&format!("{}: {error}\n", script.display()));
        }
    }
    assert!(failed.is_empty(), "{failed}");
}

/// The table in the documentation names an existing test or script for every fault of the catalogue.
#[test]
fn every_fault_is_shown_by_something_that_exists() {
    const FAULTS: u32 = 63;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap();
    let text = std::fs::read_to_string(root.join("docs/faults.md")).unwrap();
    let sources = sources(root);
    for number in 1..=FAULTS {
        let begin = format!("| {number} | ");
        let row = text.lines().find(|line| line.starts_with(&begin));
        let row = row.unwrap_or_else(|| panic!("no row for fault {number}"));
        let (_, shown) = row.trim_end_matches(" |").rsplit_once(" | ").unwrap();
        for (name, is_name) in shown.split('`').zip([false, true].into_iter().cycle()) {
            let is_trial = shown.contains("trial") && name.contains('-');
            let script = root.join("worker/monitor/testscripts/faults").join(name);
            let reactor = root.join("core/harness/testscripts/reactor").join(name);
            let exists = is_trial && sources.contains(name)
                || script.is_file()
                || reactor.is_file()
                || sources.contains(&format!("fn {name}("));
            assert!(!is_name || exists, "fault {number}: there is no `{name}`");
        }
    }
}

/// All Rust sources of the repository, in one text.
fn sources(root: &Path) -> String {
    let mut text = String::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().flatten() {
            let path = entry.path();
            let name = entry.file_name();
            if path.is_dir() && name != "target" && !name.to_string_lossy().starts_with('.') {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                text.push_str(&std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    text
}
