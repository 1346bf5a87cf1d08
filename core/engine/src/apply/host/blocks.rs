//! Blocks: hosts and GPUs taken out of placement and returned.

use muster_health::component::{self, Actor, Change};
use muster_health::guard_rails::Rails;
use muster_model::command::{Block, BlockTarget, Planned, StopCause, StopReason};
use muster_model::event::EventKind;
use muster_model::health::{Component, Phase};
use muster_model::host::{Holder, Host};
use muster_model::ids::{GpuUuid, HostId, RequestKey, TaskIndex, UnitId};
use muster_model::limits;
use muster_model::rejection::Rejection;
use muster_model::time::{SECOND_MS, TimeMs};

use crate::apply::attempt::texts;
use crate::apply::{Step, invalid, require_length};
use crate::state::{Answer, BlockChange, Pools, pool_of};

/// Author of an unblock by expiry.
const EXPIRY: &str = "expiry";

/// Target of a block as found in the state.
#[derive(Clone, Copy)]
struct BlockPlace {
    host: HostId,
    /// Position of the GPU in the host; `None` for the whole host.
    gpu: Option<u32>,
}

impl Step<'_> {
    pub(in crate::apply) fn block(
        &mut self,
        request: RequestKey,
        target: &BlockTarget,
        block: &Block,
        spares_last: bool,
    ) -> Result<Answer, Rejection> {
        check_texts(block)?;
        self.once(request, |step| {
            check_times(block, step.state.time)?;
            let place = step.find(target)?;
            if spares_last && block.planned.is_none() {
                step.require_not_last(place)?;
            }
            let block = block.clone();
            if block.planned.is_some() {
                step.plan_block(place, block)?;
            } else {
                step.begin_block(place, block);
            }
            Ok(Answer::Done)
        })
    }

    /// Refuses to block the last host of a pool that accepts work.
    fn require_not_last(&self, place: BlockPlace) -> Result<(), Rejection> {
        let host = self.state.host(place.host);
        let host = host.filter(|_| place.gpu.is_none());
        // A host that accepts no work is no loss.
        let Some(host) = host.filter(|host| host.accepts_work()) else {
            return Ok(());
        };
        let view = Pools::view(self.state, host, &Component::Host(host.id));
        Rails::admit_admin(1, &view).map_err(|_| Rejection::LastHost {
            host: host.name.to_string(),
            pool: pool_of(host).to_owned(),
        })
    }

    /// Applies a block now.
    fn begin_block(&mut self, place: BlockPlace, block: Block) {
        let block = Block {
            since: self.state.time,
            ..block
        };
        self.set_block(place, Some(block.clone()));
        self.record_admin_block(place, &block);
        self.give_up_broken_claims(place.host);
        let reason = texts::author_text(&block.author, &block.reason);
        let deadline = block.drain_deadline;
        let target = self.target_at(place);
        self.emit(EventKind::Blocked { target, block });
        if let Some(deadline) = deadline {
            self.drain(place, deadline, reason);
        }
    }

    /// Plans a block of a host; replaces an earlier plan.
    fn plan_block(&mut self, place: BlockPlace, block: Block) -> Result<(), Rejection> {
        let BlockPlace { host, gpu: None } = place else {
            let rule = "only the block of a host can be planned ahead".to_owned();
            return Err(invalid("planned", rule));
        };
        let block = Block {
            since: self.state.time,
            ..block
        };
        self.edit_host(host, |host| host.planned = Some(block.clone()));
        self.emit(EventKind::BlockPlanned {
            target: self.target_at(place),
            author: block.author.clone(),
            block: Some(block),
        });
        Ok(())
    }

    /// Begins a planned block. A longer block by an admin keeps its end.
    fn begin_planned(&mut self, host: HostId) {
        let place = BlockPlace { host, gpu: None };
        let record = self.state.host(host);
        let planned = record.and_then(|record| record.planned.clone());
        let in_force = record.and_then(|record| record.block.clone());
        self.edit_host(host, |host| host.planned = None);
        let Some(mut block) = planned else { return };
        let now = self.state.time;
        if block.expires_at.is_some_and(|expires_at| expires_at <= now) {
            let target = self.target_at(place);
            self.emit(EventKind::BlockPlanned {
                target,
                author: EXPIRY.to_owned(),
                block: None,
            });
            return;
        }
        // If it begins late, because there was no leader, running work still gets the planned time to leave.
        let late_ms = block.planned.map_or(0, |planned| now.since(planned.at));
        block.drain_deadline = block.drain_deadline.map(|at| at.after(late_ms));
        let is_admins = self.state.health.phase(&Component::Host(host)).is_admins();
        if let Some(in_force) = in_force.filter(|_| is_admins) {
            block.expires_at = match (block.expires_at, in_force.expires_at) {
                (Some(planned), Some(in_force)) => Some(planned.max(in_force)),
                _ => None,
            };
        }
        self.begin_block(place, block);
    }

    fn cancel_planned(&mut self, place: BlockPlace, author: &str) -> Result<(), Rejection> {
        let target = self.target_at(place);
        let BlockPlace { host, gpu } = place;
        let record = self.state.host(host);
        let has_plan = gpu.is_none() && record.is_some_and(|host| host.planned.is_some());
        if !has_plan {
            return Err(Rejection::NothingPlanned(target.to_string()));
        }
        self.edit_host(host, |host| host.planned = None);
        self.emit(EventKind::BlockPlanned {
            target,
            author: author.to_owned(),
            block: None,
        });
        Ok(())
    }

    pub(in crate::apply) fn unblock(
        &mut self,
        request: RequestKey,
        target: &BlockTarget,
        author: &str,
        planned: bool,
    ) -> Result<Answer, Rejection> {
        require_author(author)?;
        self.once(request, |step| {
            let place = step.find(target)?;
            if planned {
                step.cancel_planned(place, author)?;
                return Ok(Answer::Done);
            }
            if !step.is_blocked(place) && !step.is_held(place) {
                return Err(Rejection::NotBlocked(target.to_string()));
            }
            step.set_block(place, None);
            step.record_admin_unblock(place, author);
            step.emit(EventKind::Unblocked {
                target: target.clone(),
                author: author.to_owned(),
            });
            Ok(Answer::Done)
        })
    }

    pub(in crate::apply) fn expire_blocks(&mut self) -> Answer {
        let mut count = 0;
        while count < limits::BLOCKS_EXPIRED_PER_COMMAND_MAX {
            let first = self.state.index.block_changes.get_min().copied();
            let due = first.filter(|(at, ..)| *at <= self.state.time);
            match due {
                Some((_, host, BlockChange::Begins)) => self.begin_planned(host),
                Some((_, host, BlockChange::Ends(gpu))) => self.end_block(BlockPlace { host, gpu }),
                None => break,
            }
            count += 1;
        }
        Answer::Count(count as u64)
    }

    fn end_block(&mut self, place: BlockPlace) {
        self.set_block(place, None);
        self.block_expired(place);
        let target = self.target_at(place);
        self.emit(EventKind::Unblocked {
            target,
            author: EXPIRY.to_owned(),
        });
    }

    /// Records an admin's block in the health state: it lasts until an admin removes it or it expires.
    fn record_admin_block(&mut self, place: BlockPlace, block: &Block) {
        let component = self.component_at(place);
        let phase = self.state.health.phase(&component);
        let drains = block.drain_deadline.is_some();
        let drains = drains && component::next(phase, component::Event::AdminDrain).is_some();
        let event = if drains {
            component::Event::AdminDrain
        } else {
            component::Event::AdminBlock
        };
        let change = Change {
            event,
            actor: Actor::Admin(block.author.clone()),
            rule: String::new(),
            evidence: block.reason.clone(),
            at: self.state.time,
            is_strike: false,
            expires_at: block.expires_at,
            by_hand: false,
        };
        self.apply_admin_change(&component, change);
    }

    fn record_admin_unblock(&mut self, place: BlockPlace, author: &str) {
        let component = self.component_at(place);
        let change = Change {
            event: component::Event::AdminUnblock,
            actor: Actor::Admin(author.to_owned()),
            rule: String::new(),
            evidence: String::new(),
            at: self.state.time,
            is_strike: false,
            expires_at: None,
            by_hand: false,
        };
        for adapter in self.adapters_at(place) {
            self.apply_admin_change(&adapter, change.clone());
        }
        self.apply_admin_change(&component, change);
        // The limits set by rules are removed with it.
        self.refresh_limits(place.host);
    }

    fn apply_admin_change(&mut self, component: &Component, change: Change) {
        let effects = self.state.health.admin(component, change);
        self.apply_effects(effects);
    }

    /// Handles the expiry of an admin's block: findings made meanwhile take effect now.
    fn block_expired(&mut self, place: BlockPlace) {
        let component = self.component_at(place);
        let effects = self.state.health.expired(&component, self.state.time);
        self.apply_effects(effects);
    }

    fn component_at(&self, place: BlockPlace) -> Component {
        match self.target_at(place) {
            BlockTarget::Host(_) => Component::Host(place.host),
            BlockTarget::Gpu(uuid) => Component::Gpu(uuid),
        }
    }

    fn find(&self, target: &BlockTarget) -> Result<BlockPlace, Rejection> {
        match target {
            BlockTarget::Host(name) => self
                .state
                .host_by_name(name)
                .map(|host| BlockPlace {
                    host: host.id,
                    gpu: None,
                })
                .ok_or_else(|| Rejection::UnknownHost(name.clone())),
            BlockTarget::Gpu(uuid) => self
                .state
                .gpu(*uuid)
                .map(|(host, _)| BlockPlace {
                    host: host.id,
                    gpu: position_of(host, *uuid),
                })
                .ok_or(Rejection::UnknownGpu(*uuid)),
        }
    }

    fn target_at(&self, place: BlockPlace) -> BlockTarget {
        let host = self
            .state
            .host(place.host)
            .expect("hosts named by the state exist");
        match place.gpu {
            None => BlockTarget::Host(host.name.to_string()),
            Some(position) => BlockTarget::Gpu(host.gpus[position as usize].uuid),
        }
    }

    fn is_blocked(&self, place: BlockPlace) -> bool {
        let Some(host) = self.state.host(place.host) else {
            return false;
        };
        match place.gpu {
            None => host.block.is_some(),
            Some(position) => host.gpus[position as usize].block.is_some(),
        }
    }

    /// Whether a rule keeps anything off a host or GPU, even only gangs or because of an adapter.
    fn is_held(&self, place: BlockPlace) -> bool {
        let is_held = |component: &Component| {
            let condition = self.state.health.condition(component);
            condition.is_some_and(|condition| !condition.holds.is_empty())
        };
        is_held(&self.component_at(place)) || self.adapters_at(place).iter().any(is_held)
    }

    /// Returns the adapters of a host that have health records. Adapters are addressed only by their host.
    fn adapters_at(&self, place: BlockPlace) -> Vec<Component> {
        if place.gpu.is_some() {
            return Vec::new();
        }
        let health = &self.state.health;
        let has_record = |adapter: &Component| {
            let condition = health.condition(adapter);
            condition.is_some_and(|it| !it.holds.is_empty() || it.phase != Phase::Healthy)
        };
        let adapters = health.adapters_of(place.host).into_iter();
        adapters.filter(has_record).collect()
    }

    /// Sets or removes a block.
    fn set_block(&mut self, place: BlockPlace, block: Option<Block>) {
        self.edit_host(place.host, |host| {
            let slot = match place.gpu {
                None => &mut host.block,
                Some(position) => &mut host.gpus[position as usize].block,
            };
            *slot = block;
        });
    }

    /// Moves all running work away from a host or GPU.
    fn drain(&mut self, place: BlockPlace, deadline: TimeMs, reason: String) {
        let left_ms = deadline.since(self.state.time);
        let cause = StopCause::new(StopReason::Drain { host: place.host }, reason);
        for unit in self.units_at(place) {
            let grace_ms = self.job_mut(unit.job).spec.stop_grace_ms.min(left_ms);
            let member = self.member_at(place, unit);
            self.order_stop_at(unit, member, cause.clone(), grace_ms);
        }
    }

    /// Returns the only member of a unit that would have to leave a host or GPU.
    fn member_at(&self, place: BlockPlace, unit: UnitId) -> Option<TaskIndex> {
        let Some(position) = place.gpu else {
            return self.only_member_on(unit, place.host);
        };
        let gpu = self.state.host(place.host)?.gpus.get(position as usize)?;
        gpu.holder.map(|holder| holder.task)
    }

    /// Returns the units that hold resources of a host.
    pub(in crate::apply) fn units_on(&self, host: HostId) -> Vec<UnitId> {
        self.state.index.units_on(host).collect()
    }

    /// Returns the units that hold resources of a host or GPU.
    fn units_at(&self, place: BlockPlace) -> Vec<UnitId> {
        match place.gpu {
            None => self.units_on(place.host),
            Some(position) => {
                let host = self.state.host(place.host);
                let gpu = host.and_then(|host| host.gpus.get(position as usize));
                let holder = gpu.and_then(|gpu| gpu.holder);
                holder.iter().map(Holder::unit_id).collect()
            }
        }
    }
}

fn position_of(host: &Host, uuid: GpuUuid) -> Option<u32> {
    let position = host.gpus.iter().position(|gpu| gpu.uuid == uuid)?;
    u32::try_from(position).ok()
}

fn check_texts(block: &Block) -> Result<(), Rejection> {
    if block.reason.trim().is_empty() {
        return Err(invalid("reason", "must not be empty".to_owned()));
    }
    require_author(&block.author)?;
    for (field, text) in [("reason", &block.reason), ("evidence", &block.evidence)] {
        require_length(field, text, "TEXT_BYTES_MAX", limits::TEXT_BYTES_MAX)?;
    }
    Ok(())
}

fn require_author(author: &str) -> Result<(), Rejection> {
    if author.is_empty() {
        return Err(invalid("author", "must not be empty".to_owned()));
    }
    require_length("author", author, "NAME_BYTES_MAX", limits::NAME_BYTES_MAX)
}

fn check_times(block: &Block, now: TimeMs) -> Result<(), Rejection> {
    let begins_at = block.planned.map_or(now, |planned| planned.at);
    if block.planned.is_some() && begins_at <= now {
        return Err(invalid("planned.at", "must lie in the future".to_owned()));
    }
    if let Some(Planned { notice_ms, .. }) = block.planned
        && notice_ms > Planned::NOTICE_MS_MAX
    {
        let limit = Planned::NOTICE_MS_MAX;
        let rule = format!("must be at most {limit} (NOTICE_MS_MAX)");
        return Err(invalid("planned.notice_ms", rule));
    }
    if let Some(expires_at) = block.expires_at
        && expires_at <= begins_at
    {
        let gap = gap(expires_at, begins_at);
        let rule = format!("must lie after the block begins, and lies {gap}");
        return Err(invalid("expires_at", rule));
    }
    if let Some(deadline) = block.planned.and(block.drain_deadline)
        && deadline < begins_at
    {
        let gap = gap(deadline, begins_at);
        let rule = format!("must not lie before the block begins, and lies {gap}");
        return Err(invalid("drain_deadline", rule));
    }
    Ok(())
}

/// Formats how much earlier one time is than another.
fn gap(earlier: TimeMs, later: TimeMs) -> String {
    match later.since(earlier) {
        0 => "at the same time".to_owned(),
        gap_ms => format!("{} s before", gap_ms.div_ceil(SECOND_MS)),
    }
}
