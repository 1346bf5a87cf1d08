//! Lease under which a replica publishes its liveness.

use std::time::Duration;

use tokio::time::Instant;

use crate::connection::Etcd;
use crate::error::EtcdError;
use crate::telemetry;

/// The lease is renewed after this fraction (one third) of its duration: two attempts may fail.
const PROLONGED_AFTER: u32 = 3;

/// A granted lease.
#[derive(Clone, Copy, Debug)]
struct Granted {
    id: i64,
    ttl: Duration,
    prolonged_at: Instant,
}

/// A lease that is granted again after it has expired.
#[derive(Debug)]
pub(crate) struct Lease {
    /// Requested duration in seconds.
    wanted: u64,
    granted: Option<Granted>,
}

impl Lease {
    pub(crate) fn new(wanted: u64) -> Self {
        Self {
            wanted,
            granted: None,
        }
    }

    /// Returns the current lease, renewed if due, or a new one: then the keys under the last one are gone.
    pub(crate) async fn ensure(&mut self, etcd: &mut Etcd) -> Result<i64, EtcdError> {
        let Some(granted) = self.granted else {
            let asked = Instant::now();
            let wanted = i64::try_from(self.wanted).unwrap_or(i64::MAX);
            let (id, ttl) = etcd.grant(wanted).await?;
            telemetry::granted();
            let ttl = Duration::from_secs(u64::try_from(ttl).unwrap_or(self.wanted));
            self.granted = Some(Granted {
                id,
                ttl,
                prolonged_at: asked,
            });
            return Ok(id);
        };
        if Instant::now() < granted.due_at() {
            return Ok(granted.id);
        }
        let asked = Instant::now();
        match etcd.keep_alive(granted.id).await {
            Ok(()) => {
                self.granted = Some(Granted {
                    prolonged_at: asked,
                    ..granted
                });
                Ok(granted.id)
            }
            Err(error) => {
                if matches!(error, EtcdError::LeaseOver) {
                    self.granted = None;
                }
                Err(error)
            }
        }
    }

    /// Time of the next renewal; now if there is no lease.
    pub(crate) fn due_at(&self) -> Instant {
        self.granted.map_or_else(Instant::now, Granted::due_at)
    }

    /// Revokes the lease, which removes the keys under it.
    pub(crate) async fn end(&mut self, etcd: &mut Etcd) -> Result<(), EtcdError> {
        match self.granted.take() {
            Some(granted) => etcd.revoke(granted.id).await,
            None => Ok(()),
        }
    }
}

impl Granted {
    fn due_at(self) -> Instant {
        self.prolonged_at + self.ttl / PROLONGED_AFTER
    }
}
