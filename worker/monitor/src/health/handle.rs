//! Input of the agent's decision loop to the health monitor.

use std::collections::{BTreeMap, VecDeque};

use muster_model::command::GpuHealth;
use muster_model::desired::CountedFindings;
use muster_model::health::Order;
use muster_model::ids::{GpuUuid, Revision};
use muster_proto::v1::injection::What;
use tokio::sync::{mpsc, watch};

use crate::gpu::{InjectError, XidEvent};
use crate::health::injected::Injected;
use crate::health::{Observation, Sample};
use crate::limits::XIDS_WAITING_MAX;

/// Channels to the parts of the monitor.
pub(super) struct Channels {
    /// For observations.
    pub(super) seen: mpsc::Sender<Observation>,
    /// For faults injected in drills.
    pub(super) injected: mpsc::Sender<Injected>,
    /// For orders of repairs and checks.
    pub(super) orders: mpsc::Sender<Order>,
    /// The health reported for each GPU.
    pub(super) shown: watch::Sender<BTreeMap<GpuUuid, GpuHealth>>,
}

/// Sends input to the health monitor without waiting for it, and keeps what could not be sent yet.
pub struct HealthHandle {
    channels: Channels,
    /// GPUs whose newest health was not sent.
    missed: BTreeMap<GpuUuid, GpuHealth>,
    /// XIDs of the driver that were not sent.
    xids: VecDeque<XidEvent>,
    acknowledged: Sent<u64>,
    rules: Sent<(Revision, u64)>,
    counted: Sent<CountedFindings>,
}

/// The newest value and whether it was sent.
#[derive(Debug)]
struct Sent<T> {
    newest: T,
    is_sent: bool,
}

impl<T> Sent<T> {
    /// A value that the monitor starts with.
    const fn initial(newest: T) -> Self {
        Self {
            newest,
            is_sent: true,
        }
    }

    fn set(&mut self, newest: T) {
        self.newest = newest;
        self.is_sent = false;
    }
}

impl HealthHandle {
    /// The monitor starts with no acknowledged or counted findings and the default rules.
    pub(super) fn new(channels: Channels) -> Self {
        Self {
            channels,
            missed: BTreeMap::new(),
            xids: VecDeque::new(),
            acknowledged: Sent::initial(0),
            rules: Sent::initial((Revision::default(), 0)),
            counted: Sent::initial(CountedFindings::default()),
        }
    }

    /// Queue of the repairs and checks that the leader orders.
    #[must_use]
    pub fn orders(&self) -> mpsc::Sender<Order> {
        self.channels.orders.clone()
    }

    /// Injects a fault into the monitor, if the GPUs are simulated.
    ///
    /// # Errors
    /// The reason for refusal.
    pub fn inject(&self, what: What, is_simulated: bool) -> Result<(), String> {
        if !is_simulated {
            return Err(InjectError::Real.to_string());
        }
        let injected = Injected::of(what)?;
        let sent = self.channels.injected.try_send(injected);
        sent.map_err(|_| InjectError::Busy.to_string())
    }

    /// Takes the health of a GPU.
    pub fn gpu(&mut self, gpu: GpuUuid, health: GpuHealth) {
        self.channels.shown.send_modify(|shown| {
            shown.insert(gpu, health.clone());
        });
        self.missed.insert(gpu, health);
        self.resend();
    }

    /// Takes an XID that the driver reported.
    pub fn xid(&mut self, gpu: GpuUuid, code: u32) {
        if self.xids.len() >= XIDS_WAITING_MAX {
            self.xids.pop_front();
        }
        self.xids.push_back((gpu, code));
        self.resend();
    }

    /// Takes a reading; it is dropped if the queue is full, since it is read again soon.
    pub fn sample(&self, sample: Sample) {
        drop(
            self.channels
                .seen
                .try_send(Observation::Samples(vec![sample])),
        );
    }

    /// The leader has acknowledged all findings up to this sequence number; a late message, which is older
    /// than what is known, is ignored.
    pub fn acknowledged(&mut self, sequence: u64) {
        if sequence > self.acknowledged.newest {
            self.acknowledged.set(sequence);
            self.resend();
        }
    }

    /// Sets the rules in force: the revision that set them and the fingerprint of their file.
    pub fn rules(&mut self, rules: (Revision, u64)) {
        if self.rules.newest != rules {
            self.rules.set(rules);
            self.resend();
        }
    }

    /// Takes the findings that the cluster counts against this host.
    pub fn counted(&mut self, counted: &CountedFindings) {
        if self.counted.newest != *counted {
            self.counted.set(counted.clone());
            self.resend();
        }
    }

    /// Sends what could not be sent before.
    pub fn resend(&mut self) {
        let seen = &self.channels.seen;
        while let Some((gpu, health)) = self.missed.pop_first() {
            if seen
                .try_send(Observation::Gpu(gpu, health.clone()))
                .is_err()
            {
                self.missed.insert(gpu, health);
                return;
            }
        }
        while let Some((gpu, code)) = self.xids.pop_front() {
            if seen.try_send(Observation::Xid(gpu, code)).is_err() {
                self.xids.push_front((gpu, code));
                return;
            }
        }
        if !self.acknowledged.is_sent {
            let number = self.acknowledged.newest;
            self.acknowledged.is_sent = seen.try_send(Observation::Acknowledged(number)).is_ok();
        }
        if !self.rules.is_sent {
            let (revision, sum) = self.rules.newest;
            self.rules.is_sent = seen.try_send(Observation::Rules(revision, sum)).is_ok();
        }
        if !self.counted.is_sent {
            let counted = self.counted.newest.clone();
            self.counted.is_sent = seen.try_send(Observation::Counted(counted)).is_ok();
        }
    }
}
