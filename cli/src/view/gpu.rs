//! A GPU in a list.

use jiff::Timestamp;
use muster_proto::v1;
use serde::Serialize;

use crate::output::{Cell, Column, Row, Tone, ago, instant};
use crate::parse::format_mib;
use crate::view::block::BlockView;
use crate::view::health_standing::HealthStandingView;
use crate::view::word::word;

/// A GPU.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct GpuView {
    uuid: String,
    host: String,
    index: u32,
    pci_address: String,
    model: String,
    memory_mib: u64,
    state: &'static str,
    fault: Option<FaultView>,
    health_since: String,
    #[serde(flatten)]
    standing: HealthStandingView,
    block: Option<BlockView>,
    /// The block of its host.
    host_block: Option<BlockView>,
    /// Health of its host as known to the leader; `None` if the replica does not report it.
    host_health: Option<String>,
    holder: Option<HolderView>,
    #[serde(skip)]
    health_since_ms: u64,
}

/// Fault of a GPU.
#[derive(Clone, Debug, Serialize)]
struct FaultView {
    signal: String,
    detail: String,
}

/// Holder of a GPU.
#[derive(Clone, Copy, Debug, Serialize)]
struct HolderView {
    job: u64,
    unit: u32,
    epoch: u64,
    task: u32,
}

impl From<v1::Gpu> for GpuView {
    fn from(gpu: v1::Gpu) -> Self {
        let health = gpu.host_health();
        let is_silent = matches!(health, v1::HostHealth::Suspect | v1::HostHealth::Lost);
        let fault = gpu.health.and_then(|health| health.fault);
        let state = match (&fault, &gpu.block, &gpu.holder) {
            (Some(_), _, _) => "faulted",
            (_, Some(_), _) => "blocked",
            (_, _, Some(_)) => "held",
            (None, None, None) if gpu.host_block.is_some() => "blocked",
            (None, None, None) if is_silent => "unreachable",
            (None, None, None) => "free",
        };
        Self {
            uuid: gpu.uuid,
            host: gpu.host,
            index: gpu.index,
            pci_address: gpu.pci_address,
            model: gpu.model,
            memory_mib: gpu.memory_mib,
            state,
            fault: fault.map(|fault| FaultView {
                signal: fault.signal,
                detail: fault.detail,
            }),
            health_since: instant(gpu.health_since_ms),
            standing: HealthStandingView::new(gpu.health_phase, gpu.health_rule, gpu.kept_off),
            block: gpu.block.map(BlockView::from),
            host_block: gpu.host_block.map(BlockView::from),
            host_health: (health != v1::HostHealth::Unspecified)
                .then(|| word(health.as_str_name(), "HOST_HEALTH_")),
            holder: gpu.holder.map(|holder| HolderView {
                job: holder.job_id,
                unit: holder.unit,
                epoch: holder.epoch,
                task: holder.task,
            }),
            health_since_ms: gpu.health_since_ms,
        }
    }
}

impl GpuView {
    fn tone(&self) -> Tone {
        match self.state {
            "faulted" | "unreachable" => Tone::Bad,
            "blocked" => Tone::Waiting,
            _ => Tone::Good,
        }
    }

    fn reason(&self, now: Timestamp) -> String {
        let fault = self.fault.as_ref();
        let fault = fault.map(|fault| format!("{}: {}", fault.signal, fault.detail));
        let block = self.block.as_ref().map(|block| block.text(now));
        let of_host = self.host_block.as_ref();
        let of_host = of_host.map(|block| format!("host blocked: {}", block.text(now)));
        let health = self.host_health.as_deref().filter(|health| *health != "up");
        let health = health.map(|health| format!("host {health}"));
        let reasons: Vec<String> = { fault.into_iter() }
            .chain(block)
            .chain(of_host)
            .chain(health)
            .chain(self.standing.reasons())
            .collect();
        reasons.join("; ")
    }
}

impl Row for GpuView {
    const COLUMNS: &'static [Column] = &[
        Column::new("HOST"),
        Column::new("INDEX"),
        Column::new("MODEL"),
        Column::new("STATE"),
        Column::new("HEALTH"),
        Column::new("JOB"),
        Column::wide("TASK"),
        Column::new("UUID"),
        Column::wide("MEMORY"),
        Column::wide("SINCE"),
        Column::new("REASON"),
    ];
    const KEY: &'static str = "gpus";

    fn cells(&self, now: Timestamp) -> Vec<Cell> {
        let holder = |text: fn(&HolderView) -> String| self.holder.as_ref().map(text);
        vec![
            (*self.host).into(),
            self.index.to_string().into(),
            (*self.model).into(),
            Cell::toned(self.state, self.tone()),
            self.standing.cell(),
            holder(|holder| holder.job.to_string())
                .unwrap_or_default()
                .into(),
            holder(|holder| holder.task.to_string())
                .unwrap_or_default()
                .into(),
            (*self.uuid).into(),
            format_mib(self.memory_mib).into(),
            Cell::toned(ago(now, self.health_since_ms), Tone::Faint),
            self.reason(now).into(),
        ]
    }

    fn name(&self) -> String {
        self.uuid.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(gpu: v1::Gpu) -> (&'static str, String) {
        let view = GpuView::from(gpu);
        (view.state, view.reason(Timestamp::UNIX_EPOCH))
    }

    #[test]
    fn a_gpu_is_not_free_where_its_host_takes_no_work() {
        let block = v1::Block {
            reason: "fan broken".to_owned(),
            author: "ada".to_owned(),
            ..v1::Block::default()
        };
        let of_blocked = v1::Gpu {
            host_block: Some(block),
            host_health: v1::HostHealth::Up.into(),
            ..v1::Gpu::default()
        };
        let told = "host blocked: fan broken (ada)".to_owned();
        assert_eq!(shown(of_blocked), ("blocked", told));
        let of_lost = v1::Gpu {
            host_health: v1::HostHealth::Lost.into(),
            ..v1::Gpu::default()
        };
        assert_eq!(shown(of_lost), ("unreachable", "host lost".to_owned()));
        assert_eq!(shown(v1::Gpu::default()), ("free", String::new()));
    }
}
