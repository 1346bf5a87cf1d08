//! Services that a rule has started again, while it keeps something off their host: nothing that runs there is ended for it.

use muster_model::health::{Component, DeviceAction, Order};
use muster_model::ids::HostId;
use muster_model::time::{MINUTE_MS, TimeMs};

use crate::book::{Book, Effect};
use crate::component::{Condition, Held, Restart};

/// Hosts whose services are started again at one time: a rule that is wrong everywhere must not stop them everywhere.
const AT_ONCE_MAX: usize = 8;
/// After so long a worker that was told and says nothing keeps nobody waiting: longer than a restart may take.
const SILENCE_MS_MAX: u64 = 10 * MINUTE_MS;

impl Book {
    /// Tells workers to start services again, as many at a time as may, those first that have waited longest.
    pub(super) fn order_restarts(&mut self, now: TimeMs) -> Vec<Effect> {
        let under_way = self.restarts_under_way(now).count();
        let room = AT_ONCE_MAX.saturating_sub(under_way);
        let mut waiting: Vec<(TimeMs, HostId, String)> = self
            .restarts_waiting()
            .map(|(host, held)| (held.since, host, held.rule.clone()))
            .collect();
        waiting.sort();
        waiting.truncate(room);
        let mut effects = Vec::new();
        for (_, host, rule) in waiting {
            let known = self.conditions.get_mut(&Component::Host(host));
            if let Some(held) = known.and_then(|it| hold_of(it, &rule)) {
                held.restart = Some(Restart::Ordered { at: now });
                effects.push(Effect::Restart { host, rule });
            }
        }
        effects
    }

    /// When the next restart may be ordered that waits; none if none does.
    pub(super) fn restart_due(&self, now: TimeMs) -> Option<TimeMs> {
        self.restarts_waiting().next()?;
        let mut given_up: Vec<TimeMs> = self.restarts_under_way(now).collect();
        if given_up.len() < AT_ONCE_MAX {
            return Some(now);
        }
        given_up.sort_unstable();
        // As many as are under way beyond what may be have to be given up first.
        given_up.get(given_up.len() - AT_ONCE_MAX).copied()
    }

    /// Until when workers that were told to start services again may be silent.
    fn restarts_under_way(&self, now: TimeMs) -> impl Iterator<Item = TimeMs> + '_ {
        let all = self.conditions.values().flat_map(|it| &it.holds);
        let given_up = all.filter_map(|held| match held.restart {
            Some(Restart::Ordered { at }) => Some(at.after(SILENCE_MS_MAX)),
            _ => None,
        });
        given_up.filter(move |given_up| now < *given_up)
    }

    /// Hosts whose services wait to be started again. What an admin has taken out is the admin's to look after.
    fn restarts_waiting(&self) -> impl Iterator<Item = (HostId, &Held)> {
        self.conditions.iter().flat_map(|(component, condition)| {
            let host = match component {
                Component::Host(host) if !condition.phase.is_admins() => Some(*host),
                _ => None,
            };
            let holds = condition.holds.iter();
            let waits = holds.filter(|held| held.restart == Some(Restart::Waits));
            waits.filter_map(move |held| Some((host?, held)))
        })
    }

    /// The restarts that a host's worker is to carry out.
    pub(super) fn restarts(&self, host: HostId) -> impl Iterator<Item = Order> + '_ {
        let component = Component::Host(host);
        let holds = self.conditions.get(&component).map(|it| &it.holds[..]);
        let holds = holds.unwrap_or_default().iter();
        holds.filter_map(move |held| match held.restart {
            Some(Restart::Ordered { at }) => Some(Order {
                component: component.clone(),
                action: DeviceAction::RestartService,
                since: at,
                rule: held.rule.clone(),
                is_thorough: false,
            }),
            _ => None,
        })
    }

    /// A worker has started the services of a rule again, or tried to, as it was told at `since`. None if it was not.
    pub fn restarted(
        &mut self,
        (host, rule): (HostId, &str),
        since: TimeMs,
        now: TimeMs,
    ) -> Option<Vec<Effect>> {
        let component = Component::Host(host);
        let held = hold_of(self.conditions.get_mut(&component)?, rule)?;
        if held.restart != Some(Restart::Ordered { at: since }) {
            return None;
        }
        held.restart = Some(Restart::Tried);
        let repairs = self.repairs.entry(component).or_default();
        repairs.complete(now, DeviceAction::RestartService);
        Some(self.order_restarts(now))
    }
}

fn hold_of<'a>(condition: &'a mut Condition, rule: &str) -> Option<&'a mut Held> {
    condition.holds.iter_mut().find(|held| held.rule == rule)
}
