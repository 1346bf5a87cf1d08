//! Time from a silent host's last heartbeat until its states suspect and lost are committed: at three sizes,
//! and with the leader killed in the middle of the silence.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use muster_client::{Watch, WatchFilter, WatchUpdate};
use muster_model::ids::Revision;
use muster_model::timings::Timings;
use muster_proto::v1::event::Kind;
use muster_proto::v1::{self, HostHealth};
use tokio::time::{Instant, sleep, timeout_at};

use crate::fleet::{Fleet, FleetShape, SilentWorker};
use crate::options::Bench;
use crate::row::{Goal, Row, Values};
use crate::samples::Samples;
use crate::testbed::{Shape, Testbed};

/// Number of workers, and how many of them fall silent in each trial.
const SIZES: &[(u32, u32)] = &[(10, 3), (1_000, 50), (10_000, 50)];
const SIZES_QUICK: &[(u32, u32)] = &[(10, 3)];
const GPUS_PER_HOST: u32 = 8;
const CONNECTIONS: usize = 16;
/// Two periods: the load of the registrations is over.
const SETTLE: Duration = Duration::from_secs(10);
/// Allowed factor over the time computed from the heartbeat settings: promise P2.
const MARGIN: f64 = 1.2;
const TIMEOUT: Duration = Duration::from_secs(120);

/// State of the leader while hosts are silent.
#[derive(Clone, Copy)]
enum Leader {
    Lives,
    Dies,
}

/// Times from the last heartbeats to the committed states.
#[derive(Default)]
struct Detected {
    suspect: Samples,
    lost: Samples,
}

pub(super) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (hosts, silent) in bench.pick(SIZES, SIZES_QUICK) {
        rows.extend(at_size(bench, *hosts, *silent).await?);
    }
    Ok(rows)
}

async fn at_size(bench: &Bench, hosts: u32, silent: u32) -> anyhow::Result<Vec<Row>> {
    let mut testbed = Testbed::start(bench, Shape::REPLICAS_ONLY).await?;
    let shape = FleetShape {
        hosts,
        gpus_per_host: GPUS_PER_HOST,
        connections: CONNECTIONS,
    };
    let mut fleet = Fleet::start(shape, &testbed.addresses())?;
    fleet.await_welcomed(hosts, TIMEOUT).await?;
    let mut rows = Vec::new();
    let mut next_victim = 0;
    for leader in [Leader::Lives, Leader::Dies] {
        sleep(SETTLE).await;
        testbed.await_caught_up().await?;
        let victims = next_victim..next_victim + silent;
        next_victim += silent;
        let detected = trial(&mut testbed, &mut fleet, victims, leader).await?;
        bench.progress(&format!("   {hosts} hosts, {}", leader.description()));
        rows.extend(detected.rows(hosts, leader));
    }
    drop(fleet);
    testbed.stop()?;
    Ok(rows)
}

/// Silences workers at once and waits until all of them are lost.
async fn trial(
    testbed: &mut Testbed,
    fleet: &mut Fleet,
    victims: std::ops::Range<u32>,
    leader: Leader,
) -> anyhow::Result<Detected> {
    let from = testbed
        .client()
        .status(v1::Consistency::Linearizable)
        .await?;
    let filter = WatchFilter {
        kinds: vec![v1::EventKind::HostHealthChanged],
        ..WatchFilter::default()
    };
    let watch = testbed
        .client()
        .watch(Some(Revision(from.revision)), filter);
    let count = victims.len();
    for number in victims {
        fleet.silence(number)?;
    }
    let mut silent = Vec::new();
    for _ in 0..count {
        silent.push(fleet.await_silent(TIMEOUT).await?);
    }
    let watching = tokio::spawn(observe(watch, silent));
    if let Leader::Dies = leader {
        sleep(Duration::from_millis(Timings::default().suspect_ms / 2)).await;
        let index = testbed.leader().await?;
        testbed.kill(index)?;
        testbed.await_end(index)?;
        let detected = watching.await??;
        testbed.restart(index)?;
        return Ok(detected);
    }
    watching.await?
}

/// Follows the events until every one of these hosts is lost.
async fn observe(mut watch: Watch, silent: Vec<SilentWorker>) -> anyhow::Result<Detected> {
    let mut waited: BTreeMap<String, Instant> = silent
        .into_iter()
        .map(|silent| (silent.host, silent.since))
        .collect();
    let mut detected = Detected::default();
    let deadline = Instant::now() + TIMEOUT;
    while !waited.is_empty() {
        let update = timeout_at(deadline, watch.next())
            .await
            .with_context(|| format!("not known to be lost: {waited:?}"))??;
        let WatchUpdate::Events { events, .. } = update else {
            continue;
        };
        for event in events {
            let Some(Kind::HostHealthChanged(changed)) = event.kind else {
                continue;
            };
            let Some(since) = waited.get(&changed.name).copied() else {
                continue;
            };
            match changed.health() {
                HostHealth::Suspect => detected.suspect.push(since.elapsed().as_secs_f64()),
                HostHealth::Lost => {
                    detected.lost.push(since.elapsed().as_secs_f64());
                    waited.remove(&changed.name);
                }
                HostHealth::Up | HostHealth::Unspecified => {}
            }
        }
    }
    Ok(detected)
}

impl Detected {
    fn rows(&self, hosts: u32, leader: Leader) -> [Row; 2] {
        let timings = Timings::default();
        let row = |what: &str, samples: &Samples, span_ms: u64| {
            let wanted = MARGIN * Duration::from_millis(span_ms).as_secs_f64();
            Row {
                what: format!("a host's last heartbeat to committed {what}, {hosts} hosts"),
                conditions: format!(
                    "{hosts} simulated workers with {GPUS_PER_HOST} GPUs, a heartbeat every {} ms each; {} of them \
                     fall silent at once; {}",
                    timings.heartbeat_ms,
                    samples.len(),
                    leader.description()
                ),
                unit: "s",
                values: Values::percentiles(samples),
                goal: Some(Goal::Percentiles {
                    p50: wanted,
                    p99: wanted,
                }),
            }
        };
        [
            row("suspect", &self.suspect, timings.suspect_ms),
            row("lost", &self.lost, timings.lost_ms),
        ]
    }
}

impl Leader {
    const fn description(self) -> &'static str {
        match self {
            Self::Lives => "the leader lives",
            Self::Dies => "kill -9 of the leader 7.5 s after",
        }
    }
}
