//! Durable submits per second on three replicas, compared in alternation with puts into a three-member etcd.

use std::time::Duration;

use muster_client::Client;

use crate::cpu;
use crate::etcd::{EtcdClient, EtcdCluster};
use crate::fleet::{Fleet, FleetShape};
use crate::load::{Loaded, Until, closed_loop};
use crate::options::Bench;
use crate::row::{Goal, Row, Values};
use crate::samples::Samples;
use crate::specs;
use crate::testbed::{Shape, Testbed};

/// Requests in flight.
const IN_FLIGHT: [usize; 4] = [1, 8, 64, 256];
/// With this many in flight the goal is twice etcd's rate.
const IN_FLIGHT_TWICE: usize = 256;
/// A host whose GPUs are all held: submitted jobs wait, as on a busy cluster.
const FLEET: FleetShape = FleetShape {
    hosts: 1,
    gpus_per_host: 8,
    connections: 1,
};
const FLEET_TIMEOUT: Duration = Duration::from_secs(30);

/// Samples of one store at one concurrency.
#[derive(Default)]
pub(super) struct Series {
    rates: Samples,
    cluster_cpu_us: Samples,
    client_cpu_us: Samples,
}

impl Series {
    pub(super) fn note(&mut self, loaded: Loaded, cluster: Duration, client: Duration) {
        const MICROS: f64 = 1e6;
        let operations = loaded.operations as f64;
        self.rates.push(loaded.rate());
        self.cluster_cpu_us
            .push(cluster.as_secs_f64() * MICROS / operations);
        self.client_cpu_us
            .push(client.as_secs_f64() * MICROS / operations);
    }

    pub(super) fn row(&self, what: &str, in_flight: usize, goal: Option<Goal>) -> Row {
        Row {
            what: format!("{what}, {in_flight} in flight"),
            conditions: format!(
                "3 processes, fsync on, 256 B; {} runs; CPU an operation: cluster {:.0} us, client {:.0} us",
                self.rates.len(),
                self.cluster_cpu_us.median(),
                self.client_cpu_us.median()
            ),
            unit: "1/s",
            values: Values::runs(&self.rates),
            goal,
        }
    }
}

pub(super) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let testbed = Testbed::start(bench, Shape::REPLICAS_ONLY).await?;
    let fleet = Fleet::start(FLEET, &testbed.addresses())?;
    fleet.await_welcomed(FLEET.hosts, FLEET_TIMEOUT).await?;
    testbed.fill(FLEET.hosts * FLEET.gpus_per_host).await?;
    let etcd = if bench.etcd.is_file() {
        Some(EtcdCluster::start(&bench.etcd).await?)
    } else {
        bench.progress(&format!(
            "   no etcd to compare with: {} is missing (Debian: etcd-server)",
            bench.etcd.display()
        ));
        None
    };
    let mut rows = Vec::new();
    for in_flight in IN_FLIGHT {
        bench.progress(&format!("   {in_flight} in flight"));
        rows.extend(compare(bench, &testbed, etcd.as_ref(), in_flight).await?);
    }
    drop(fleet);
    testbed.stop()?;
    Ok(rows)
}

/// Runs one concurrency on both, in alternation.
async fn compare(
    bench: &Bench,
    testbed: &Testbed,
    etcd: Option<&EtcdCluster>,
    in_flight: usize,
) -> anyhow::Result<Vec<Row>> {
    let until = Until::Elapsed(bench.pick(Duration::from_secs(3), Duration::from_secs(1)));
    let (mut muster, mut others) = (Series::default(), Series::default());
    for _ in 0..bench.pick(5, 1) {
        let before = (testbed.cpu()?, cpu::used_here()?);
        let loaded = submits(testbed.client(), in_flight, until).await?;
        muster.note(
            loaded,
            testbed.cpu()? - before.0,
            cpu::used_here()? - before.1,
        );
        if let Some(etcd) = etcd {
            let before = (etcd.cpu()?, cpu::used_here()?);
            let loaded = puts(&etcd.client(), in_flight, until).await?;
            others.note(loaded, etcd.cpu()? - before.0, cpu::used_here()? - before.1);
        }
    }
    let factor = if in_flight == IN_FLIGHT_TWICE {
        2.0
    } else {
        1.0
    };
    let goal = etcd.map(|_| Goal::AtLeast(others.rates.median() * factor));
    let mut rows = vec![muster.row("durable submits", in_flight, goal)];
    if etcd.is_some() {
        rows.push(others.row("etcd 3.4: puts", in_flight, None));
    }
    Ok(rows)
}

pub(super) async fn submits(
    client: &Client,
    in_flight: usize,
    until: Until,
) -> anyhow::Result<Loaded> {
    let client = client.clone();
    let spec = specs::single();
    closed_loop(in_flight, until, move |_| {
        let (client, spec) = (client.clone(), spec.clone());
        async move {
            client.submit_job(spec).await?;
            Ok(())
        }
    })
    .await
}

async fn puts(client: &EtcdClient, in_flight: usize, until: Until) -> anyhow::Result<Loaded> {
    let client = client.clone();
    closed_loop(in_flight, until, move |number| {
        let client = client.clone();
        async move {
            let value = vec![b'x'; specs::PAYLOAD_BYTES];
            client.put(format!("bench/{number:012}"), value).await
        }
    })
    .await
}
