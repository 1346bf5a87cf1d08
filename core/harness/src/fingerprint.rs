//! Fingerprints of commands that are not made from a client's request.

use muster_model::command::Command;
use xxhash_rust::xxh3::xxh3_64;

/// Adds a fingerprint of its contents to a user's command, as a replica does to a client's request.
#[must_use]
pub fn fingerprinted(mut command: Command) -> Command {
    let Some(request) = command.request_mut() else {
        return command;
    };
    request.fingerprint = 0;
    let bytes = bincode::serde::encode_to_vec(&command, bincode::config::standard())
        .expect("commands hold only types with derived serde");
    if let Some(request) = command.request_mut() {
        request.fingerprint = xxh3_64(&bytes);
    }
    command
}
