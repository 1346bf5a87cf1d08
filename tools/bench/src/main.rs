//! `muster-bench`: measures the figures of `docs/benchmarks.md` on the machine it runs on.
//! Every figure starts what it needs (real `muster` processes on loopback, simulated workers, an etcd to
//! compare with), measures, and removes it again. Figures run sequentially, never concurrently.
#![forbid(unsafe_code)]

mod clock;
mod cpu;
mod etcd;
mod figures;
mod fleet;
mod load;
mod machine;
mod options;
mod report;
mod row;
mod samples;
mod specs;
mod testbed;

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;

use crate::machine::Machine;
use crate::options::{Bench, Options};
use crate::report::Report;

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("starting the runtime")?;
    let report = runtime.block_on(measure(&options))?;
    std::io::stdout()
        .write_all(report.text().as_bytes())
        .context("printing the table")?;
    if let Some(path) = &options.markdown {
        std::fs::write(path, report.markdown())
            .with_context(|| format!("writing {}", path.display()))?;
    }
    if let Some(path) = &options.json {
        let json = serde_json::to_vec_pretty(&report).context("encoding the rows")?;
        std::fs::write(path, json).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(if report.failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Measures one figure after another; one that fails does not prevent the others.
async fn measure(options: &Options) -> anyhow::Result<Report> {
    let bench = Bench::new(options)?;
    let mut report = Report::new(Machine::read()?, options.quick);
    for figure in options.figures() {
        bench.progress(&format!("== {figure}"));
        match figures::measure(figure, &bench).await {
            Ok(rows) => {
                for row in &rows {
                    bench.progress(&format!("   {row}"));
                }
                report.rows.extend(rows);
            }
            Err(error) => {
                bench.progress(&format!("   not measured: {error:#}"));
                report.failed.push(format!("{figure}: {error:#}"));
            }
        }
    }
    report.finish()?;
    Ok(report)
}
