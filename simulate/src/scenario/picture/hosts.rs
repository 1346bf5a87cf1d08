//! Hosts and GPUs in a picture.

use muster_engine::state::State;
use muster_model::command::{GpuHealth, HostHealth};
use muster_model::host::{Gpu, Host};
use serde::Serialize;

use crate::scenario::picture::lines::Line;
use crate::scenario::picture::names::{gpu_ranges, unit_name};

/// Section of hosts among a picture's lines.
const SECTION: u8 = 1;

/// A host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HostPicture {
    /// Host name.
    pub name: String,
    /// `up`, `suspect` or `lost`.
    pub health: &'static str,
    /// Reason of the block that takes it out of placement.
    pub block: Option<String>,
    /// Reason of a planned block.
    pub planned: Option<String>,
    /// GPUs of the host.
    pub gpus: Vec<GpuPicture>,
}

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GpuPicture {
    /// Index on the host.
    pub index: u32,
    /// GPU model.
    pub model: String,
    /// Signal of its fault.
    pub fault: Option<String>,
    /// Reason of the block that takes it out of placement.
    pub block: Option<String>,
    /// The job (`JOB/UNIT` for one of several units) that holds it.
    pub holder: Option<String>,
    /// The job that it is reserved for.
    pub claim: Option<String>,
}

pub(super) fn picture(state: &State, host: &Host) -> HostPicture {
    HostPicture {
        name: host.name.to_string(),
        health: match host.health {
            HostHealth::Up => "up",
            HostHealth::Suspect => "suspect",
            HostHealth::Lost => "lost",
        },
        block: host.block.as_ref().map(|block| block.reason.clone()),
        planned: { host.planned.as_ref() }.map(|block| block.reason.clone()),
        gpus: host
            .gpus
            .iter()
            .map(|gpu| gpu_picture(state, gpu))
            .collect(),
    }
}

fn gpu_picture(state: &State, gpu: &Gpu) -> GpuPicture {
    GpuPicture {
        index: gpu.index,
        model: gpu.model.to_string(),
        fault: match &gpu.health {
            GpuHealth::Healthy => None,
            GpuHealth::Faulted { signal, .. } => Some(signal.clone()),
        },
        block: gpu.block.as_ref().map(|block| block.reason.clone()),
        holder: (gpu.holder).map(|holder| unit_name(state, holder.job, holder.unit)),
        claim: gpu
            .claim
            .map(|claimant| unit_name(state, claimant.job, claimant.unit)),
    }
}

impl HostPicture {
    /// Lines for unusual states of the host and its GPUs.
    pub(super) fn lines(&self) -> Vec<Line> {
        let mut lines = Vec::new();
        let name = format!("host {}", self.name);
        if let Some(text) = self.unusual_state() {
            let line = Line::new(SECTION, &name, format!("{name}: {text}"));
            lines.push(line.or_else(format!("{name}: ok")));
        }
        for gpu in &self.gpus {
            let name = format!("gpu {}:{}", self.name, gpu.index);
            let fault = gpu.fault.as_ref().map(|signal| format!("bad ({signal})"));
            if let Some(text) = all_of([fault, gpu.block.as_deref().map(blocked)]) {
                let line = Line::new(SECTION, &name, format!("{name}: {text}"));
                lines.push(line.or_else(format!("{name}: ok")));
            }
        }
        lines
    }

    /// Unusual state of the host itself.
    fn unusual_state(&self) -> Option<String> {
        let health = (self.health != "up").then(|| self.health.to_owned());
        let planned = { self.planned.as_ref() }.map(|reason| format!("to be blocked ({reason})"));
        all_of([health, self.block.as_deref().map(blocked), planned])
    }

    /// All its GPUs, with adjacent GPUs in the same state combined: `n1 8xK80: 0-3 train, 4-7 free`.
    pub(crate) fn map(&self) -> String {
        let mut runs: Vec<(String, Vec<u32>)> = Vec::new();
        for gpu in &self.gpus {
            let text = gpu.text();
            match runs.last_mut() {
                Some((last, indexes)) if *last == text => indexes.push(gpu.index),
                _ => runs.push((text, vec![gpu.index])),
            }
        }
        let runs = runs
            .into_iter()
            .map(|(text, indexes)| format!("{} {text}", gpu_ranges(&indexes)));
        let runs: Vec<String> = runs.collect();
        let model = self.gpus.first().map_or("", |gpu| gpu.model.as_str());
        let kind = format!("{}x{model}", self.gpus.len());
        let unusual_state = self
            .unusual_state()
            .map_or_else(String::new, |text| format!(" ({text})"));
        format!("{} {kind}{unusual_state}: {}", self.name, runs.join(", "))
    }
}

impl GpuPicture {
    fn text(&self) -> String {
        let mut text = match (&self.holder, &self.fault, &self.block) {
            (Some(holder), ..) => holder.clone(),
            (None, None, None) => "free".to_owned(),
            _ => String::new(),
        };
        for (word, present) in [
            ("bad", self.fault.is_some()),
            ("blocked", self.block.is_some()),
        ] {
            if present {
                let space = if text.is_empty() { "" } else { " " };
                text.push_str(&format!("{space}{word}"));
            }
        }
        if let Some(claim) = &self.claim {
            text.push_str(&format!(" (claimed by {claim})"));
        }
        text
    }
}

fn blocked(reason: &str) -> String {
    format!("blocked ({reason})")
}

/// All present words joined; `None` if there are none.
fn all_of(words: impl IntoIterator<Item = Option<String>>) -> Option<String> {
    let words: Vec<String> = words.into_iter().flatten().collect();
    (!words.is_empty()).then(|| words.join(", "))
}
