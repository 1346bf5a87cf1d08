//! Active checks of GPUs on which nothing runs.
//!
//! | part | purpose |
//! |---|---|
//! | [`Options`] | parts and duration of a check |
//! | `driver` | CUDA driver and cuBLAS, loaded at run time: the only place with foreign code |
//! | `memory` | patterns, written to most of the free memory and read back |
//! | `products` | products of integer matrices, whose every bit is known |
//! | `bandwidth` | bandwidth of copies between GPU and host, and between GPUs |
//! | [`Report`] | results in the format of Nagios plugins, which workers read |
//!
//! Integers below 2^24 are exact in every format used, in any order of addition: a result has all bits
//! right or is wrong, and no tolerance hides a small error.
#![deny(unsafe_code)]

mod bandwidth;
#[expect(unsafe_code, reason = "calls into CUDA's driver and cuBLAS")]
mod driver;
mod error;
mod limits;
mod memory;
mod options;
mod products;
mod report;

use driver::{Driver, Gpu, Multiplier};
use error::CheckError;
use muster_model::ids::GpuUuid;
pub use options::{Options, Part, Peers};
use report::{Findings, GpuReport};
pub use report::{Report, Verdict};

/// Checks GPUs, one after the other.
#[must_use]
pub fn check(options: &Options) -> Report {
    let driver = match Driver::open() {
        Ok(driver) => driver,
        Err(error) => return Report::failed(&error),
    };
    let chosen = if options.gpus.is_empty() {
        driver.gpus()
    } else {
        options.gpus.clone()
    };
    if chosen.is_empty() {
        return Report::failed(&CheckError::NoGpus);
    }
    let of_gpu = chosen
        .into_iter()
        .map(|gpu| check_gpu(&driver, gpu, options));
    Report::new(of_gpu.collect())
}

/// Checks one GPU. Results from before a failed part are reported with the failure.
fn check_gpu(driver: &Driver, uuid: GpuUuid, options: &Options) -> GpuReport {
    let mut findings = Findings::default();
    let error = find(driver, uuid, options, &mut findings).err();
    GpuReport::new(uuid, findings, error.as_ref(), options)
}

fn find(
    driver: &Driver,
    uuid: GpuUuid,
    options: &Options,
    findings: &mut Findings,
) -> Result<(), CheckError> {
    let gpu: Gpu = driver.gpu(uuid)?;
    if options.has(Part::Memory) {
        findings.memory = Some(memory::check(&gpu, options.memory_percent)?);
    }
    if options.has(Part::Ways) {
        findings.host = Some(bandwidth::host(&gpu)?);
        for peer in options.peers.iter().filter(|peer| **peer != uuid) {
            findings
                .peers
                .push(bandwidth::peer(&gpu, &driver.gpu(*peer)?)?);
        }
    }
    if options.has(Part::Products) {
        let multiplier = Multiplier::open(&gpu)?;
        for kind in products::KINDS {
            let found = products::check(&multiplier, kind, options.size, options.seconds)?;
            findings.products.push(found);
        }
    }
    Ok(())
}
