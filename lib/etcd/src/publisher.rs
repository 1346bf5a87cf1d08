//! Publisher: a replica publishes itself in etcd, and as leader the leader's key and the current
//! allocations.
//!
//! Nothing is queued: the desired content is known at any time, so an etcd that is down for hours costs no
//! memory. A change with an unknown outcome (no answer came) is repaired by reading the current content and
//! writing the difference, which is also how a new leader begins, and what is done periodically in case of
//! foreign writes.
//!
//! # Write fencing
//!
//! A leader's *epoch* is the revision at which its leadership began; of two leaders the newer has the
//! larger. The key `epoch` has that of the newest leader that has written, and outlives its lease. A leader
//! first raises it, by a transaction that succeeds only if it is unchanged; every later transaction
//! succeeds only while the key has this epoch. So a deposed leader that does not know it yet changes
//! nothing once its successor has begun to write.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::TxnOp;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::backoff::backoff;
use crate::connection::Etcd;
use crate::error::EtcdError;
use crate::failure_log::FailureLog;
use crate::keys::Keys;
use crate::lease::Lease;
use crate::mirror::{self, Change, Contents};
use crate::records::{self, FORMAT, Leader, Replica, epoch_text};
use crate::telemetry;
use crate::txn;

/// Interval of rounds: changes within it are written together.
const ROUND_EVERY: Duration = Duration::from_millis(200);
/// Interval of a full comparison even without failures, in case of foreign writes.
const AUDIT_EVERY: Duration = Duration::from_secs(300);
/// Timeout of etcd calls at shutdown.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

/// Source of the content that a replica publishes.
pub trait Publication: Send {
    /// This replica's leadership epoch while it leads.
    fn leadership_epoch(&self) -> Option<u64>;

    /// Desired content of the plan's keys. Called on the leader only.
    fn plan(&mut self) -> Contents;

    /// Waits until the epoch or the plan may have changed.
    fn changed(&mut self) -> impl Future<Output = ()> + Send;
}

/// Health of this replica's etcd connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// No call was made yet.
    #[default]
    Unknown,
    /// Calls succeed.
    Ok,
    /// Calls fail, with the reason.
    Failing(String),
}

impl Health {
    /// Returns one line for operators.
    #[must_use]
    pub fn line(&self) -> String {
        match self {
            Self::Unknown => "etcd: not asked yet".to_owned(),
            Self::Ok => "etcd: works".to_owned(),
            Self::Failing(reason) => {
                format!("etcd: fails (running work does not depend on it): {reason}")
            }
        }
    }
}

/// Keeps the keys of one replica, and of the cluster while it leads, up to date.
#[derive(Debug)]
pub struct Publisher<P> {
    etcd: Etcd,
    keys: Keys,
    own: Replica,
    source: P,
    lease: Lease,
    /// Lease under which this replica's key was written.
    published_under_lease: Option<i64>,
    /// Epoch of this replica that etcd has accepted, and the lease under which its key as leader was
    /// written.
    leads: Option<(u64, i64)>,
    /// Leadership epoch last reported by the source.
    reported_epoch: Option<u64>,
    /// The plan as it is in etcd; none if unknown.
    published_plan: Option<Contents>,
    read_at: Instant,
    /// Time at which the plan in etcd was last up to date.
    up_to_date_at: Instant,
    health: watch::Sender<Health>,
}

impl<P: Publication> Publisher<P> {
    /// Creates a publisher of the replica `own`, with a lease of `lease_seconds` seconds.
    pub fn new(etcd: Etcd, keys: Keys, own: Replica, lease_seconds: u64, source: P) -> Self {
        let now = Instant::now();
        Self {
            etcd,
            keys,
            own,
            source,
            lease: Lease::new(lease_seconds),
            published_under_lease: None,
            leads: None,
            reported_epoch: None,
            published_plan: None,
            read_at: now,
            up_to_date_at: now,
            health: watch::Sender::default(),
        }
    }

    /// Health of etcd as last observed.
    #[must_use]
    pub fn health(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }

    /// Publishes until `stop`; then the published keys are removed, as far as etcd allows it.
    pub async fn run(mut self, stop: CancellationToken) {
        telemetry::up(false);
        let mut backoff = backoff();
        let mut failure_log = FailureLog::new("publishing");
        while !stop.is_cancelled() {
            let round = stop.run_until_cancelled(self.round()).await;
            let Some(outcome) = round else { break };
            let pause = match outcome {
                Ok(is_whole) => {
                    failure_log.record_success();
                    backoff.reset();
                    self.set_health(Health::Ok);
                    if is_whole {
                        stop.run_until_cancelled(self.idle()).await;
                    }
                    ROUND_EVERY
                }
                Err(error) => {
                    failure_log.record_failure(&error);
                    self.published_plan = None;
                    self.set_health(Health::Failing(error.to_string()));
                    backoff.next_wait()
                }
            };
            self.measure();
            stop.run_until_cancelled(sleep(pause)).await;
        }
        if !matches!(timeout(LEAVE_TIMEOUT, self.leave()).await, Ok(Ok(()))) {
            tracing::info!("this replica's keys remain in etcd until its lease expires");
        }
    }

    /// Brings etcd up to date; returns whether it is.
    async fn round(&mut self) -> Result<bool, EtcdError> {
        let lease = self.lease.ensure(&mut self.etcd).await?;
        if self.read_at.elapsed() >= AUDIT_EVERY {
            (self.published_under_lease, self.published_plan) = (None, None);
            self.leads = self.leads.map(|(epoch, _)| (epoch, 0));
        }
        if self.published_under_lease != Some(lease) {
            let put = txn::put_under(
                lease,
                &self.keys.replica(self.own.id),
                &records::encode(&self.own),
            );
            self.etcd.txn(Vec::new(), vec![put]).await?;
            self.published_under_lease = Some(lease);
            self.read_at = Instant::now();
        }
        let epoch = self.source.leadership_epoch();
        if epoch != self.reported_epoch {
            (self.reported_epoch, self.up_to_date_at) = (epoch, Instant::now());
        }
        match epoch {
            Some(epoch) => {
                self.lead(epoch, lease).await?;
                self.mirror(epoch, lease).await
            }
            None => self.resign().await.map(|()| true),
        }
    }

    /// Publishes that this replica leads, unless a newer leader has written.
    async fn lead(&mut self, epoch: u64, lease: i64) -> Result<(), EtcdError> {
        if self.leads == Some((epoch, lease)) {
            return Ok(());
        }
        let (key, text) = (self.keys.epoch(), epoch_text(epoch));
        let condition = match self.etcd.get(&key).await? {
            None => txn::is_absent(&key),
            Some(stored) if stored.value() > text.as_bytes() => {
                return Err(EtcdError::Superseded { epoch });
            }
            Some(stored) => txn::is_unchanged(&key, stored.mod_revision()),
        };
        let record = records::encode(&Leader {
            format: FORMAT,
            id: self.own.id,
            address: self.own.address.clone(),
            epoch,
        });
        let puts = vec![
            txn::put(&key, &text),
            txn::put_under(lease, &self.keys.leader(), &record),
        ];
        if !self.etcd.txn(vec![condition], puts).await? {
            return Err(EtcdError::Superseded { epoch });
        }
        if self.leads.map(|(epoch, _)| epoch) != Some(epoch) {
            tracing::info!(epoch, "this replica is published in etcd as the leader");
            self.published_plan = None;
        }
        self.leads = Some((epoch, lease));
        Ok(())
    }

    /// Brings the plan in etcd up to date; false if the epoch has changed, which the next round handles.
    async fn mirror(&mut self, epoch: u64, lease: i64) -> Result<bool, EtcdError> {
        if self.published_plan.is_none() {
            self.published_plan = Some(read_plan(&mut self.etcd, &self.keys).await?);
            self.read_at = Instant::now();
        }
        let wanted = self.source.plan();
        let present = self.published_plan.get_or_insert_default();
        let changes = mirror::changes(present, &wanted);
        for batch in mirror::batches(changes) {
            // Many batches may take longer than the lease. A new lease is left to the next round.
            if self.lease.ensure(&mut self.etcd).await? != lease {
                return Ok(false);
            }
            let condition = txn::has_value(&self.keys.epoch(), &epoch_text(epoch));
            let operations = batch.iter().map(operation).collect();
            if !self.etcd.txn(vec![condition], operations).await? {
                (self.leads, self.published_plan) = (None, None);
                return Ok(false);
            }
            let is_put = |change: &&Change| matches!(change, Change::Put(..));
            let puts = batch.iter().filter(is_put).count();
            telemetry::wrote(puts, batch.len() - puts);
            mirror::apply(present, batch);
        }
        self.up_to_date_at = Instant::now();
        Ok(true)
    }

    /// Removes this replica's key as leader, unless another leader has replaced it.
    async fn resign(&mut self) -> Result<(), EtcdError> {
        let Some((epoch, _)) = self.leads else {
            return Ok(());
        };
        let condition = txn::has_value(&self.keys.epoch(), &epoch_text(epoch));
        let delete = txn::delete(&self.keys.leader());
        self.etcd.txn(vec![condition], vec![delete]).await?;
        (self.leads, self.published_plan) = (None, None);
        Ok(())
    }

    /// Removes all keys under the lease.
    async fn leave(&mut self) -> Result<(), EtcdError> {
        self.resign().await?;
        self.lease.end(&mut self.etcd).await
    }

    /// Waits until there is work to do.
    async fn idle(&mut self) {
        let audit = self.read_at + AUDIT_EVERY;
        let due = self.lease.due_at().min(audit);
        tokio::select! {
            () = self.source.changed() => {}
            () = sleep_until(due) => {}
        }
    }

    fn set_health(&self, health: Health) {
        telemetry::up(health == Health::Ok);
        self.health.send_if_modified(|now| {
            let is_other = *now != health;
            *now = health;
            is_other
        });
    }

    fn measure(&self) {
        let is_whole = self.published_plan.is_some() || self.reported_epoch.is_none();
        let lag = self.up_to_date_at.elapsed();
        telemetry::lag(if is_whole { Duration::ZERO } else { lag });
        telemetry::keys(self.published_plan.as_ref().map_or(0, Contents::len));
    }
}

async fn read_plan(etcd: &mut Etcd, keys: &Keys) -> Result<Contents, EtcdError> {
    let listing = etcd.list(&keys.plan()).await?;
    let pairs = listing.kvs.into_iter().map(|it| {
        let key = String::from_utf8_lossy(it.key()).into_owned();
        // A value that is not text is not ours, and is overwritten.
        (key, Arc::from(String::from_utf8_lossy(it.value())))
    });
    Ok(pairs.collect())
}

fn operation(change: &Change) -> TxnOp {
    match change {
        Change::Put(key, value) => txn::put(key, value),
        Change::Delete(key) => txn::delete(key),
    }
}
