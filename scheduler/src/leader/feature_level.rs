//! Feature level of a group with mixed builds: only commands that all replicas can read are proposed.
//!
//! A replica reports the newest command format that it reads in its answers to pushes of heartbeat times; the
//! leader takes the minimum of all voters and includes it in its next pushes, so that a later leader need not
//! ask again. The level never falls: once a command of a format is in the log, every replica has to read it.
//! User requests above the level are refused; worker reports above it are stored without the details.

use muster_model::command::{CheckpointCommand, Command, HostCommand, TaskOutcome};
use muster_proto::log::format_of;
use muster_proto::status;
use tonic::{Code, Status};

/// Reason of a refusal because some replica could not read the command.
pub(crate) const FEATURE_NOT_YET: &str = "FEATURE_NOT_YET";
/// Format assumed for a replica that does not report one.
pub(crate) const FORMAT_UNSAID: u8 = 3;

/// Refuses a user's command that some replica could not read.
pub(crate) fn check(command: &Command, level: u8) -> Result<(), Status> {
    let needed = format_of(command);
    if needed <= level {
        return Ok(());
    }
    Err(status::error(
        Code::FailedPrecondition,
        FEATURE_NOT_YET,
        &format!(
            "command format {needed} is required, but not all replicas are known to read more than \
             {level}; upgrade all of them, or start those that are down"
        ),
        &[("needed", needed.to_string()), ("level", level.to_string())],
    ))
}

/// Reduces the leader's own commands to what readers of a level understand.
pub(super) fn lowered(commands: Vec<Command>, level: u8) -> Vec<Command> {
    let lower = |command: Command| match format_of(&command) <= level {
        true => Some(command),
        false => without_details(command).filter(|lowered| format_of(lowered) <= level),
    };
    commands.into_iter().filter_map(lower).collect()
}

/// The command without the additions of format 4; `None` if nothing else remains.
fn without_details(command: Command) -> Option<Command> {
    match command {
        Command::ReportTask(mut report) => {
            if let TaskOutcome::Exited(exit) = report.outcome {
                report.outcome = TaskOutcome::Exited(exit.without_details());
            }
            Some(Command::ReportTask(report))
        }
        Command::Host(HostCommand::SetHostHealth {
            leader,
            host,
            health,
            ..
        }) => Some(Command::Host(HostCommand::SetHostHealth {
            leader,
            host,
            health,
            one_way: false,
        })),
        Command::Place(mut placement) => {
            placement.barrier = false;
            Some(Command::Place(placement))
        }
        Command::Checkpoint(CheckpointCommand::CommitCheckpoint {
            leader,
            job,
            unit,
            mut checkpoint,
        }) => {
            checkpoint.save_ms = None;
            Some(Command::Checkpoint(CheckpointCommand::CommitCheckpoint {
                leader,
                job,
                unit,
                checkpoint,
            }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use muster_model::command::{Exit, HostHealth, TaskReport};
    use muster_model::ids::{AttemptEpoch, HostId, JobId, LeadershipEpoch, TaskIndex, UnitIndex};
    use muster_proto::log::COMMAND_FORMAT;

    use super::*;

    fn exited(evidence: &str) -> Command {
        Command::ReportTask(TaskReport {
            leader: LeadershipEpoch(1),
            job: JobId(2),
            unit: UnitIndex(0),
            epoch: AttemptEpoch(3),
            task: TaskIndex(0),
            outcome: TaskOutcome::Exited(Exit {
                code: Some(1),
                evidence: evidence.to_owned(),
                ..Exit::default()
            }),
        })
    }

    #[test]
    fn older_readers_are_told_of_an_end_without_its_details() {
        let told = vec![exited("ValueError: x")];
        assert_eq!(lowered(told.clone(), FORMAT_UNSAID), vec![exited("")]);
        assert_eq!(lowered(told.clone(), COMMAND_FORMAT), told);
        assert!(check(&told[0], FORMAT_UNSAID).is_err());
        assert!(check(&exited(""), FORMAT_UNSAID).is_ok());
    }

    #[test]
    fn older_readers_are_told_of_a_silent_host_without_the_cause() {
        let silent = |one_way| {
            Command::Host(HostCommand::SetHostHealth {
                leader: LeadershipEpoch(1),
                host: HostId(4),
                health: HostHealth::Suspect,
                one_way,
            })
        };
        let lower = |level| lowered(vec![silent(true)], level);
        assert_eq!(lower(FORMAT_UNSAID), vec![silent(false)]);
        assert_eq!(lower(COMMAND_FORMAT), vec![silent(true)]);
    }

    #[test]
    fn older_readers_are_not_told_what_they_have_no_word_for() {
        let spoil = Command::Checkpoint(CheckpointCommand::SpoilCheckpoint {
            leader: LeadershipEpoch(1),
            job: JobId(2),
            unit: UnitIndex(0),
            reporter: AttemptEpoch(4),
            epoch: AttemptEpoch(3),
            step: 7,
            reason: String::new(),
        });
        assert_eq!(lowered(vec![spoil.clone()], FORMAT_UNSAID), Vec::new());
        assert_eq!(lowered(vec![spoil.clone()], COMMAND_FORMAT), vec![spoil]);
    }
}
