//! Commands of the log: decoding, encoding and decoding again must give the same command.

use muster_log::{COMMAND_FORMAT, decode_command, encode_command, format_of};
use muster_model::command::Command;

use crate::{SMALL, assert_same, bounded, or_panic};

fn encoded(command: &Command) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_command(command, &mut bytes);
    bytes
}

/// Checks one input.
pub(crate) fn run(data: &[u8]) {
    bounded(data, SMALL, || {
        let Ok(command) = decode_command(data) else {
            return;
        };
        let written = encoded(&command);
        let again = or_panic(decode_command(&written), "what was written is refused");
        assert_same(&again, &command);
        assert_same(&encoded(&again), &written);
        assert!(format_of(&command) <= COMMAND_FORMAT);
    });
}
