//! Restarts of services by rules that restrict placement on their host; running tasks are not stopped.

use muster_model::health::{Component, DeviceAction, Order};
use muster_model::ids::HostId;
use muster_model::time::{MINUTE_MS, TimeMs};

use crate::component::{Condition, Restart, Restriction};
use crate::state::{Effect, HealthState};

/// Maximum number of hosts whose services restart at a time: a wrong rule must not stop them everywhere.
const AT_ONCE_MAX: usize = 8;
/// Time after which an ordered restart without a response no longer holds up others: longer than a restart
/// may take.
const SILENCE_MS_MAX: u64 = 10 * MINUTE_MS;

impl HealthState {
    /// Orders restarts of services from workers, up to the maximum, the longest waiting first.
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

    /// Time at which the next waiting restart may be ordered; `None` if none waits.
    pub(super) fn restart_due(&self, now: TimeMs) -> Option<TimeMs> {
        self.restarts_waiting().next()?;
        let mut given_up: Vec<TimeMs> = self.restarts_under_way(now).collect();
        if given_up.len() < AT_ONCE_MAX {
            return Some(now);
        }
        given_up.sort_unstable();
        // Restarts in progress above the maximum must be given up first.
        given_up.get(given_up.len() - AT_ONCE_MAX).copied()
    }

    /// Deadlines of restarts in progress.
    fn restarts_under_way(&self, now: TimeMs) -> impl Iterator<Item = TimeMs> + '_ {
        let all = self.conditions.values().flat_map(|it| &it.holds);
        let given_up = all.filter_map(|held| match held.restart {
            Some(Restart::Ordered { at }) => Some(at.after(SILENCE_MS_MAX)),
            _ => None,
        });
        given_up.filter(move |given_up| now < *given_up)
    }

    /// Hosts with waiting restarts. A host that an admin took out of service is left to the admin.
    fn restarts_waiting(&self) -> impl Iterator<Item = (HostId, &Restriction)> {
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

    /// Restarts that a host's worker must carry out.
    pub(super) fn restarts(&self, host: HostId) -> impl Iterator<Item = Order> + '_ {
        let component = Component::Host(host);
        let condition = self.conditions.get(&component);
        let holds = condition.into_iter().flat_map(|it| &it.holds);
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

    /// Applies the result of a restart ordered at `since`; `None` if there was no such order.
    pub fn restarted(
        &mut self,
        host: HostId,
        rule: &str,
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

fn hold_of<'a>(condition: &'a mut Condition, rule: &str) -> Option<&'a mut Restriction> {
    condition.holds.iter_mut().find(|held| held.rule == rule)
}
