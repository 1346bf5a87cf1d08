//! Leader crash between any two commands: the outcome must be the same.

use crate::scenario::engine::Failure;
use crate::scenario::run::{Outcome, Run, Trace};
use crate::scenario::script::{Script, Statement};

/// Runs a script once for every command of its log, each time with a new leader right after that command,
/// and compares the visible result after every later step.
pub(crate) fn try_all(script: &Script, line: u32, trace: &Trace, outcome: &mut Outcome) {
    for cut_after in 1..=trace.commands.len() {
        outcome.cuts += 1;
        if let Err(failure) = try_one(script, cut_after, trace) {
            outcome.fail(line, failure);
            return;
        }
    }
}

fn try_one(script: &Script, cut_after: usize, trace: &Trace) -> Result<(), Failure> {
    let mut run = Run::new(Some(cut_after))?;
    let mut lines = Vec::new();
    for (step, mark) in script.steps.iter().zip(&trace.marks) {
        // Expectations were checked in the run without a crash; the state that they check is compared
        // below.
        if matches!(step.statement, Statement::Expect(_)) {
            continue;
        }
        run.guarded_step(step)?;
        if mark.commands < cut_after || !run.driver.planner_auto {
            continue;
        }
        lines = run.lines_after();
        same(cut_after, trace, &mark.lines_without_leader(), &lines)?;
    }
    match trace.marks.last() {
        Some(mark) if lines.is_empty() => {
            let lines = run.lines_after();
            same(cut_after, trace, &mark.lines_without_leader(), &lines)
        }
        _ => Ok(()),
    }
}

fn same(
    cut_after: usize,
    trace: &Trace,
    expected: &[String],
    found: &[String],
) -> Result<(), Failure> {
    if expected == found {
        return Ok(());
    }
    let after = trace.commands.get(cut_after - 1).cloned();
    let found: Vec<&str> = found.iter().map(String::as_str).collect();
    Err(Failure::Cut {
        command: cut_after,
        after: after.unwrap_or_default(),
        difference: both(expected, &found),
    })
}

/// Lines that occur in only one text: `-` for the expected, `+` for the found one.
pub(crate) fn both(expected: &[String], found: &[&str]) -> String {
    let missing = expected
        .iter()
        .filter(|line| !found.contains(&line.as_str()));
    let surplus = found
        .iter()
        .filter(|line| !expected.iter().any(|known| known == **line));
    let mut lines: Vec<String> = missing.map(|line| format!("  - {line}")).collect();
    lines.extend(surplus.map(|line| format!("  + {line}")));
    if lines.is_empty() {
        lines.push("  the same lines in another order".to_owned());
    }
    lines.join("\n")
}
