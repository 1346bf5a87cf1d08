//! Incidents: many hosts that fail at once count as one event, not as separate faults.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use muster_model::ids::HostId;
use muster_model::named_enum;
use muster_model::time::{MINUTE_MS, SECOND_MS, TimeMs};
use serde::{Deserialize, Serialize};

/// Hosts that fail within this span failed together.
const TOGETHER_MS: u64 = MINUTE_MS;
/// Time for which an incident keeps its hosts from being judged and their work from being placed again.
const HOLD_MS: u64 = 120 * SECOND_MS;
/// Maximum number of groups that are tracked; beyond it, the one with the oldest event is dropped.
pub(super) const GROUPS_MAX: usize = 4_096;

named_enum! {
    /// Kind of a group of hosts.
    GroupKind {
        /// The whole cluster.
        Cluster = "cluster",
        /// A rack.
        Rack = "rack",
        /// A switch.
        Switch = "switch",
        /// A storage system.
        Storage = "storage",
        /// A driver release.
        Driver = "driver",
    }
}

impl GroupKind {
    /// Threshold of an incident: a minimum number of hosts, and a minimum part of the group per mille.
    /// Storage is from gpud and our own; the rest are proposals after Kubernetes, which stops evictions when
    /// whole zones fail.
    const fn threshold(self) -> (usize, u32) {
        match self {
            Self::Cluster => (5, 100),
            Self::Rack | Self::Switch => (3, 500),
            Self::Storage => (3, 300),
            Self::Driver => (5, 500),
        }
    }
}

/// A group of hosts with something in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Group {
    /// Kind of the group.
    pub kind: GroupKind,
    /// Name of the group.
    pub name: String,
}

impl fmt::Display for Group {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            GroupKind::Cluster => formatter.write_str("the cluster"),
            GroupKind::Storage if self.name.is_empty() => formatter.write_str("shared storage"),
            kind => write!(formatter, "{kind} {}", self.name),
        }
    }
}

/// Hosts that failed together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incident {
    /// Their common group.
    pub group: Group,
    /// Time of detection.
    pub since: TimeMs,
    /// Time until which nothing is judged or placed again.
    pub until: TimeMs,
    /// The hosts: strikes for it are withdrawn.
    pub hosts: BTreeSet<HostId>,
}

/// Recent failures of hosts, and the resulting incidents. Replicated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incidents {
    groups: BTreeMap<Group, BTreeMap<HostId, TimeMs>>,
    open: Vec<Incident>,
}

impl Incidents {
    /// A host failed: it fell silent, or a component of it broke. Groups come with their number of hosts.
    /// Returns the incident that it starts or joins, if any; of several groups, the smallest one that
    /// explains it.
    pub fn record_failure(
        &mut self,
        now: TimeMs,
        host: HostId,
        groups: &[(Group, u32)],
    ) -> Option<&Incident> {
        let joined = self.open.iter().position(|incident| {
            now < incident.until && groups.iter().any(|(group, _)| *group == incident.group)
        });
        for (group, _) in groups {
            self.make_room(group);
            let hosts = self.groups.entry(group.clone()).or_default();
            hosts.retain(|_, at| now.since(*at) <= TOGETHER_MS);
            hosts.insert(host, now);
        }
        if let Some(at) = joined {
            self.open[at].hosts.insert(host);
            return self.open.get(at);
        }
        let group = self.explains(groups)?.clone();
        let hosts = self.groups.get(&group)?.keys().copied().collect();
        self.open.push(Incident {
            group,
            since: now,
            until: now.after(HOLD_MS),
            hosts,
        });
        self.open.last()
    }

    /// The group that explains best why a number of hosts failed, if they are enough.
    fn explains<'a>(&self, groups: &'a [(Group, u32)]) -> Option<&'a Group> {
        let is_incident = |(group, size): &&(Group, u32)| {
            let bad = self.groups.get(group).map_or(0, BTreeMap::len);
            let (least, permille) = group.kind.threshold();
            bad >= least && bad as u64 * 1_000 >= u64::from(*size) * u64::from(permille)
        };
        let found = groups
            .iter()
            .filter(is_incident)
            .max_by_key(|(group, size)| {
                // The cluster as a whole explains least.
                (group.kind != GroupKind::Cluster, std::cmp::Reverse(*size))
            });
        let (found, size) = found?;
        // If all of them are in a smaller group, that is what they have in common. Most hosts have the same
        // driver: of one release, there must be enough for an incident on their own.
        let has_all = |(group, smaller): &&(Group, u32)| {
            let (all, theirs) = (self.groups.get(found), self.groups.get(group));
            let is_in = |host| theirs.is_some_and(|theirs| theirs.contains_key(host));
            let is_smaller = smaller < size && group.kind != GroupKind::Driver;
            is_smaller && all.is_some_and(|all| all.keys().all(is_in))
        };
        let narrower = groups.iter().filter(has_all).min_by_key(|(_, size)| *size);
        Some(narrower.map_or(found, |(group, _)| group))
    }

    /// The incident that includes a host.
    #[must_use]
    pub fn of(&self, host: HostId, now: TimeMs) -> Option<&Incident> {
        let holds = |it: &&Incident| now < it.until && it.hosts.contains(&host);
        self.open.iter().find(holds)
    }

    /// Open incidents.
    pub fn open(&self) -> impl Iterator<Item = &Incident> {
        self.open.iter()
    }

    /// End times of the open incidents.
    pub fn ends(&self) -> impl Iterator<Item = TimeMs> + '_ {
        self.open.iter().map(|incident| incident.until)
    }

    /// Ended incidents: all their work is placed again in one batch.
    pub fn over(&mut self, now: TimeMs) -> Vec<Incident> {
        let (over, open) = std::mem::take(&mut self.open)
            .into_iter()
            .partition(|incident| now >= incident.until);
        self.open = open;
        over
    }

    fn make_room(&mut self, group: &Group) {
        if self.groups.len() < GROUPS_MAX || self.groups.contains_key(group) {
            return;
        }
        let newest = |hosts: &BTreeMap<HostId, TimeMs>| hosts.values().max().copied();
        let oldest = self.groups.iter().min_by_key(|(_, hosts)| newest(hosts));
        if let Some(group) = oldest.map(|(group, _)| group.clone()) {
            self.groups.remove(&group);
        }
    }
}
