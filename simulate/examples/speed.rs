//! How fast a trace is simulated: `speed JOBS CLUSTER POLICY [COUNT]`.

use std::error::Error;
use std::io::Write;
use std::path::Path;

use muster_simulate::trace::{Cluster, read_jobs};
use muster_simulate::{Policy, Scenario, Settings, simulate};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [jobs, cluster, policy, rest @ ..] = arguments.as_slice() else {
        return Err("usage: speed JOBS CLUSTER POLICY [COUNT]".into());
    };
    let count = rest.first().map_or(Ok(usize::MAX), |count| count.parse())?;
    let jobs = read_jobs(Path::new(jobs), 0, count)?;
    let cluster: Cluster = cluster.parse()?;
    let policy: Policy = policy.parse()?;
    let scenario = Scenario::new(cluster, jobs, &[], Settings::default());
    let outcome = simulate(&scenario, policy, &mut |_| {})?;
    let mut stdout = std::io::stdout();
    writeln!(
        stdout,
        "{} jobs, {} commands, {} rounds, {} placements",
        outcome.records.len(),
        outcome.commands,
        outcome.rounds,
        outcome.placements
    )?;
    Ok(())
}
