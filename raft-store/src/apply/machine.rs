//! The scheduler's state as a replicated state machine.

use std::io::{self, BufReader, BufWriter, Read, Write};

use muster_engine::apply::{Applied, apply};
use muster_engine::state::State;
use muster_log::{LogError, STATE_FORMAT, decode_command, encode_command, read_state, write_state};
use muster_model::command::{Command, ReplicaRecord};
use muster_model::ids::ReplicaId;
use muster_model::time::TimeMs;

use crate::{DecodeError, Peer, StateMachine};

impl StateMachine for State {
    type Command = Command;
    type Outcome = Applied;

    fn encode_command(command: &Command, out: &mut Vec<u8>) {
        encode_command(command, out);
    }

    fn decode_command(bytes: &[u8]) -> Result<Command, DecodeError> {
        Ok(decode_command(bytes)?)
    }

    fn apply(&mut self, time_ms: u64, command: &Command) -> Applied {
        apply(self, TimeMs(time_ms), command)
    }

    fn revision(&self) -> u64 {
        self.revision.get()
    }

    fn time_ms(&self) -> u64 {
        self.time.0
    }

    fn carry_over(&mut self, former: &[(Peer, bool)], now_ms: u64) {
        let record = |(peer, votes): &(Peer, bool)| ReplicaRecord {
            id: ReplicaId(peer.id),
            address: peer.address.clone(),
            votes: *votes,
        };
        let former: Vec<ReplicaRecord> = former.iter().map(record).collect();
        // Calls the inherent function, not this one.
        Self::recover(self, &former, TimeMs(now_ms));
    }

    fn write_snapshot(&self, sink: &mut dyn Write) -> io::Result<()> {
        let mut buffered = BufWriter::new(sink);
        write_state(self, &mut buffered)?;
        buffered.flush()
    }

    fn read_snapshot(source: &mut dyn Read) -> Result<Self, DecodeError> {
        Ok(read_state(&mut BufReader::new(source))?)
    }

    fn state_hash(&self) -> u64 {
        // Calls the inherent function, not this one.
        Self::state_hash(self)
    }

    fn state_hash_version() -> u64 {
        // Records change their layout at least with every new format.
        u64::from(STATE_FORMAT)
    }
}

impl From<LogError> for DecodeError {
    fn from(error: LogError) -> Self {
        match error {
            LogError::NewerVersion {
                found, supported, ..
            } => Self::NewerVersion { found, supported },
            LogError::OlderVersion { found, oldest, .. } => Self::OlderVersion { found, oldest },
            LogError::Malformed { .. } | LogError::Read(_) => Self::Malformed(error.to_string()),
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::sync::Arc;

    use muster_log::{COMMAND_FORMAT, OLDEST_COMMAND_FORMAT};
    use muster_model::ids::{RequestId, RequestKey};
    use muster_model::spec::{
        Execution, JobSpec, Layout, Lifecycle, Resources, RetryPolicy, Scheduling, TaskGroup,
    };

    use super::*;

    fn submission(request: u128) -> Command {
        let group = TaskGroup {
            name: "main".to_owned(),
            count: 2,
            resources: Resources::default(),
            command: vec!["true".to_owned()],
            environment: std::collections::BTreeMap::new(),
            working_directory: None,
            tasks_per_host_max: None,
            layout: Layout::default(),
            execution: Execution::default(),
        };
        Command::SubmitJob {
            request: RequestKey::of(RequestId(request)),
            spec: Arc::new(JobSpec {
                name: "train".to_owned(),
                user: "ada".to_owned(),
                queue: "default".to_owned(),
                priority: 0,
                gang: false,
                groups: vec![group],
                retry: RetryPolicy::default(),
                partition_grace_ms: 45_000,
                stop_grace_ms: 30_000,
                labels: std::collections::BTreeMap::new(),
                scheduling: Scheduling::default(),
                lifecycle: Lifecycle::default(),
            }),
        }
    }

    #[test]
    fn a_machine_restored_from_a_snapshot_continues_like_the_original() {
        let mut original = State::default();
        let began = Command::LeadershipStarted {
            replica: ReplicaId(1),
        };
        StateMachine::apply(&mut original, 1_000, &began);
        StateMachine::apply(&mut original, 2_000, &submission(1));
        let mut bytes = Vec::new();
        original.write_snapshot(&mut bytes).unwrap();
        let mut copy = State::read_snapshot(&mut bytes.as_slice()).unwrap();

        assert_eq!(StateMachine::revision(&copy), 2);
        // The repeated request and the new one get the same answers from both.
        for command in [submission(1), submission(2)] {
            assert_eq!(
                StateMachine::apply(&mut original, 3_000, &command),
                StateMachine::apply(&mut copy, 3_000, &command)
            );
        }
        assert_eq!(
            StateMachine::state_hash(&original),
            StateMachine::state_hash(&copy)
        );
    }

    #[test]
    fn a_command_of_an_unread_format_is_refused_with_both_versions() {
        let mut bytes = Vec::new();
        <State as StateMachine>::encode_command(&submission(1), &mut bytes);
        bytes[0] = COMMAND_FORMAT + 1;
        let error = <State as StateMachine>::decode_command(&bytes).unwrap_err();
        assert!(
            matches!(
                error,
                DecodeError::NewerVersion { found, supported }
                    if supported == u32::from(COMMAND_FORMAT) && found == supported + 1
            ),
            "{error}"
        );
        bytes[0] = OLDEST_COMMAND_FORMAT - 1;
        let error = <State as StateMachine>::decode_command(&bytes).unwrap_err();
        assert!(
            matches!(
                error,
                DecodeError::OlderVersion { found, oldest }
                    if oldest == u32::from(OLDEST_COMMAND_FORMAT) && found == oldest - 1
            ),
            "{error}"
        );
    }
}
