//! Registration of hosts, and host phases set by the leader.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_model::command::{GpuDescription, GpuHealth, HostHealth, HostRegistration};
use muster_model::event::EventKind;
use muster_model::health::Component;
use muster_model::host::{Gpu, Host};
use muster_model::ids::{GpuUuid, HostId, UnitId};
use muster_model::limits;
use muster_model::rejection::Rejection;
use muster_model::spec::Violation;
use muster_model::time::TimeMs;
use muster_model::topology::ReportedTopology;

use crate::apply::{Step, is_idle_component, violation};
use crate::state::{Answer, Running, UsageKind, amounts_held};

/// Signal of a GPU that its host no longer reports.
const SIGNAL_MISSING: &str = "missing";

impl Step<'_> {
    pub(in crate::apply) fn register_host(
        &mut self,
        registration: &HostRegistration,
    ) -> Result<Answer, Rejection> {
        if let Some(broken) = broken_rule(registration) {
            return Err(Rejection::InvalidRegistration(broken));
        }
        let known = self
            .state
            .host_names
            .get(registration.name.as_str())
            .copied();
        if let Some(id) = known {
            self.check_identity(id, registration)?;
        } else if self.state.hosts.len() >= limits::HOSTS_MAX {
            return Err(Rejection::ClusterFull {
                what: "hosts".to_owned(),
                limit_name: "HOSTS_MAX".to_owned(),
                limit: limits::HOSTS_MAX as u64,
            });
        }
        self.check_gpus(known, registration)?;
        let id = known.unwrap_or_else(|| self.add_host(registration));
        let has_booted = self
            .state
            .host(id)
            .is_some_and(|host| host.boot_id != registration.boot_id);
        self.update_host(id, known.is_none(), registration);
        if has_booted {
            self.note_reboot(id);
        }
        Ok(Answer::Host(id))
    }

    /// Returns the location that a host's worker reported last.
    fn reported_location(&self, id: HostId) -> Arc<ReportedTopology> {
        let host = self.state.host(id);
        host.map(|host| Arc::clone(&host.reported_topology))
            .unwrap_or_default()
    }

    /// Checks the identity: a name belongs to the worker that holds it until that one is lost and none of its
    /// work can run any more.
    fn check_identity(&self, id: HostId, registration: &HostRegistration) -> Result<(), Rejection> {
        let host = self.state.host(id).expect("hosts named by the state exist");
        if host.worker_id != registration.worker_id {
            return if host.health == HostHealth::Lost && self.is_idle(id) {
                Ok(())
            } else {
                Err(Rejection::HostIdentityTaken(registration.name.clone()))
            };
        }
        if registration.incarnation < host.incarnation {
            return Err(Rejection::StaleIncarnation {
                name: registration.name.clone(),
                given: registration.incarnation,
                current: host.incarnation,
            });
        }
        Ok(())
    }

    fn is_idle(&self, id: HostId) -> bool {
        is_idle_component(self.state, id, &Component::Host(id))
    }

    /// Checks the GPUs: a GPU belongs to one host and may change to another (a card moved, a host renamed)
    /// once its old host is lost and no attempt holds it.
    fn check_gpus(
        &self,
        known: Option<HostId>,
        registration: &HostRegistration,
    ) -> Result<(), Rejection> {
        for described in &registration.gpus {
            if let Some((host, gpu)) = self.state.gpu(described.uuid) {
                let movable = host.health == HostHealth::Lost && gpu.holder.is_none();
                if Some(host.id) != known && !movable {
                    return Err(Rejection::GpuClaimedTwice {
                        gpu: described.uuid,
                        holder: host.name.to_string(),
                    });
                }
            }
        }
        Ok(())
    }

    /// Adds a host of which only the name is known yet.
    fn add_host(&mut self, registration: &HostRegistration) -> HostId {
        let id = self
            .state
            .hosts
            .get_max()
            .map_or(HostId(1), |(id, _)| HostId(id.get() + 1));
        let name: Arc<str> = Arc::from(registration.name.as_str());
        let host = Host {
            id,
            name: Arc::clone(&name),
            address: String::new(),
            worker_id: registration.worker_id,
            incarnation: 0,
            boot_id: String::new(),
            health: HostHealth::Lost,
            health_since: self.state.time,
            one_way: false,
            block: None,
            planned: None,
            on_probation: false,
            no_gangs: false,
            gpus: Vec::new(),
            cpus_milli: 0,
            memory_mib: 0,
            cpus_milli_used: 0,
            memory_mib_used: 0,
            claims: Vec::new(),
            labels: BTreeMap::new(),
            reported_topology: Arc::default(),
            registered_at: self.state.time,
            desired_revision: self.state.revision,
        };
        self.state.host_names.insert(name, id);
        self.state.hosts.insert(id, Arc::new(host));
        self.replace_cells(id);
        id
    }

    fn update_host(&mut self, id: HostId, new: bool, registration: &HostRegistration) {
        self.give_up_claims_on(id, registration);
        let moved = self.take_from_lost_hosts(id, registration);
        let time = self.state.time;
        let (gpus, dropped) = self.merged_gpus(id, registration, moved);
        for uuid in dropped {
            self.state.gpu_hosts.remove(&uuid);
            self.state.health.forget(&Component::Gpu(uuid));
        }
        for gpu in &gpus {
            self.state.gpu_hosts.insert(gpu.uuid, id);
        }
        let changed = changed_healths(self.state.host(id), &gpus);
        let revalued = self.holders_of_changed_models(id, &gpus);
        self.count_usage(&revalued, false);
        let reported_before = self.reported_location(id);
        let uuids = |gpus: &[Gpu]| gpus.iter().map(|gpu| gpu.uuid).collect::<Vec<_>>();
        let (has_changed, returned) = self.edit_host(id, |host| {
            let has_changed = uuids(&host.gpus) != uuids(&gpus)
                || host.incarnation != registration.incarnation
                || host.boot_id != registration.boot_id;
            let returned = host.health != HostHealth::Up;
            if returned {
                host.health = HostHealth::Up;
                host.health_since = time;
                host.one_way = false;
            }
            host.reported_topology = place_of(host, &gpus, registration);
            host.gpus = gpus;
            describe(host, registration);
            (has_changed, returned)
        });
        self.count_usage(&revalued, true);
        self.refresh_limits(id);
        self.update_location(id, &reported_before);
        self.emit_registration(id, registration, has_changed || new, returned && !new);
        for (uuid, health) in changed {
            self.emit(EventKind::GpuHealthChanged {
                gpu: uuid,
                host: id,
                host_name: registration.name.clone(),
                health: health.clone(),
            });
            if health != GpuHealth::Healthy {
                self.stop_holder(uuid);
            }
        }
    }

    /// Returns the units that hold a GPU whose model is about to change: usage counts GPUs by model.
    fn holders_of_changed_models(&self, id: HostId, gpus: &[Gpu]) -> BTreeSet<UnitId> {
        let known = self.state.host(id).map_or(&[][..], |host| &host.gpus);
        let model = |uuid: GpuUuid| {
            gpus.iter()
                .find(|gpu| gpu.uuid == uuid)
                .map(|gpu| &gpu.model)
        };
        let changed = known
            .iter()
            .filter(|gpu| model(gpu.uuid).is_some_and(|now| *now != gpu.model));
        changed
            .filter_map(|gpu| gpu.holder)
            .map(|holder| holder.unit_id())
            .collect()
    }

    /// Adds what the attempts of these units hold to their queues' usage, or subtracts it.
    fn count_usage(&mut self, units: &BTreeSet<UnitId>, added: bool) {
        for unit in units {
            let Some(Running { job, attempt, .. }) = Running::of(self.state, *unit) else {
                continue;
            };
            let amounts = amounts_held(&self.state.hosts, &job.spec, attempt);
            let (spec, part) = (Arc::clone(&job.spec), UsageKind::held_by(attempt));
            if added {
                self.state.index.add_usage(&spec, part, &amounts);
            } else {
                self.state.index.remove_usage(&spec, part, &amounts);
            }
        }
    }

    fn emit_registration(
        &mut self,
        host: HostId,
        registration: &HostRegistration,
        has_changed: bool,
        returned: bool,
    ) {
        if has_changed {
            self.emit(EventKind::HostRegistered {
                host,
                name: registration.name.clone(),
                gpus: u32::try_from(registration.gpus.len()).unwrap_or(u32::MAX),
            });
        }
        if returned {
            self.emit(EventKind::HostHealthChanged {
                host,
                name: registration.name.clone(),
                health: HostHealth::Up,
                one_way: false,
            });
        }
    }

    /// Removes the reported GPUs from lost hosts that had them.
    fn take_from_lost_hosts(&mut self, id: HostId, registration: &HostRegistration) -> Vec<Gpu> {
        let mut moved = Vec::new();
        for described in &registration.gpus {
            let owner = self.state.gpu_hosts.get(&described.uuid).copied();
            if let Some(owner) = owner.filter(|owner| *owner != id) {
                self.edit_host(owner, |host| {
                    let all = std::mem::take(&mut host.gpus);
                    let (taken, left) = all.into_iter().partition(|gpu| gpu.uuid == described.uuid);
                    host.gpus = left;
                    moved.extend::<Vec<Gpu>>(taken);
                });
                self.replace_cells(owner);
                self.refresh_limits(owner);
            }
        }
        moved
    }

    /// Returns the host's GPUs after a registration, and the removed ones.
    ///
    /// A GPU keeps its health, block and holder. A GPU that is no longer reported is kept as missing while an
    /// attempt holds it or an admin has blocked it.
    fn merged_gpus(
        &self,
        id: HostId,
        registration: &HostRegistration,
        moved: Vec<Gpu>,
    ) -> (Vec<Gpu>, Vec<GpuUuid>) {
        let time = self.state.time;
        let host = self.state.host(id).expect("hosts named by the state exist");
        let presented: BTreeSet<GpuUuid> = registration.gpus.iter().map(|gpu| gpu.uuid).collect();
        let known = |uuid: GpuUuid| host.gpus.iter().chain(&moved).find(|gpu| gpu.uuid == uuid);
        let mut gpus: Vec<Gpu> = registration
            .gpus
            .iter()
            .map(|described| presented_gpu(described, known(described.uuid), time))
            .collect();
        gpus.sort_by_key(|gpu| (gpu.index, gpu.uuid));
        let absent = host
            .gpus
            .iter()
            .filter(|gpu| !presented.contains(&gpu.uuid));
        let (kept, dropped): (Vec<&Gpu>, Vec<&Gpu>) =
            absent.partition(|gpu| gpu.holder.is_some() || gpu.block.is_some());
        gpus.extend(kept.into_iter().map(|gpu| missing_gpu(gpu, time)));
        (gpus, dropped.into_iter().map(|gpu| gpu.uuid).collect())
    }
}

/// Returns the location of a registering host: as reported by its worker, and as last known for kept GPUs
/// that are no longer reported.
fn place_of(host: &Host, gpus: &[Gpu], registration: &HostRegistration) -> Arc<ReportedTopology> {
    let is_presented = |gpu: &&Gpu| registration.gpus.iter().any(|given| given.uuid == gpu.uuid);
    let absent = gpus.iter().filter(|gpu| !is_presented(gpu));
    let tree = registration.reported.clone();
    let tree = tree.with_absent(&host.reported_topology, absent.map(|gpu| gpu.uuid));
    if tree == *host.reported_topology {
        Arc::clone(&host.reported_topology)
    } else {
        Arc::new(tree)
    }
}

fn describe(host: &mut Host, registration: &HostRegistration) {
    host.address.clone_from(&registration.address);
    host.worker_id = registration.worker_id;
    host.incarnation = registration.incarnation;
    host.boot_id.clone_from(&registration.boot_id);
    host.cpus_milli = registration.cpus_milli;
    host.memory_mib = registration.memory_mib;
    host.labels.clone_from(&registration.labels);
}

fn presented_gpu(described: &GpuDescription, known: Option<&Gpu>, time: TimeMs) -> Gpu {
    let mut gpu = known.cloned().unwrap_or_else(|| Gpu {
        uuid: described.uuid,
        index: described.index,
        model: Arc::from(described.model.as_str()),
        memory_mib: described.memory_mib,
        health: GpuHealth::Healthy,
        health_since: time,
        block: None,
        holder: None,
        claim: None,
    });
    gpu.index = described.index;
    if *gpu.model != *described.model {
        gpu.model = Arc::from(described.model.as_str());
    }
    gpu.memory_mib = described.memory_mib;
    if is_missing(&gpu.health) {
        gpu.health = GpuHealth::Healthy;
        gpu.health_since = time;
    }
    gpu
}

fn missing_gpu(gpu: &Gpu, time: TimeMs) -> Gpu {
    if is_missing(&gpu.health) {
        return gpu.clone();
    }
    Gpu {
        health: GpuHealth::Faulted {
            signal: SIGNAL_MISSING.to_owned(),
            detail: "its host no longer presents it".to_owned(),
        },
        health_since: time,
        ..gpu.clone()
    }
}

fn is_missing(health: &GpuHealth) -> bool {
    matches!(health, GpuHealth::Faulted { signal, .. } if signal == SIGNAL_MISSING)
}

/// Returns the GPUs whose health differs from the host's record, with their new health.
fn changed_healths(host: Option<&Host>, gpus: &[Gpu]) -> Vec<(GpuUuid, GpuHealth)> {
    let before = |uuid: GpuUuid| host?.gpus.iter().find(|gpu| gpu.uuid == uuid);
    gpus.iter()
        .filter(|gpu| before(gpu.uuid).is_some_and(|known| known.health != gpu.health))
        .map(|gpu| (gpu.uuid, gpu.health.clone()))
        .collect()
}

/// Returns the first rule that a registration breaks.
fn broken_rule(registration: &HostRegistration) -> Option<Violation> {
    broken_text(registration)
        .or_else(|| broken_gpus(&registration.gpus))
        .or_else(|| registration.reported.broken_rule("reported"))
}

/// Whether commands can name a host: brackets and commas separate lists of hosts (`node[01-16],gpu5`), a slash
/// separates a GPU.
fn is_addressable(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    name.bytes().all(is_plain) && name.starts_with(|first: char| first.is_ascii_alphanumeric())
}

fn broken_text(registration: &HostRegistration) -> Option<Violation> {
    let HostRegistration {
        name,
        address,
        boot_id,
        labels,
        ..
    } = registration;
    for (field, text) in [("name", name), ("address", address), ("boot_id", boot_id)] {
        if text.is_empty() || text.len() > limits::NAME_BYTES_MAX || has_control(text) {
            return Some(name_rule(field));
        }
    }
    if !is_addressable(name) {
        let rule = "must consist of letters, digits, `.`, `_` and `-`, and begin with a letter or a digit: no command \
                    could name the host otherwise";
        return Some(violation("name", rule.to_owned()));
    }
    if labels.len() > limits::LABELS_MAX {
        return Some(too_many(
            "labels",
            labels.len(),
            "LABELS_MAX",
            limits::LABELS_MAX,
        ));
    }
    labels
        .iter()
        .find(|(name, value)| {
            name.is_empty()
                || name.len() > limits::NAME_BYTES_MAX
                || value.len() > limits::TEXT_BYTES_MAX
        })
        .map(|_| {
            let rule = format!(
                "names must have 1 to {} bytes (NAME_BYTES_MAX), values at most {} (TEXT_BYTES_MAX)",
                limits::NAME_BYTES_MAX,
                limits::TEXT_BYTES_MAX
            );
            violation("labels", rule)
        })
}

fn broken_gpus(gpus: &[GpuDescription]) -> Option<Violation> {
    if gpus.len() > limits::GPUS_PER_HOST_MAX {
        let limit = limits::GPUS_PER_HOST_MAX;
        return Some(too_many("gpus", gpus.len(), "GPUS_PER_HOST_MAX", limit));
    }
    let mut seen = BTreeSet::new();
    for (position, gpu) in gpus.iter().enumerate() {
        if !seen.insert(gpu.uuid) {
            let rule = format!("{} is presented twice", gpu.uuid);
            return Some(violation(&format!("gpus[{position}].uuid"), rule));
        }
        let model = &gpu.model;
        if model.is_empty() || model.len() > limits::NAME_BYTES_MAX || has_control(model) {
            return Some(name_rule(&format!("gpus[{position}].model")));
        }
    }
    None
}

fn has_control(text: &str) -> bool {
    text.chars().any(char::is_control)
}

fn name_rule(field: &str) -> Violation {
    let rule = format!(
        "must have 1 to {} bytes (NAME_BYTES_MAX) and no control characters",
        limits::NAME_BYTES_MAX
    );
    violation(field, rule)
}

fn too_many(field: &str, given: usize, limit_name: &str, limit: usize) -> Violation {
    violation(
        field,
        format!("{given} are over the limit of {limit} ({limit_name})"),
    )
}
