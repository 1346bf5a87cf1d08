//! Report in the format of Nagios plugins: a line for each GPU, metrics behind `|`, and an exit code.

use std::fmt;

use muster_model::ids::GpuUuid;

use crate::bandwidth::{HostBandwidth, PeerBandwidth};
use crate::driver::Precision;
use crate::error::CheckError;
use crate::memory::MemoryFindings;
use crate::options::Options;
use crate::products::ProductFindings;

/// Results of a GPU.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) memory: Option<MemoryFindings>,
    pub(crate) host: Option<HostBandwidth>,
    pub(crate) peers: Vec<PeerBandwidth>,
    pub(crate) products: Vec<ProductFindings>,
}

/// Result for a GPU, in the terms of Nagios plugins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// No fault found.
    Ok,
    /// Not checked.
    Unknown,
    /// A fault was found.
    Critical,
}

impl Verdict {
    const fn name(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Unknown => "UNKNOWN",
            Self::Critical => "CRITICAL",
        }
    }

    /// The exit code.
    const fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Critical => 2,
            Self::Unknown => 3,
        }
    }
}

/// Results of all GPUs. Formatted as one line for each of them.
#[derive(Debug)]
pub struct Report(Vec<GpuReport>);

/// Result of a GPU.
#[derive(Debug)]
pub(crate) struct GpuReport {
    verdict: Verdict,
    text: String,
    figures: Vec<String>,
}

impl Report {
    pub(crate) const fn new(gpus: Vec<GpuReport>) -> Self {
        Self(gpus)
    }

    /// No GPU could be checked.
    pub(crate) fn failed(error: &CheckError) -> Self {
        Self(vec![GpuReport {
            verdict: Verdict::Unknown,
            text: error.to_string(),
            figures: Vec::new(),
        }])
    }

    /// The worst of all GPUs.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let verdicts = self.0.iter().map(|gpu| gpu.verdict);
        verdicts.max().unwrap_or(Verdict::Unknown)
    }

    /// Exit code of a Nagios plugin: 0 healthy, 2 a GPU is faulty, 3 not checked.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        self.verdict().code()
    }
}

impl GpuReport {
    /// Results of a GPU, and the error that stopped further parts.
    pub(crate) fn new(
        gpu: GpuUuid,
        findings: Findings,
        error: Option<&CheckError>,
        options: &Options,
    ) -> Self {
        let miscompares = findings.miscompares();
        let is_wrong = miscompares > 0 || error.is_some_and(CheckError::is_gpu_fault);
        let verdict = match (is_wrong, error) {
            (true, _) => Verdict::Critical,
            (false, Some(_)) => Verdict::Unknown,
            (false, None) => Verdict::Ok,
        };
        let mut parts = Vec::new();
        if miscompares > 0 {
            parts.push(format!(
                "{miscompares} results differ from the expected ones"
            ));
        }
        parts.extend(error.map(ToString::to_string));
        parts.extend(findings.texts());
        let mut figures = vec![format!("miscompares={miscompares}")];
        figures.extend(findings.figures(options.expected_tflops));
        Self {
            verdict,
            text: format!("{gpu}: {}", parts.join(", ")),
            figures,
        }
    }
}

impl Findings {
    fn miscompares(&self) -> u64 {
        let memory = self.memory.iter().map(|it| it.miscompares);
        let host = self.host.iter().map(|it| it.miscompares);
        let peers = self.peers.iter().map(|it| it.miscompares);
        let products = self.products.iter().map(|it| it.miscompares);
        memory.chain(host).chain(peers).chain(products).sum()
    }

    /// The completed parts, for operators.
    fn texts(&self) -> Vec<String> {
        let mut texts = Vec::new();
        if let Some(memory) = &self.memory {
            let mib = memory.bytes >> 20;
            texts.push(format!("{mib} MiB in {} patterns", memory.patterns));
        }
        if let Some(host) = &self.host {
            let (to, from) = (host.to_gb_per_s, host.from_gb_per_s);
            texts.push(format!("{to:.1} GB/s from the host and {from:.1} to it"));
        }
        for peer in &self.peers {
            let how = if peer.is_direct {
                ""
            } else {
                " through the host"
            };
            texts.push(format!("{:.1} GB/s from {}{how}", peer.gb_per_s, peer.peer));
        }
        for found in &self.products {
            let (products, precision) = (found.products, precision_name(found.precision));
            let speed = found.tflop_per_s;
            texts.push(format!(
                "{products} products in {precision} precision at {speed:.1} TFLOP/s"
            ));
        }
        texts
    }

    /// Metrics by the names that workers know, and others.
    fn figures(&self, expected_tflops: Option<u32>) -> Vec<String> {
        let mut figures = Vec::new();
        if let Some(host) = &self.host {
            figures.push(format!("gb_per_s={:.1}", host.to_gb_per_s));
            figures.push(format!("from_gb_per_s={:.1}", host.from_gb_per_s));
        }
        let slowest = self.peers.iter().map(|peer| peer.gb_per_s);
        if let Some(slowest) = slowest.reduce(f64::min) {
            figures.push(format!("peer_gb_per_s={slowest:.1}"));
            let direct = self.peers.iter().filter(|peer| peer.is_direct).count();
            figures.push(format!("peers_direct={direct}"));
        }
        for found in &self.products {
            let (name, speed) = (precision_name(found.precision), found.tflop_per_s);
            figures.push(format!("{name}_tflop_per_s={speed:.1}"));
        }
        let half = self
            .products
            .iter()
            .find(|it| it.precision == Precision::Half);
        if let (Some(half), Some(expected)) = (half, expected_tflops) {
            let permille = half.tflop_per_s * 1e3 / f64::from(expected.max(1));
            figures.push(format!("baseline_permille={permille:.0}"));
        }
        figures
    }
}

const fn precision_name(precision: Precision) -> &'static str {
    match precision {
        Precision::Half => "half",
        Precision::Single => "single",
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for gpu in &self.0 {
            let verdict = gpu.verdict.name();
            // Text behind a bar is parsed by programs.
            let text = gpu.text.replace(['|', '\n'], " ");
            write!(formatter, "GPU-CHECK {verdict} - {text}")?;
            if !gpu.figures.is_empty() {
                write!(formatter, "|{}", gpu.figures.join(" "))?;
            }
            writeln!(formatter)?;
        }
        Ok(())
    }
}
