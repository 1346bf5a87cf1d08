//! Samples of the fourth version: a host whose heartbeats arrive while acknowledgements do not reach it.

use std::sync::Arc;

use muster_engine::state::{EventGaps, EventLog, State};
use muster_model::command::{Command, HostCommand, HostHealth};
use muster_model::event::{Event, EventKind};
use muster_model::ids::{HostId, Revision};
use muster_model::time::TimeMs;

use crate::frozen::samples::LEADER;

/// The command, under the name of its file.
pub(crate) fn command() -> (&'static str, Command) {
    let command = Command::Host(HostCommand::SetHostHealth {
        leader: LEADER,
        host: HostId(1),
        health: HostHealth::Lost,
        one_way: true,
    });
    ("set_host_health_one_way", command)
}

/// The first version's state, with one host lost that way, and its event.
pub(crate) fn state() -> State {
    let mut parts = super::state::parts();
    let host = parts.hosts.first_mut().expect("the sample has hosts");
    host.health = HostHealth::Lost;
    host.one_way = true;
    parts.events = EventLog::restore(
        Revision(39),
        EventGaps::default(),
        vec![(Revision(40), event())],
    );
    State::restore(parts)
}

fn event() -> Arc<[Event]> {
    Arc::from([Event {
        revision: Revision(40),
        time: TimeMs(5_000),
        kind: EventKind::HostHealthChanged {
            host: HostId(1),
            name: "node1".to_owned(),
            health: HostHealth::Lost,
            one_way: true,
        },
    }])
}
