//! Simulation speed of a trace, without the report: `speed JOBS CLUSTER POLICY [LOAD [QUOTAS]]`.

use std::error::Error;
use std::io::Write;
use std::path::Path;

use muster_simulate::report::Report;
use muster_simulate::trace::{Cluster, read_jobs, read_quotas};
use muster_simulate::{Policy, Scenario, Settings, simulate};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [jobs, cluster, policy, rest @ ..] = arguments.as_slice() else {
        return Err("usage: speed JOBS CLUSTER POLICY [LOAD [QUOTAS]]".into());
    };
    let settings = Settings {
        load: rest.first().map_or(Ok(1.0), |load| load.parse())?,
        ..Settings::default()
    };
    let quotas = rest.get(1).map(|path| read_quotas(Path::new(path)));
    let jobs = read_jobs(Path::new(jobs), 0, usize::MAX)?;
    let cluster: Cluster = cluster.parse()?;
    let policy: Policy = policy.parse()?;
    let scenario = Scenario::new(cluster, jobs, &[], settings)
        .with_quotas(quotas.transpose()?.unwrap_or_default());
    let outcomes = [simulate(&scenario, policy, &mut |_| {})?];
    let report = Report::new(&scenario, &outcomes);
    let run = &report.runs[0];
    let delay_s = run.all.delay.map_or(0.0, |delay| delay.mean_s);
    writeln!(
        std::io::stdout(),
        "{policy}: {} of {} jobs ended, delay mean {delay_s:.1} s, {} preemptions; {} commands, {} rounds",
        run.all.finished,
        run.all.jobs,
        run.all.preemptions,
        run.effort.commands,
        run.effort.rounds
    )?;
    Ok(())
}
