//! A GPU in a list.

use jiff::Timestamp;
use muster_documents::{Gpu, GpuHolder, GpuState, HostHealth};

use crate::output::{Cell, Column, Row, Tone, ago};
use crate::parse::format_mib;
use crate::view::{block, health};

fn tone(state: GpuState) -> Tone {
    match state {
        GpuState::Faulted | GpuState::Unreachable => Tone::Bad,
        GpuState::Blocked => Tone::Waiting,
        GpuState::Free | GpuState::Held | GpuState::Unknown => Tone::Good,
    }
}

fn reason(gpu: &Gpu, now: Timestamp) -> String {
    let fault = gpu.fault.as_ref();
    let fault = fault.map(|fault| format!("{}: {}", fault.signal, fault.detail));
    let block = gpu.block.as_ref().map(|it| block::text(it, now));
    let of_host = gpu.host_block.as_ref();
    let of_host = of_host.map(|it| format!("host blocked: {}", block::text(it, now)));
    let health = gpu.host_health.filter(|health| *health != HostHealth::Up);
    let health = health.map(|health| format!("host {health}"));
    let reasons = fault.into_iter().chain(block).chain(of_host).chain(health);
    let reasons: Vec<String> = reasons.chain(gpu.health_state.reasons()).collect();
    reasons.join("; ")
}

impl Row for Gpu {
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

    fn cells(&self, now: Timestamp) -> Vec<Cell> {
        let holder = |text: fn(&GpuHolder) -> String| self.holder.as_ref().map(text);
        vec![
            (*self.host).into(),
            self.index.to_string().into(),
            (*self.model).into(),
            Cell::toned(self.state.as_str(), tone(self.state)),
            health::state_cell(&self.health_state),
            holder(|holder| holder.job.to_string())
                .unwrap_or_default()
                .into(),
            holder(|holder| holder.task.to_string())
                .unwrap_or_default()
                .into(),
            (*self.uuid).into(),
            format_mib(self.memory_mib).into(),
            Cell::toned(ago(now, self.health_since), Tone::Faint),
            reason(self, now).into(),
        ]
    }

    fn name(&self) -> String {
        self.uuid.clone()
    }
}

#[cfg(test)]
mod tests {
    use muster_proto::v1;

    use super::*;

    fn shown(gpu: v1::Gpu) -> (&'static str, String) {
        let gpu = Gpu::from(gpu);
        (gpu.state.as_str(), reason(&gpu, Timestamp::UNIX_EPOCH))
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
        let blocked_reason = "host blocked: fan broken (ada)".to_owned();
        assert_eq!(shown(of_blocked), ("blocked", blocked_reason));
        let of_lost = v1::Gpu {
            host_health: v1::HostHealth::Lost.into(),
            ..v1::Gpu::default()
        };
        assert_eq!(shown(of_lost), ("unreachable", "host lost".to_owned()));
        assert_eq!(shown(v1::Gpu::default()), ("free", String::new()));
    }
}
