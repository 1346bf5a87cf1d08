//! Feature level of a group with mixed builds: only commands that all replicas can read are proposed.
//!
//! A replica reports the newest command format that it reads in its answers to pushes of heartbeat times; the
//! leader takes the minimum of all voters and includes it in its next pushes, so that a later leader need not
//! ask again. The level never falls: once a command of a format is in the log, every replica has to read it.
//! User requests above the level are refused; the leader's own commands above it wait.

use muster_log::format_of;
use muster_model::command::Command;
use muster_proto::status;
use tonic::{Code, Status};

/// Reason of a refusal because some replica could not read the command.
pub(crate) const FEATURE_NOT_YET: &str = "FEATURE_NOT_YET";

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

/// Drops the leader's own commands that readers of a level could not read. A format that adds details to an
/// existing command lets the leader send it without them instead.
pub(super) fn readable(mut commands: Vec<Command>, level: u8) -> Vec<Command> {
    commands.retain(|command| format_of(command) <= level);
    commands
}

#[cfg(test)]
mod tests {
    use muster_model::ids::LeadershipEpoch;

    use super::*;

    #[test]
    fn a_command_above_the_level_is_neither_accepted_nor_proposed() {
        let command = Command::Prune {
            leader: LeadershipEpoch(1),
        };
        let needed = format_of(&command);
        assert!(check(&command, needed).is_ok());
        assert!(check(&command, needed - 1).is_err());
        let commands = vec![command];
        assert_eq!(readable(commands.clone(), needed), commands);
        assert_eq!(readable(commands, needed - 1), Vec::new());
    }
}
