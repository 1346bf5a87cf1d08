//! Developer tools: `cargo xtask tidy` checks project rules that the compiler and clippy cannot, `cargo xtask
//! dashboards` generates Grafana's dashboards.

#![forbid(unsafe_code)]

mod dashboards;
mod tidy;

use std::env;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};

/// Usage error, as in sysexits.
const EXIT_USAGE: u8 = 64;

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        ["tidy"] => tidy(),
        ["dashboards"] => {
            dashboards::write(&root()?)?;
            Ok(ExitCode::SUCCESS)
        }
        _ => {
            writeln!(
                std::io::stderr(),
                "usage: cargo xtask tidy          check the house rules\n       cargo xtask dashboards    write \
                 Grafana's dashboards from {}",
                dashboards::SOURCE
            )?;
            Ok(ExitCode::from(EXIT_USAGE))
        }
    }
}

/// Root of the workspace of the `cargo xtask` call, or the working directory.
fn root() -> Result<PathBuf> {
    // Taken from this run: a cached program may have been compiled in another checkout.
    let Some(folder) = env::var_os("CARGO_MANIFEST_DIR") else {
        return env::current_dir().context("the working directory is gone");
    };
    let root = Path::new(&folder).ancestors().nth(2);
    root.map(Path::to_path_buf)
        .context("xtask lies in the workspace")
}

/// Prints one line per finding; warnings alone do not fail.
fn tidy() -> Result<ExitCode> {
    let report = tidy::check(&root()?)?;
    let mut output = std::io::stdout().lock();
    for warning in &report.warnings {
        writeln!(output, "warning: {warning}")?;
    }
    for finding in &report.findings {
        writeln!(output, "{finding}")?;
    }
    writeln!(
        output,
        "tidy: {} files, {} findings, {} warnings",
        report.files,
        report.findings.len(),
        report.warnings.len()
    )?;
    Ok(if report.findings.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
