//! Health input of the decision loop to the monitor, and the host id in findings.

use std::collections::{BTreeMap, VecDeque};

use muster_control::agent::Input;
use muster_model::beat::Beat;
use muster_model::command::GpuHealth;
use muster_model::health::Component;
use muster_model::ids::{GpuUuid, HostId, Revision};
use muster_model::time::MonotonicMs;
use muster_proto::v1::injection::What;

use crate::driver::own_signs::OwnSigns;
use crate::gpu::{InjectError, XidSeen};
use crate::health::{HealthDesk, Injected, Sample, Seen};
use crate::limits::XIDS_WAITING_MAX;

/// What was sent to the health monitor and what could not be sent yet: the loop never waits for it.
pub(crate) struct Health {
    desk: HealthDesk,
    /// GPUs whose newest health was not sent.
    missed: BTreeMap<GpuUuid, GpuHealth>,
    /// XIDs of the driver that were not sent.
    xids: VecDeque<XidSeen>,
    heard: Told<u64>,
    rules: Told<(Revision, u64)>,
    own_signs: OwnSigns,
}

/// The newest value and whether it was sent.
#[derive(Debug, Default)]
struct Told<T> {
    newest: T,
    is_told: bool,
}

impl<T: Copy + PartialEq> Told<T> {
    fn set(&mut self, newest: T) {
        if self.newest != newest {
            self.newest = newest;
            self.is_told = false;
        }
    }
}

impl Health {
    pub(crate) fn new(desk: HealthDesk) -> Self {
        Self {
            desk,
            missed: BTreeMap::new(),
            xids: VecDeque::new(),
            // The monitor starts with no acknowledged findings and the default rules.
            heard: Told {
                newest: 0,
                is_told: true,
            },
            rules: Told {
                newest: (Revision::default(), 0),
                is_told: true,
            },
            own_signs: OwnSigns::default(),
        }
    }

    /// Injects a fault into the monitor, if the GPUs are simulated.
    ///
    /// # Errors
    /// The reason for refusal.
    pub(super) fn inject(&self, what: What, is_simulated: bool) -> Result<(), String> {
        if !is_simulated {
            return Err(InjectError::Real.to_string());
        }
        let injected = Injected::of(what)?;
        let sent = self.desk.injected.try_send(injected);
        sent.map_err(|_| InjectError::Busy.to_string())
    }

    /// Takes the health of a GPU.
    pub(super) fn gpu(&mut self, gpu: GpuUuid, health: GpuHealth) {
        self.desk.shown.send_modify(|shown| {
            shown.insert(gpu, health.clone());
        });
        self.missed.insert(gpu, health);
        self.tell_again();
    }

    /// Takes an XID that the driver reported.
    pub(super) fn xid(&mut self, gpu: GpuUuid, code: u32) {
        if self.xids.len() >= XIDS_WAITING_MAX {
            self.xids.pop_front();
        }
        self.xids.push_back((gpu, code));
        self.tell_again();
    }

    /// Signs of faults that the agent notices in its own work.
    pub(super) const fn own_signs(&mut self) -> &mut OwnSigns {
        &mut self.own_signs
    }

    /// Advances the time.
    pub(super) fn tick(&mut self, now: MonotonicMs) {
        for sample in self.own_signs.tick(now) {
            self.read(Some(sample));
        }
        self.tell_again();
    }

    /// Takes readings; they are dropped if the queue is full, since they are read again soon.
    pub(super) fn read(&self, sample: Option<Sample>) {
        if let Some(sample) = sample {
            drop(self.desk.seen.try_send(Seen::Samples(vec![sample])));
        }
    }

    /// Takes the part of an input that concerns health.
    pub(super) fn note(&mut self, input: &Input) {
        match input {
            // A late message is older than what is known.
            Input::Desired(desired) if desired.health.heard > self.heard.newest => {
                self.heard.set(desired.health.heard);
                self.tell_again();
            }
            _ => {}
        }
    }

    /// Sets the rules in force: the revision that set them and the fingerprint of their file.
    pub(super) fn rules(&mut self, rules: (Revision, u64)) {
        if self.rules.newest != rules {
            self.rules.set(rules);
            self.tell_again();
        }
    }

    /// Sends what could not be sent before.
    pub(super) fn tell_again(&mut self) {
        let seen = &self.desk.seen;
        while let Some((gpu, health)) = self.missed.pop_first() {
            if seen.try_send(Seen::Gpu(gpu, health.clone())).is_err() {
                self.missed.insert(gpu, health);
                return;
            }
        }
        while let Some((gpu, code)) = self.xids.pop_front() {
            if seen.try_send(Seen::Xid(gpu, code)).is_err() {
                self.xids.push_front((gpu, code));
                return;
            }
        }
        if !self.heard.is_told {
            self.heard.is_told = seen.try_send(Seen::Heard(self.heard.newest)).is_ok();
        }
        if !self.rules.is_told {
            let (revision, sum) = self.rules.newest;
            self.rules.is_told = seen.try_send(Seen::Rules(revision, sum)).is_ok();
        }
    }
}

/// Fills in the host's id: findings may be made before the leader assigns it.
pub(super) fn name_host(beat: &mut Beat, id: HostId) {
    let findings = beat.status.iter_mut().flat_map(|it| &mut it.findings);
    for finding in findings {
        match &mut finding.component {
            Component::Host(host) | Component::Nic { host, .. } => *host = id,
            Component::Gpu(_) | Component::Rack(_) => {}
        }
    }
}
