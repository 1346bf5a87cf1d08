//! A replica writes itself into etcd, and as leader the leader's key and what runs where.
//!
//! Nothing is queued: what there should be is known at any time, so an etcd that is away for hours costs no memory. A change that
//! may or may not have been made (no answer came) is made good by reading what is there and writing what differs, which is also how
//! a new leader begins, and what is done now and then in case somebody else has written.
//!
//! # Who may write
//!
//! A leader's *epoch* is the revision at which it began to lead; of two leaders the newer has the larger. The key `epoch` has that of
//! the newest leader that has written, and outlives its lease. A leader first raises it, by a transaction that holds only while
//! nobody else has; every later transaction holds only while the key still says the same. So whoever was deposed and does not know
//! it yet changes nothing once its successor has begun to write.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::TxnOp;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::complaint::Complaint;
use crate::connection::Etcd;
use crate::error::EtcdError;
use crate::keys::Keys;
use crate::lease::Lease;
use crate::mirror::{self, Change, Contents};
use crate::records::{self, FORMAT, Leader, Replica, epoch_text};
use crate::telemetry;
use crate::txn;

/// Pause between two rounds: changes of that time are written together.
const ROUND_EVERY: Duration = Duration::from_millis(200);
/// How often everything is read and written again though nothing failed: somebody else may have changed it.
const AUDIT_EVERY: Duration = Duration::from_secs(300);
/// Longest wait for etcd at a stop.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

/// What a replica has to say.
pub trait Publication: Send {
    /// This replica's epoch while it leads.
    fn reign(&self) -> Option<u64>;

    /// What the keys of the plan should be now. Asked of the leader alone.
    fn plan(&mut self) -> Contents;

    /// Waits until one of both may have changed.
    fn changed(&mut self) -> impl Future<Output = ()> + Send;
}

/// Whether etcd does what this replica asks it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// It was not asked yet.
    #[default]
    Unknown,
    /// It does.
    Works,
    /// It does not, and why.
    Fails(String),
}

impl Standing {
    /// In one line, for people.
    #[must_use]
    pub fn line(&self) -> String {
        match self {
            Self::Unknown => "etcd: not asked yet".to_owned(),
            Self::Works => "etcd: works".to_owned(),
            Self::Fails(reason) => {
                format!("etcd: fails, which nothing that runs depends on: {reason}")
            }
        }
    }
}

/// Keeps what etcd says of one replica, and of the cluster while it leads, as it should be.
#[derive(Debug)]
pub struct Publisher<P> {
    etcd: Etcd,
    keys: Keys,
    own: Replica,
    source: P,
    lease: Lease,
    /// The lease under which this replica's key was written.
    shown_under: Option<i64>,
    /// The epoch that etcd has taken from this replica, and the lease under which its key as leader was written.
    leads: Option<(u64, i64)>,
    /// The reign that the source told of last.
    reign: Option<u64>,
    /// The plan as it is in etcd; none if that is not known.
    present: Option<Contents>,
    read_at: Instant,
    /// When the plan in etcd was last what it should be.
    whole_at: Instant,
    standing: watch::Sender<Standing>,
}

impl<P: Publication> Publisher<P> {
    /// One that says who `own` is, under a lease of so many seconds.
    pub fn new(etcd: Etcd, keys: Keys, own: Replica, lease_seconds: u64, source: P) -> Self {
        let now = Instant::now();
        Self {
            etcd,
            keys,
            own,
            source,
            lease: Lease::new(lease_seconds),
            shown_under: None,
            leads: None,
            reign: None,
            present: None,
            read_at: now,
            whole_at: now,
            standing: watch::Sender::default(),
        }
    }

    /// Whether etcd works, as it was seen last.
    #[must_use]
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.subscribe()
    }

    /// Publishes until `stop`; then what it said is taken back, as far as etcd lets it.
    pub async fn run(mut self, stop: CancellationToken) {
        telemetry::up(false);
        let mut backoff = Backoff::default();
        let mut complaint = Complaint::new("publishing");
        while !stop.is_cancelled() {
            let round = stop.run_until_cancelled(self.round()).await;
            let Some(outcome) = round else { break };
            let pause = match outcome {
                Ok(is_whole) => {
                    complaint.worked();
                    backoff.reset();
                    self.stands(Standing::Works);
                    if is_whole {
                        stop.run_until_cancelled(self.idle()).await;
                    }
                    ROUND_EVERY
                }
                Err(error) => {
                    complaint.failed(&error);
                    self.present = None;
                    self.stands(Standing::Fails(error.to_string()));
                    backoff.next()
                }
            };
            self.measure();
            stop.run_until_cancelled(sleep(pause)).await;
        }
        if !matches!(timeout(LEAVE_TIMEOUT, self.leave()).await, Ok(Ok(()))) {
            tracing::info!("what this replica said in etcd stays there until its lease is over");
        }
    }

    /// Makes etcd say what it should; true if it does.
    async fn round(&mut self) -> Result<bool, EtcdError> {
        let lease = self.lease.hold(&mut self.etcd).await?;
        if self.read_at.elapsed() >= AUDIT_EVERY {
            (self.shown_under, self.present) = (None, None);
            self.leads = self.leads.map(|(epoch, _)| (epoch, 0));
        }
        if self.shown_under != Some(lease) {
            let put = txn::put_under(
                lease,
                &self.keys.replica(self.own.id),
                &records::encode(&self.own),
            );
            self.etcd.txn(Vec::new(), vec![put]).await?;
            self.shown_under = Some(lease);
            self.read_at = Instant::now();
        }
        let reign = self.source.reign();
        if reign != self.reign {
            (self.reign, self.whole_at) = (reign, Instant::now());
        }
        match reign {
            Some(epoch) => {
                self.lead(epoch, lease).await?;
                self.mirror(epoch, lease).await
            }
            None => self.resign().await.map(|()| true),
        }
    }

    /// Says that this replica leads, unless a newer leader has written.
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
            tracing::info!(epoch, "etcd says that this replica leads");
            self.present = None;
        }
        self.leads = Some((epoch, lease));
        Ok(())
    }

    /// Makes the plan in etcd what it should be; false if another has changed the epoch, which the next round looks into.
    async fn mirror(&mut self, epoch: u64, lease: i64) -> Result<bool, EtcdError> {
        if self.present.is_none() {
            self.present = Some(read_plan(&mut self.etcd, &self.keys).await?);
            self.read_at = Instant::now();
        }
        let wanted = self.source.plan();
        let present = self.present.get_or_insert_default();
        let changes = mirror::changes(present, &wanted);
        for batch in mirror::batches(changes) {
            // Many batches may take longer than the lease. One that is new is for the next round.
            if self.lease.hold(&mut self.etcd).await? != lease {
                return Ok(false);
            }
            let condition = txn::has_value(&self.keys.epoch(), &epoch_text(epoch));
            let operations = batch.iter().map(operation).collect();
            if !self.etcd.txn(vec![condition], operations).await? {
                (self.leads, self.present) = (None, None);
                return Ok(false);
            }
            let is_put = |change: &&Change| matches!(change, Change::Put(..));
            let puts = batch.iter().filter(is_put).count();
            telemetry::wrote(puts, batch.len() - puts);
            mirror::note(present, batch);
        }
        self.whole_at = Instant::now();
        Ok(true)
    }

    /// Takes back that this replica leads, if it said so and nobody else has since.
    async fn resign(&mut self) -> Result<(), EtcdError> {
        let Some((epoch, _)) = self.leads else {
            return Ok(());
        };
        let condition = txn::has_value(&self.keys.epoch(), &epoch_text(epoch));
        let delete = txn::delete(&self.keys.leader());
        self.etcd.txn(vec![condition], vec![delete]).await?;
        (self.leads, self.present) = (None, None);
        Ok(())
    }

    /// Takes back all that is said under the lease.
    async fn leave(&mut self) -> Result<(), EtcdError> {
        self.resign().await?;
        self.lease.end(&mut self.etcd).await
    }

    /// Waits until there is something to do.
    async fn idle(&mut self) {
        let audit = self.read_at + AUDIT_EVERY;
        let due = self.lease.due_at().min(audit);
        tokio::select! {
            () = self.source.changed() => {}
            () = sleep_until(due) => {}
        }
    }

    fn stands(&self, standing: Standing) {
        telemetry::up(standing == Standing::Works);
        self.standing.send_if_modified(|now| {
            let is_other = *now != standing;
            *now = standing;
            is_other
        });
    }

    fn measure(&self) {
        let is_whole = self.present.is_some() || self.reign.is_none();
        let lag = self.whole_at.elapsed();
        telemetry::lag(if is_whole { Duration::ZERO } else { lag });
        telemetry::keys(self.present.as_ref().map_or(0, Contents::len));
    }
}

async fn read_plan(etcd: &mut Etcd, keys: &Keys) -> Result<Contents, EtcdError> {
    let listing = etcd.list(&keys.plan()).await?;
    let pairs = listing.kvs.into_iter().map(|it| {
        let key = String::from_utf8_lossy(it.key()).into_owned();
        // What is no text is none of ours, and is written over.
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
