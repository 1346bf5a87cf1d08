//! Fingerprints of commands that are not made from a client's request.

use muster_model::command::{AccessCommand, Command, ConfigCommand, HealthCommand};
use muster_model::ids::RequestKey;
use xxhash_rust::xxh3::xxh3_64;

/// Adds a fingerprint of its contents to a user's command, as a replica does to a client's request.
#[must_use]
pub fn fingerprinted(mut command: Command) -> Command {
    let Some(request) = request_of(&mut command) else {
        return command;
    };
    request.fingerprint = 0;
    let bytes = bincode::serde::encode_to_vec(&command, bincode::config::standard())
        .expect("commands hold only types with derived serde");
    if let Some(request) = request_of(&mut command) {
        request.fingerprint = xxh3_64(&bytes);
    }
    command
}

const fn request_of(command: &mut Command) -> Option<&mut RequestKey> {
    match command {
        Command::SubmitJob { request, .. }
        | Command::SubmitPipeline { request, .. }
        | Command::CancelJob { request, .. }
        | Command::SuspendJob { request, .. }
        | Command::ResumeJob { request, .. }
        | Command::Block { request, .. }
        | Command::Unblock { request, .. }
        | Command::Config(ConfigCommand::SetQueue { request, .. })
        | Command::Config(ConfigCommand::ConfigureQueues { request, .. })
        | Command::Config(ConfigCommand::SetTopology { request, .. })
        | Command::Health(
            HealthCommand::SetRules { request, .. } | HealthCommand::ResetBreaker { request, .. },
        )
        | Command::Access(
            AccessCommand::AddUser { request, .. }
            | AccessCommand::RemoveUser { request, .. }
            | AccessCommand::RotateToken { request, .. }
            | AccessCommand::AddJoinToken { request, .. }
            | AccessCommand::RevokeJoinToken { request, .. }
            | AccessCommand::UseJoinToken { request, .. },
        ) => Some(request),
        _ => None,
    }
}
