//! Host phases as reported by the leader: up, suspect, lost.

use muster_model::command::HostHealth;
use muster_model::event::EventKind;
use muster_model::ids::HostId;
use muster_model::rejection::Rejection;

use crate::apply::Step;
use crate::state::Answer;

impl Step<'_> {
    pub(in crate::apply) fn set_host_health(
        &mut self,
        id: HostId,
        health: HostHealth,
        one_way: bool,
    ) -> Result<Answer, Rejection> {
        let host = self
            .state
            .host(id)
            .ok_or_else(|| Rejection::UnknownHost(id.to_string()))?;
        let was_up = host.health == HostHealth::Up;
        if host.health != health {
            self.change_host_health(id, health, one_way && health != HostHealth::Up);
            if was_up {
                self.note_silence(id);
            }
        }
        Ok(Answer::Done)
    }

    fn change_host_health(&mut self, id: HostId, health: HostHealth, one_way: bool) {
        let since = self.state.time;
        let name = self.edit_host(id, |host| {
            host.health = health;
            host.health_since = since;
            host.one_way = one_way;
            host.name.to_string()
        });
        self.emit(EventKind::HostHealthChanged {
            host: id,
            name,
            health,
            one_way,
        });
        self.give_up_broken_claims(id);
    }
}
