//! Benchmark of a what-if: `cargo run --example what_if_speed -- HOSTS JOBS`. The jobs are drawn over five
//! queues; what does not fit waits.
#![expect(clippy::disallowed_methods, reason = "measures real time")]

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Instant;

use muster_harness::{Cluster, gang};
use muster_model::quota::{QueueConfig, QueueTree};
use muster_model::spec::JobSpec;
use muster_planner::{Budget, plan};
use muster_simulate::fork::{Change, Fork, ForkSettings, what_if};

const GPUS_PER_HOST: u32 = 8;
const QUEUES: u64 = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u32>());
    let hosts = numbers.next().transpose()?.unwrap_or(1_024);
    let jobs = numbers.next().transpose()?.unwrap_or(10_000);
    let mut cluster = Cluster::with_hosts(hosts, GPUS_PER_HOST);
    cluster.observer.enabled = false;
    let queues = (0..QUEUES).map(|queue| (format!("queue-{queue}"), QueueConfig::default()));
    cluster.configure(QueueTree {
        queues: queues.collect(),
        history_half_life_ms: None,
        defragment: None,
    });
    for number in 0..jobs {
        cluster.submit(drawn(u64::from(number)));
    }
    settle(&mut cluster);
    let running = cluster.state.index.units_on_host.len();
    let fork = Fork {
        state: cluster.state.clone(),
        now: cluster.now,
    };
    let urgent = JobSpec {
        priority: 1,
        ..drawn(7)
    };
    let began = Instant::now();
    let difference = what_if(
        &fork,
        &[Change::Submit(Arc::new(urgent))],
        ForkSettings::default(),
        &mut |_| (),
    )?;
    writeln!(
        io::stdout(),
        "{hosts} hosts, {jobs} jobs ({running} parts run): {:.2} s for two futures of a day, {} jobs started in each",
        began.elapsed().as_secs_f64(),
        difference.then.jobs_started
    )?;
    Ok(())
}

/// A job of 1 to 32 GPUs that runs for up to eight hours, determined by its number (SplitMix64).
fn drawn(number: u64) -> JobSpec {
    let mut mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^= mixed >> 27;
    let (tasks, gpus) = match mixed % 8 {
        0 => (4, 8),
        1 => (2, 8),
        2 | 3 => (1, 8),
        4 => (1, 4),
        _ => (1, 1),
    };
    let mut spec = gang("drawn", tasks, gpus);
    spec.queue = format!("queue-{}", (mixed >> 8) % QUEUES);
    let minutes = 1 + (mixed >> 16) % 480;
    spec.scheduling.run_time_ms_max = Some(minutes * 60_000);
    spec
}

/// Places and starts all units that fit.
fn settle(cluster: &mut Cluster) {
    loop {
        let plan = plan(&cluster.state, cluster.now, Budget::default());
        for step in &plan.steps {
            cluster.apply(step);
        }
        for placement in plan.placements() {
            cluster.start_all(placement.job);
        }
        if !plan.more {
            return;
        }
    }
}
