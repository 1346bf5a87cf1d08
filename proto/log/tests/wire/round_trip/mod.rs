//! Round trips: commands, states, and messages of workers and leaders decode to what was encoded.
mod access;
mod health;
mod strategies;

use muster_engine::apply::apply;
use muster_engine::state::State;
use muster_log::{decode_command, encode_command, read_state, write_state};
use muster_model::command::{
    Command, ConfigCommand, HostRegistration, JobDefaults, TaskOutcome, TaskReport,
};
use muster_model::desired::DesiredState;
use muster_model::event::EventKind;
use muster_model::heartbeat::Heartbeat;
use muster_model::ids::{LeadershipEpoch, ReplicaId};
use muster_model::spec::JobSpec;
use muster_model::time::TimeMs;
use muster_planner::{Budget, plan};
use muster_proto::v1;
use proptest::prelude::*;

proptest! {
    #[test]
    fn a_command_survives_the_round_trip(command in strategies::command()) {
        let mut bytes = Vec::new();
        encode_command(&command, &mut bytes);
        prop_assert_eq!(decode_command(&bytes).unwrap(), command);
    }

    #[test]
    fn damaged_bytes_are_refused_or_read_but_never_crash(
        command in strategies::command(),
        position in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = Vec::new();
        encode_command(&command, &mut bytes);
        let position = position.index(bytes.len());
        bytes[position] = byte;
        drop(decode_command(&bytes));
        drop(decode_command(&bytes[..position]));
    }

    #[test]
    fn a_specification_survives_the_round_trip(spec in strategies::spec()) {
        prop_assert_eq!(JobSpec::try_from(v1::JobSpec::from(&spec)).unwrap(), spec);
    }

    #[test]
    fn a_registration_survives_the_round_trip(registration in strategies::registration()) {
        let wire = v1::HostRegistration::from(&registration);
        prop_assert_eq!(HostRegistration::try_from(wire).unwrap(), registration);
    }

    #[test]
    fn a_heartbeat_survives_the_round_trip(heartbeat in strategies::heartbeat()) {
        prop_assert_eq!(Heartbeat::try_from(v1::Heartbeat::from(&heartbeat)).unwrap(), heartbeat);
    }

    #[test]
    fn a_desired_state_survives_the_round_trip(desired in strategies::desired()) {
        let wire = v1::DesiredState::from(&desired);
        prop_assert_eq!(DesiredState::try_from(wire).unwrap(), desired);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_state_after_commands_survives_the_round_trip(
        commands in prop::collection::vec(strategies::command(), 0..64),
        jobs in prop::collection::vec(strategies::small_job(), 1..8),
        outcomes in prop::collection::vec(strategies::outcome(), 0..32),
        defaults in prop::option::of(strategies::defaults()),
    ) {
        let state = story(&commands, &jobs, defaults, outcomes);
        let mut bytes = Vec::new();
        write_state(&state, &mut bytes).unwrap();
        let read = read_state(&mut bytes.as_slice()).unwrap();
        prop_assert_eq!(read.state_hash(), state.state_hash());
        prop_assert_eq!(&read.index, &state.index);
        prop_assert_eq!(&read.host_names, &state.host_names);
        prop_assert_eq!(&read.gpu_hosts, &state.gpu_hosts);
        prop_assert!(read.events.iter().eq(state.events.iter()));
        for (_, events) in state.events.iter() {
            for event in events.iter() {
                let wire = v1::Event::from(&event.kind);
                prop_assert_eq!(&EventKind::try_from(wire).unwrap(), &event.kind);
            }
        }
        let mut again = Vec::new();
        write_state(&read, &mut again).unwrap();
        prop_assert_eq!(again, bytes);
    }
}

/// Job defaults may be set, hosts join, jobs are placed, their tasks report `outcomes`; then come arbitrary
/// commands, most of which are rejected.
fn story(
    commands: &[Command],
    jobs: &[Command],
    defaults: Option<JobDefaults>,
    outcomes: Vec<TaskOutcome>,
) -> State {
    let mut state = State::default();
    let mut now = TimeMs(1_000);
    let mut step = |state: &mut State, command: &Command| {
        now = now.after(10);
        apply(state, now, command)
    };
    let began = step(
        &mut state,
        &Command::LeadershipStarted {
            replica: ReplicaId(1),
        },
    );
    let leader = LeadershipEpoch(began.revision.get());
    if let Some(defaults) = defaults {
        step(
            &mut state,
            &Command::Config(ConfigCommand::SetJobDefaults { leader, defaults }),
        );
    }
    for number in 0..4 {
        step(&mut state, &strategies::join(leader, number));
    }
    for job in jobs {
        step(&mut state, job);
    }
    for decision in plan(&state, state.time, Budget::default()).steps {
        step(&mut state, &decision);
    }
    assert!(
        !running_tasks(&state, leader).is_empty(),
        "the first job always finds a place"
    );
    for (report, outcome) in running_tasks(&state, leader).into_iter().zip(outcomes) {
        step(
            &mut state,
            &Command::ReportTask(TaskReport { outcome, ..report }),
        );
    }
    for command in commands {
        step(&mut state, command);
    }
    state
}

/// A report for every placed task.
fn running_tasks(state: &State, leader: LeadershipEpoch) -> Vec<TaskReport> {
    let mut reports = Vec::new();
    for job in state.jobs.values() {
        for (unit, record) in &job.units {
            if let Some(attempt) = &record.attempt {
                reports.extend(attempt.tasks.iter().map(|task| TaskReport {
                    leader,
                    job: job.id,
                    unit: *unit,
                    epoch: attempt.epoch,
                    task: task.task,
                    outcome: TaskOutcome::Started,
                }));
            }
        }
    }
    reports
}

#[test]
fn a_state_recovered_into_a_new_group_survives_the_round_trip() {
    let mut state = State::default();
    let began = |replica| Command::LeadershipStarted {
        replica: ReplicaId(replica),
    };
    apply(&mut state, TimeMs(1_000), &began(1)).result.unwrap();
    state.recover(&[], TimeMs(1_500));
    for is_led in [false, true] {
        if is_led {
            apply(&mut state, TimeMs(2_000), &began(4)).result.unwrap();
        }
        let mut bytes = Vec::new();
        write_state(&state, &mut bytes).unwrap();
        let read = read_state(&mut bytes.as_slice()).unwrap();
        assert_eq!(read.recovery, state.recovery);
        assert_eq!(read.recovery.unwrap().hold.is_some(), is_led);
        assert_eq!(read.state_hash(), state.state_hash());
    }
}
