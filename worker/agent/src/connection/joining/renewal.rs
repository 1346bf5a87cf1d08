//! Renewal of the certificate of a joined worker.

use std::time::Duration;

use muster_monitor::replicas::KnownReplicas;
use muster_tls::{Tls, count_renewal};

use crate::connection::joining::identity::Identity;
use crate::connection::joining::request::{JoinFailure, Replica};

/// Interval between checks of the remaining lifetime, and between attempts to renew.
const PAUSE: Duration = Duration::from_secs(10);

/// Renews the certificate when a third of its lifetime is left, in a task that ends with the process.
pub(super) fn keep_renewed(identity: Identity, replicas: KnownReplicas, tls: Tls) {
    tokio::spawn(async move {
        let mut logged = String::new();
        loop {
            tokio::time::sleep(PAUSE).await;
            if !tls.validity().is_some_and(|life| life.is_renewal_due()) {
                continue;
            }
            match renew(&identity, &replicas.addresses(), &tls).await {
                Ok(()) => {
                    count_renewal(true);
                    logged.clear();
                    tracing::info!("the certificate of this worker was renewed");
                }
                Err(problem) => {
                    count_renewal(false);
                    if problem != logged {
                        tracing::error!(
                            problem,
                            "the certificate of this worker could not be renewed"
                        );
                        logged = problem;
                    }
                }
            }
        }
    });
}

async fn renew(identity: &Identity, schedulers: &[String], tls: &Tls) -> Result<(), String> {
    let csr = identity
        .signing_request()
        .map_err(|error| error.to_string())?;
    let mut problems = Vec::new();
    for address in schedulers {
        let replica = Replica::new(address, identity.authorities.as_deref());
        match replica.renew(tls.clone(), csr.clone()).await {
            Ok(renewed) => {
                identity.keep(&renewed).map_err(|error| error.to_string())?;
                return tls.reload().map_err(|error| error.to_string());
            }
            Err(JoinFailure::Refused(status)) => {
                problems.push(format!("{address}: {}", status.message()));
            }
            Err(JoinFailure::NoAnswer(problem)) => problems.push(format!("{address}: {problem}")),
        }
    }
    Err(problems.join("; "))
}
