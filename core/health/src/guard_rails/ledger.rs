//! Ledger of blocks, and the budgets that limit further ones.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use muster_model::health::Weight;
use muster_model::ids::{HostId, JobId};
use muster_model::time::{DAY_MS, HOUR_MS, MINUTE_MS, TimeMs};
use serde::{Deserialize, Serialize};

use crate::guard_rails::{Breaker, PoolView, Proposal, Rail, Refused, Verdict};

/// Blocks of the last hour remembered per pool.
const RECENT_MAX: usize = 4_096;
/// Maximum number of jobs, and of tenants, whose blocks of a day are remembered; beyond it, the oldest is
/// dropped.
pub(super) const CAUSERS_MAX: usize = 4_096;
/// Maximum number of pools.
const POOLS_MAX: usize = 1_024;

/// Limits, from the table `[rails]` of the rules. Parts of a pool are per mille.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RailsLimits {
    /// Part of a pool's GPUs that soft evidence may newly block in an hour.
    pub soft_hour_permille: u32,
    /// Part of a pool's GPUs that soft evidence may keep blocked at a time.
    pub soft_outstanding_permille: u32,
    /// Hosts of a pool that it may block in an hour, however small the pool.
    pub hosts_always: u32,
    /// Part of a pool's GPUs beyond which hard evidence kills nothing and repairs nothing.
    pub hard_permille: u32,
    /// Soft blocks in a day caused by one job.
    pub per_job: u32,
    /// Soft blocks in a day caused by one tenant.
    pub per_tenant: u32,
    /// Minimum number of users whose failures support a soft block.
    pub users_min: u32,
    /// Part of a pool's hosts that may be in repair at a time, but always one.
    pub repairs_permille: u32,
    /// Repairs at a time in one rack.
    pub repairs_per_rack: u32,
    /// Minimum milliseconds for which a tripped breaker waits, and span over which it counts proposals.
    pub breaker_ms: u64,
}

impl Default for RailsLimits {
    /// Our proposals; NVSentinel trips at 50 % in 5 minutes, EKS stops at 20 %, Kubernetes slows down at 55 %
    /// of a zone.
    fn default() -> Self {
        Self {
            soft_hour_permille: 50,
            soft_outstanding_permille: 100,
            hosts_always: 2,
            hard_permille: 200,
            per_job: 2,
            per_tenant: 3,
            users_min: 2,
            repairs_permille: 100,
            repairs_per_rack: 1,
            breaker_ms: 30 * MINUTE_MS,
        }
    }
}

/// A recorded block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RecordedBlock {
    at: TimeMs,
    host: HostId,
    gpus: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Pool {
    recent: VecDeque<RecordedBlock>,
    breaker: Breaker,
}

/// All budgets and breakers of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rails {
    limits: RailsLimits,
    pools: BTreeMap<String, Pool>,
    jobs: BTreeMap<JobId, VecDeque<TimeMs>>,
    tenants: BTreeMap<String, VecDeque<TimeMs>>,
}

impl Rails {
    /// The limits in force.
    #[must_use]
    pub const fn limits(&self) -> RailsLimits {
        self.limits
    }

    /// Replaces the limits; used budgets stay used.
    pub const fn set_limits(&mut self, limits: RailsLimits) {
        self.limits = limits;
    }

    /// Decides whether a block is allowed, and if so, counts it. A refused one counts towards the breaker
    /// only.
    pub fn admit(&mut self, proposal: &Proposal<'_>, view: &PoolView) -> Verdict {
        match proposal.weight {
            Weight::Hard => self.admit_hard(proposal, view),
            Weight::Soft => match self.admit_soft(proposal, view) {
                Ok(()) => {
                    self.count(proposal);
                    Verdict::Allowed
                }
                Err(refused) => Verdict::Refused(refused),
            },
        }
    }

    /// Decides whether a repair may start on a host of a pool, which already accepts no work.
    ///
    /// # Errors
    /// The rail that refuses.
    pub fn admit_repair(&self, view: &PoolView) -> Result<(), Refused> {
        let limit = (view.hosts * self.limits.repairs_permille / 1_000).max(1);
        if view.hosts_in_service == 0 {
            return refuse(Rail::LastHost, 0u32, 1);
        }
        if view.repairs >= limit {
            return refuse(Rail::Repairs, view.repairs + 1, limit);
        }
        let limit = self.limits.repairs_per_rack;
        if view.repairs_in_rack >= limit {
            return refuse(Rail::RackRepair, view.repairs_in_rack + 1, limit);
        }
        Ok(())
    }

    /// Decides whether an admin may take this many hosts of a pool out of placement without forcing it: not
    /// the last ones.
    ///
    /// # Errors
    /// The rail that refuses.
    pub fn admit_admin(hosts: u32, view: &PoolView) -> Result<(), Refused> {
        if hosts < view.hosts_in_service || view.hosts_in_service == 0 {
            return Ok(());
        }
        refuse(Rail::LastHost, hosts, view.hosts_in_service - 1)
    }

    /// The breaker of a pool, if there was ever a proposal.
    #[must_use]
    pub fn breaker(&self, pool: &str) -> Option<&Breaker> {
        self.pools.get(pool).map(|pool| &pool.breaker)
    }

    /// Pools with a tripped breaker, and the time of the trip.
    pub fn tripped(&self) -> impl Iterator<Item = (&str, TimeMs)> {
        let pools = self.pools.iter();
        pools.filter_map(|(name, pool)| Some((name.as_str(), pool.breaker.tripped_since()?)))
    }

    /// Earliest times at which tripped breakers may close.
    pub fn breakers_due(&self) -> impl Iterator<Item = TimeMs> + '_ {
        let breakers = self.pools.values().map(|pool| &pool.breaker);
        breakers.filter_map(|breaker| breaker.closes_at(self.limits.breaker_ms))
    }

    /// Resets a pool's breaker after an operator has looked.
    pub fn reset_breaker(&mut self, pool: &str) {
        if let Some(pool) = self.pools.get_mut(pool) {
            pool.breaker.reset();
        }
    }

    /// Applies the time; returns the pools whose breakers closed.
    pub fn tick(&mut self, now: TimeMs) -> Vec<String> {
        let span_ms = self.limits.breaker_ms;
        let pools = self.pools.iter_mut();
        let closed =
            pools.filter_map(|(name, pool)| pool.breaker.tick(now, span_ms).then_some(name));
        closed.cloned().collect()
    }

    /// A component that cannot work is out of placement regardless of the rails; beyond a part of the pool
    /// that is all that happens.
    fn admit_hard(&self, proposal: &Proposal<'_>, view: &PoolView) -> Verdict {
        let would_be = permille(view.gpus_blocked_hard + proposal.gpus, view.gpus);
        let limit = u64::from(self.limits.hard_permille);
        // In a small pool one host exceeds the part.
        let is_few = view.gpus_blocked_hard == 0;
        if would_be <= limit || is_few {
            return Verdict::Allowed;
        }
        Verdict::PlacementOnly(Refused {
            rail: Rail::Hard,
            would_be,
            limit,
        })
    }

    fn admit_soft(&mut self, proposal: &Proposal<'_>, view: &PoolView) -> Result<(), Refused> {
        self.check_causer(proposal)?;
        let RailsLimits {
            soft_hour_permille,
            soft_outstanding_permille,
            hosts_always,
            breaker_ms,
            ..
        } = self.limits;
        let pool = self.pool(proposal.pool);
        pool.breaker.count(proposal.at, breaker_ms);
        if pool.breaker.is_tripped() {
            return refuse(Rail::Breaker, 1u32, 0);
        }
        if view.hosts_in_service <= 1 {
            return refuse(Rail::LastHost, 1u32, 0);
        }
        pool.recent
            .retain(|block| proposal.at.since(block.at) <= HOUR_MS);
        let mut hosts: BTreeSet<HostId> = pool.recent.iter().map(|block| block.host).collect();
        hosts.insert(proposal.host);
        let is_few = hosts.len() <= hosts_always as usize;
        let new: u32 = pool.recent.iter().map(|block| block.gpus).sum();
        let checks = [
            (Rail::Hour, new, soft_hour_permille),
            (
                Rail::Outstanding,
                view.gpus_blocked_soft,
                soft_outstanding_permille,
            ),
        ];
        for (rail, so_far, limit) in checks {
            let would_be = permille(so_far + proposal.gpus, view.gpus);
            if would_be > u64::from(limit) && !is_few {
                pool.breaker.trip(proposal.at, breaker_ms);
                return refuse(rail, would_be, limit);
            }
        }
        Ok(())
    }

    /// Whether one job or tenant has used up its budget.
    fn check_causer(&self, proposal: &Proposal<'_>) -> Result<(), Refused> {
        let Some(job) = proposal.job else {
            return Ok(());
        };
        let users_min = self.limits.users_min;
        if proposal.users < users_min {
            return refuse(Rail::Users, proposal.users, users_min);
        }
        let of_a_day = |times: Option<&VecDeque<TimeMs>>| {
            let all = times.into_iter().flatten();
            let recent = all.filter(|at| proposal.at.since(**at) <= DAY_MS);
            u32::try_from(recent.count()).unwrap_or(u32::MAX)
        };
        let by_job = of_a_day(self.jobs.get(&job));
        if by_job >= self.limits.per_job {
            return refuse(Rail::Job, by_job + 1, self.limits.per_job);
        }
        let by_tenant = of_a_day(proposal.tenant.and_then(|tenant| self.tenants.get(tenant)));
        if by_tenant >= self.limits.per_tenant {
            return refuse(Rail::Tenant, by_tenant + 1, self.limits.per_tenant);
        }
        Ok(())
    }

    fn count(&mut self, proposal: &Proposal<'_>) {
        let pool = self.pool(proposal.pool);
        if pool.recent.len() >= RECENT_MAX {
            pool.recent.pop_front();
        }
        pool.recent.push_back(RecordedBlock {
            at: proposal.at,
            host: proposal.host,
            gpus: proposal.gpus,
        });
        if let Some(job) = proposal.job {
            remember(&mut self.jobs, job, proposal.at, self.limits.per_job);
        }
        if let (Some(_), Some(tenant)) = (proposal.job, proposal.tenant) {
            let tenants = &mut self.tenants;
            remember(
                tenants,
                tenant.to_owned(),
                proposal.at,
                self.limits.per_tenant,
            );
        }
    }

    fn pool(&mut self, name: &str) -> &mut Pool {
        if !self.pools.contains_key(name) && self.pools.len() >= POOLS_MAX {
            let quiet = self
                .pools
                .iter()
                .find(|(_, pool)| !pool.breaker.is_tripped());
            if let Some(name) = quiet.map(|(name, _)| name.clone()) {
                self.pools.remove(&name);
            }
        }
        self.pools.entry(name.to_owned()).or_default()
    }
}

/// Keeps the newest times of a causer.
fn remember<K: Ord + Clone>(
    causers: &mut BTreeMap<K, VecDeque<TimeMs>>,
    causer: K,
    at: TimeMs,
    kept: u32,
) {
    causers.retain(|_, times| times.back().is_some_and(|last| at.since(*last) <= DAY_MS));
    if causers.len() >= CAUSERS_MAX && !causers.contains_key(&causer) {
        let oldest = causers
            .iter()
            .min_by_key(|(_, times)| times.back().copied());
        if let Some(key) = oldest.map(|(key, _)| key.clone()) {
            causers.remove(&key);
        }
    }
    let times = causers.entry(causer).or_default();
    if times.len() >= kept.max(1) as usize {
        times.pop_front();
    }
    times.push_back(at);
}

/// A part of a whole in thousandths, rounded up.
fn permille(part: u32, whole: u32) -> u64 {
    (u64::from(part) * 1_000).div_ceil(u64::from(whole.max(1)))
}

fn refuse(rail: Rail, would_be: impl Into<u64>, limit: u32) -> Result<(), Refused> {
    Err(Refused {
        rail,
        would_be: would_be.into(),
        limit: u64::from(limit),
    })
}
