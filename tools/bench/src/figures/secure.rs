//! Cost of TLS, a token and the role check: submits per second with and without, in alternation.

use std::time::Duration;

use crate::cpu;
use crate::figures::submit::{Series, submits};
use crate::load::Until;
use crate::options::Bench;
use crate::row::Row;
use crate::testbed::{Shape, Testbed};

/// Requests in flight.
const IN_FLIGHT: [usize; 3] = [1, 64, 256];

pub(super) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let until = Until::Elapsed(bench.pick(Duration::from_secs(3), Duration::from_secs(1)));
    let plain = Testbed::start(bench, Shape::REPLICAS_ONLY).await?;
    let secured = Testbed::start_secured(bench, Shape::REPLICAS_ONLY).await?;
    let mut rows = Vec::new();
    for in_flight in IN_FLIGHT {
        bench.progress(&format!("   {in_flight} in flight"));
        let mut series = [Series::default(), Series::default()];
        for _ in 0..bench.pick(5, 1) {
            for (testbed, series) in [&plain, &secured].into_iter().zip(&mut series) {
                let before = (testbed.cpu()?, cpu::used_here()?);
                let loaded = submits(testbed.client(), in_flight, until).await?;
                let (cluster, client) = (testbed.cpu()?, cpu::used_here()?);
                series.note(loaded, cluster - before.0, client - before.1);
            }
        }
        let [open, closed] = series;
        rows.push(open.row("submits without TLS", in_flight, None));
        rows.push(closed.row("submits with TLS and a token", in_flight, None));
    }
    plain.stop()?;
    secured.stop()?;
    Ok(rows)
}
