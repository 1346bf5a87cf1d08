//! The decision loop's side of health: what the watch must hear, and by which number the cluster knows this host.

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

/// What the watch over this host's health was told, and what it could not be told yet: the loop never waits for it.
pub(crate) struct Health {
    desk: HealthDesk,
    /// GPUs whose newest health it does not know.
    missed: BTreeMap<GpuUuid, GpuHealth>,
    /// XIDs of the driver that it does not know.
    xids: VecDeque<XidSeen>,
    heard: Told<u64>,
    rules: Told<(Revision, u64)>,
    own_signs: OwnSigns,
}

/// The newest of something, and whether it was told.
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
            // Nothing was heard and the shipped rules are in force: that is known.
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

    /// Makes the watch see something, where the GPUs are simulated.
    ///
    /// # Errors
    /// Why it does not.
    pub(super) fn inject(&self, what: What, is_simulated: bool) -> Result<(), String> {
        if !is_simulated {
            return Err(InjectError::Real.to_string());
        }
        let injected = Injected::of(what)?;
        let sent = self.desk.injected.try_send(injected);
        sent.map_err(|_| InjectError::Busy.to_string())
    }

    /// Takes what a GPU shows.
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

    /// What the agent knows of the host by its own work.
    pub(super) const fn own_signs(&mut self) -> &mut OwnSigns {
        &mut self.own_signs
    }

    /// Lets time pass.
    pub(super) fn tick(&mut self, now: MonotonicMs) {
        for sample in self.own_signs.tick(now) {
            self.read(Some(sample));
        }
        self.tell_again();
    }

    /// Takes what was read; what finds no room is read again soon.
    pub(super) fn read(&self, sample: Option<Sample>) {
        if let Some(sample) = sample {
            drop(self.desk.seen.try_send(Seen::Samples(vec![sample])));
        }
    }

    /// Takes what of an input is about health.
    pub(super) fn note(&mut self, input: &Input) {
        match input {
            // One that came late says less than is known.
            Input::Desired(desired) if desired.health.heard > self.heard.newest => {
                self.heard.set(desired.health.heard);
                self.tell_again();
            }
            _ => {}
        }
    }

    /// The rules that are in force: the revision that set them, and by what their file is known.
    pub(super) fn rules(&mut self, rules: (Revision, u64)) {
        if self.rules.newest != rules {
            self.rules.set(rules);
            self.tell_again();
        }
    }

    /// Tells what could not be told before.
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

/// Puts in by which number the cluster knows this host: findings are made before anybody has said it.
pub(super) fn name_host(beat: &mut Beat, id: HostId) {
    let findings = beat.status.iter_mut().flat_map(|it| &mut it.findings);
    for finding in findings {
        match &mut finding.component {
            Component::Host(host) | Component::Nic { host, .. } => *host = id,
            Component::Gpu(_) | Component::Rack(_) => {}
        }
    }
}
