//! The `expect` statement.

use crate::scenario::script::arguments::Arguments;
use crate::scenario::script::statement::{Expectation, ExpectedPhase};
use crate::scenario::script::{ScriptError, values};

/// Phases of a unit that may be expected, apart from `waiting`.
const PHASES: [&str; 6] = [
    "placed",
    "running",
    "stopping",
    "succeeded",
    "failed",
    "cancelled",
];

pub(crate) fn parse(arguments: &mut Arguments) -> Result<Expectation, ScriptError> {
    let kind = arguments.required("what is expected")?;
    match kind.text.as_str() {
        phase if PHASES.contains(&phase) => phase_of(phase, arguments),
        "waiting" => waiting(arguments),
        "claim" => Ok(Expectation::Claim {
            job: arguments.value("the job", values::text)?,
            victims: arguments.option("victims", values::list_or_none)?,
        }),
        "no-claim" => Ok(Expectation::NoClaim {
            job: arguments.value("the job", values::text)?,
        }),
        "free" => Ok(Expectation::Free {
            gpus: arguments.value("the number of free GPUs", values::large_count)?,
            on: arguments.option("on", values::text)?,
        }),
        "used" => Ok(Expectation::Used {
            queue: arguments.value("the queue", values::text)?,
            gpus: arguments.value("the number of GPUs", values::large_count)?,
        }),
        "together" => Ok(Expectation::Together {
            job: arguments.value("the job", values::text)?,
            level: arguments.value("the level of cells", values::text)?,
        }),
        "refused" => Ok(Expectation::Refused {
            because: arguments.rest(),
        }),
        other => Err(arguments.fail(kind.column, &format!("unknown expectation `{other}`"))),
    }
}

fn phase_of(phase: &str, arguments: &mut Arguments) -> Result<Expectation, ScriptError> {
    Ok(Expectation::Phase(ExpectedPhase {
        phase: phase.to_owned(),
        job: arguments.value("the job", values::text)?,
        units: arguments.option("units", values::large_count)?,
        on: arguments.option("on", values::list)?,
        hosts: arguments.option("hosts", values::large_count)?,
        gpus: arguments.option("gpus", values::gpus)?,
        tasks: arguments.option("tasks", values::large_count)?,
        allocation_basis: arguments.option("basis", values::allocation_basis)?,
    }))
}

fn waiting(arguments: &mut Arguments) -> Result<Expectation, ScriptError> {
    let job = arguments.value("the job", values::text)?;
    let because = if arguments.is_empty() {
        None
    } else {
        let mark = arguments.required("`because`")?;
        if mark.text != "because" {
            let message = format!("expected `because`, found `{}`", mark.text);
            return Err(arguments.fail(mark.column, &message));
        }
        let reason = arguments.rest();
        Some(reason.ok_or_else(|| arguments.fail(mark.column, "the reason is missing"))?)
    };
    Ok(Expectation::Waiting { job, because })
}
