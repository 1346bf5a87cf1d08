//! Execution of a script with a report of every step.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use muster_harness::BEGIN;
use muster_model::time::TimeMs;
use muster_planner::{Explanation, Remedy};
use serde::Serialize;
use serde_json::{Value, json};

use crate::scenario::cuts;
use crate::scenario::engine::{Driver, Entry, Failure, FailureAt};
use crate::scenario::picture::{Line, Picture, difference, duration_text};
use crate::scenario::script::{Script, Shown, Statement, Step};

/// Result of a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepReport {
    /// Line of the script.
    pub line: u32,
    /// The statement.
    pub statement: String,
    /// Every applied command, with its revision and result.
    pub commands: Vec<Value>,
    /// Changes or query results, as text.
    pub result: Vec<String>,
    /// The whole visible state after the step.
    pub state: Picture,
}

/// Result of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// All steps, up to the one that aborted the run, if any.
    pub steps: Vec<StepReport>,
    /// Failures; empty on success.
    pub failures: Vec<FailureAt>,
    /// Number of runs with a leader change between two commands, if the script asked for them.
    pub cuts: usize,
}

impl Outcome {
    /// The result of every step, by its line.
    #[must_use]
    pub fn results(&self) -> BTreeMap<u32, Vec<String>> {
        let steps = self.steps.iter();
        steps.map(|step| (step.line, step.result.clone())).collect()
    }
}

/// Runs a script: executes every step with an audit after each command; then compares with the recorded
/// results, checks that the state can be rebuilt, and tries every leader crash if the script asks for it.
#[must_use]
pub fn run(script: &Script) -> Outcome {
    let mut outcome = Outcome::default();
    let last_line = script.steps.last().map_or(1, |step| step.line);
    match Run::new(None) {
        Err(failure) => outcome.fail(1, failure),
        Ok(mut run) => {
            let whole = run.steps(script, &mut outcome);
            let restarted = run.driver.clone().restart();
            if let Err(failure) = restarted {
                outcome.fail(last_line, failure);
            }
            if script.is_recorded() {
                compare(script, &mut outcome);
            }
            let asks = |step: &Step| step.statement == Statement::EveryCut;
            if let Some(step) = script.steps.iter().find(|step| asks(step))
                && whole
            {
                cuts::try_all(script, step.line, &run.trace, &mut outcome);
            }
        }
    }
    outcome
}

impl Outcome {
    pub(crate) fn fail(&mut self, line: u32, failure: Failure) {
        self.failures.push(FailureAt { line, failure });
    }
}

/// Length of the log and the lines of the picture after a step.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub(crate) commands: usize,
    pub(crate) lines: Vec<Line>,
}

impl Mark {
    /// The part of the lines that must not depend on the leader.
    pub(crate) fn lines_without_leader(&self) -> Vec<String> {
        without_leader(&self.lines)
    }
}

fn without_leader(lines: &[Line]) -> Vec<String> {
    let texts = lines.iter().map(|line| line.text.clone());
    texts.filter(|text| !text.starts_with("leader: ")).collect()
}

/// Data of a run for comparison: its steps, and its log as text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace {
    pub(crate) marks: Vec<Mark>,
    pub(crate) commands: Vec<String>,
}

/// A run in progress.
pub(crate) struct Run {
    pub(crate) driver: Driver,
    pub(crate) trace: Trace,
    lines: Vec<Line>,
}

impl Run {
    pub(crate) fn new(cut_after: Option<usize>) -> Result<Self, Failure> {
        let driver = Driver::new(cut_after)?;
        let mut run = Self {
            driver,
            trace: Trace::default(),
            lines: Vec::new(),
        };
        run.lines = run.picture().lines();
        Ok(run)
    }

    /// Lines visible now, without the leader.
    pub(crate) fn lines_after(&self) -> Vec<String> {
        without_leader(&self.picture().lines())
    }

    fn picture(&self) -> Picture {
        let engine = &self.driver.engine;
        Picture::of(&engine.state, BEGIN, engine.now)
    }

    /// Executes all steps; false if one aborted the run.
    fn steps(&mut self, script: &Script, outcome: &mut Outcome) -> bool {
        for step in &script.steps {
            let begun = self.driver.log().len();
            let refusals = std::mem::take(&mut self.driver.refusals);
            let checks = matches!(step.statement, Statement::Expect(_));
            if checks {
                self.driver.refusals = refusals;
            }
            let done = self.guarded_step(step);
            let broken = !checks && done.is_err();
            let result = done.unwrap_or_else(|failure| {
                outcome.fail(step.line, failure);
                Vec::new()
            });
            let log = self.driver.log();
            outcome.steps.push(StepReport {
                line: step.line,
                statement: step.text.clone(),
                commands: log[begun..].iter().map(entry_json).collect(),
                result,
                state: self.picture(),
            });
            self.trace.marks.push(Mark {
                commands: log.len(),
                lines: self.picture().lines(),
            });
            if broken {
                return false;
            }
        }
        let log = self.driver.log().iter();
        self.trace.commands = log.map(|entry| format!("{:?}", entry.command)).collect();
        true
    }

    /// Executes one step; a panic of the engine is reported as a failure.
    pub(crate) fn guarded_step(&mut self, step: &Step) -> Result<Vec<String>, Failure> {
        // The run ends with a panic, so only its report is read afterwards.
        catch_unwind(AssertUnwindSafe(|| self.step(step))).unwrap_or_else(|panic| {
            let message = panic.downcast_ref::<String>().map(String::as_str);
            let message = message.or_else(|| panic.downcast_ref::<&str>().copied());
            Err(Failure::Panicked(
                message.unwrap_or("no message").to_owned(),
            ))
        })
    }

    /// Executes one step; returns its changes or query results.
    fn step(&mut self, step: &Step) -> Result<Vec<String>, Failure> {
        match &step.statement {
            Statement::Expect(expectation) => self.driver.check(expectation).map(|()| Vec::new()),
            Statement::Show(shown) => Ok(self.show(shown)),
            Statement::Explain { job } => self.explain(job),
            Statement::Repeat { rounds, every_ms } => {
                for round in rounds {
                    for step in round {
                        self.within_round(step)?;
                    }
                    let span_ms = *every_ms;
                    self.driver.carry_out(&Statement::Advance { span_ms })?;
                }
                Ok(self.changes())
            }
            statement => {
                self.driver.carry_out(statement)?;
                let refusals = self.driver.refusals.iter();
                let mut result: Vec<String> =
                    refusals.map(|why| format!("refused: {why}")).collect();
                result.extend(self.changes());
                Ok(result)
            }
        }
    }

    fn within_round(&mut self, step: &Step) -> Result<(), Failure> {
        match &step.statement {
            Statement::Expect(expectation) => self.driver.check(expectation),
            statement => self.driver.carry_out(statement),
        }
    }

    /// Changes since the lines were last taken.
    fn changes(&mut self) -> Vec<String> {
        let lines = self.picture().lines();
        let changes = difference(&self.lines, &lines);
        self.lines = lines;
        changes
    }

    fn show(&self, shown: &Shown) -> Vec<String> {
        let picture = self.picture();
        let mut result = Vec::new();
        if *shown == Shown::All {
            result.push(format!("at {}", duration_text(picture.at_ms)));
        }
        if matches!(shown, Shown::All | Shown::Hosts) {
            result.extend(
                picture
                    .hosts
                    .iter()
                    .map(crate::scenario::picture::HostPicture::map),
            );
        }
        let about = |text: &str| match shown {
            Shown::All => !text.starts_with("host ") && !text.starts_with("gpu "),
            Shown::Hosts => false,
            Shown::Queues => text.starts_with("queue "),
            Shown::Jobs => !["host ", "gpu ", "queue ", "leader: "]
                .iter()
                .any(|prefix| text.starts_with(prefix)),
            Shown::Job(name) => {
                text.starts_with(&format!("{name}:")) || text.starts_with(&format!("{name}/"))
            }
        };
        let lines = picture.lines().into_iter().map(|line| line.text);
        result.extend(lines.filter(|text| about(text)));
        result
    }

    fn explain(&self, name: &str) -> Result<Vec<String>, Failure> {
        let engine = &self.driver.engine;
        let job = self.driver.job(name)?;
        let explanation = muster_planner::explain(&engine.state, job, engine.now)
            .ok_or_else(|| Failure::Unknown(format!("there is no job `{name}`")))?;
        let picture = self.picture();
        let waiting = picture.jobs.iter().find(|job| job.name == name);
        let waiting = waiting.and_then(|job| job.waiting.as_ref());
        let reason = match (waiting, &explanation.blocker) {
            (Some(waiting), _) => waiting.text.clone(),
            (None, Some(blocker)) => blocker.to_string(),
            (None, None) => "no waiting unit".to_owned(),
        };
        let mut lines = vec![format!("because: {reason}"), ahead_text(&explanation)];
        lines.extend(explanation.classes.iter().map(|class| {
            let model = if class.model.is_empty() {
                "none"
            } else {
                &class.model
            };
            format!(
                "GPUs of model {model}: {} free, {} reserved, {} held, {} bad, {} blocked, {} silent, on {} hosts",
                class.gpus_free,
                class.gpus_reserved,
                class.gpus_held,
                class.gpus_faulted,
                class.gpus_blocked,
                class.gpus_silent,
                class.hosts
            )
        }));
        lines.extend(explanation.cells.iter().map(|cells| {
            format!(
                "cells of kind {}: {} of {} bound; {} free, {} in use, {} unhealthy",
                cells.kind,
                cells.bound,
                cells.guaranteed,
                cells.free,
                cells.in_use,
                cells.unhealthy
            )
        }));
        let missing = explanation.cells_missing.iter();
        lines.extend(missing.map(|kind| format!("cells missing: {}", kind.arithmetic)));
        lines.extend(remedy_text(&explanation, engine.now));
        lines.extend(explanation.start.map(|start| {
            let at = crate::scenario::picture::instant_text(start.at, engine.now);
            let basis = format!("{:?}", start.basis).to_lowercase();
            format!("start: {at} ({basis})")
        }));
        Ok(lines)
    }
}

fn ahead_text(explanation: &Explanation) -> String {
    let position = explanation.position.unwrap_or_default();
    format!(
        "ahead: {} jobs of its queue, {} of all",
        position.ahead_in_queue, position.ahead
    )
}

/// The remedy, and whether it suffices; times are given as spans.
fn remedy_text(explanation: &Explanation, now: TimeMs) -> Option<String> {
    let remedy = explanation.remedy.as_ref()?;
    let text = match remedy {
        Remedy::Wait { until } => {
            format!(
                "wait, until {}",
                crate::scenario::picture::instant_text(*until, now)
            )
        }
        remedy => remedy.to_string(),
    };
    let enough = if explanation.remedy_is_enough {
        "is enough"
    } else {
        "is needed"
    };
    Some(format!("remedy: {text} ({enough})"))
}

fn entry_json(entry: &Entry) -> Value {
    let result = match &entry.result {
        Ok(answer) => json!({ "done": format!("{answer:?}") }),
        Err(rejection) => json!({ "refused": rejection.to_string() }),
    };
    json!({
        "revision": entry.revision,
        "at_ms": entry.time.since(BEGIN),
        "command": serde_json::to_value(&entry.command).unwrap_or(Value::Null),
        "result": result,
    })
}

/// Compares every step's result with the recorded one.
fn compare(script: &Script, outcome: &mut Outcome) {
    let results = outcome.results();
    for step in &script.steps {
        let Some(found) = results.get(&step.line) else {
            continue;
        };
        let found: Vec<&str> = found.iter().map(|line| line.trim_end()).collect();
        if found != step.recorded {
            let failure = Failure::Recorded(cuts::both(&step.recorded, &found));
            outcome.fail(step.line, failure);
        }
    }
}
