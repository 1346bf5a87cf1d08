//! A host in a list.

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_proto::v1;
use serde::Serialize;

use crate::output::{Cell, Column, Row, Tone, ago, instant};
use crate::parse::{CpuCount, format_mib};
use crate::view::block::BlockView;
use crate::view::health_standing::HealthStandingView;
use crate::view::host_cells::HostCellsView;
use crate::view::word::{ONE_WAY, silence_cause, word};

/// A host.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct HostView {
    name: String,
    id: u32,
    address: String,
    state: &'static str,
    health: String,
    health_since: String,
    silence_cause: Option<&'static str>,
    #[serde(flatten)]
    standing: HealthStandingView,
    block: Option<BlockView>,
    planned: Option<BlockView>,
    gpus: GpuCountsView,
    gpu_models: Vec<String>,
    tasks: u32,
    cpus: f64,
    cpus_used: f64,
    memory_mib: u64,
    memory_mib_used: u64,
    labels: BTreeMap<String, String>,
    registered_at: String,
    worker_id: String,
    incarnation: u64,
    boot_id: String,
    cells: HostCellsView,
    #[serde(skip)]
    cpus_milli: (u32, u32),
    #[serde(skip)]
    health_since_ms: u64,
    #[serde(skip)]
    one_way: bool,
}

/// GPUs of a host by use.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct GpuCountsView {
    total: u32,
    free: u32,
    held: u32,
    blocked: u32,
    faulted: u32,
    unreachable: u32,
}

impl From<v1::Host> for HostView {
    fn from(host: v1::Host) -> Self {
        let gpus = GpuCountsView::count(&host);
        let mut gpu_models: Vec<String> = host.gpus.iter().map(|gpu| gpu.model.clone()).collect();
        gpu_models.dedup();
        let cpus = |milli: u32| f64::from(milli) / 1_000.0;
        Self {
            state: state(&host, gpus),
            silence_cause: silence_cause(host.health(), host.one_way),
            health: word(host.health().as_str_name(), "HOST_HEALTH_"),
            name: host.name,
            id: host.id,
            address: host.address,
            health_since: instant(host.health_since_ms),
            standing: HealthStandingView::new(host.health_phase, host.health_rule, host.kept_off),
            block: host.block.map(BlockView::from),
            planned: host.planned.map(BlockView::from),
            gpus,
            gpu_models,
            tasks: host.tasks,
            cpus: cpus(host.cpus_milli),
            cpus_used: cpus(host.cpus_milli_used),
            memory_mib: host.memory_mib,
            memory_mib_used: host.memory_mib_used,
            labels: host.labels,
            registered_at: instant(host.registered_at_ms),
            worker_id: host.worker_id,
            incarnation: host.incarnation,
            boot_id: host.boot_id,
            cells: HostCellsView::new(host.cells.unwrap_or_default()),
            cpus_milli: (host.cpus_milli_used, host.cpus_milli),
            health_since_ms: host.health_since_ms,
            one_way: host.one_way,
        }
    }
}

impl GpuCountsView {
    /// GPUs that cannot be allocated are not free, even if only their host is the cause.
    fn count(host: &v1::Host) -> Self {
        let is_silent = matches!(
            host.health(),
            v1::HostHealth::Suspect | v1::HostHealth::Lost
        );
        let mut counts = Self::default();
        for gpu in &host.gpus {
            counts.total += 1;
            let faulted = gpu
                .health
                .as_ref()
                .is_some_and(|health| health.fault.is_some());
            let blocked = gpu.block.is_some() || host.block.is_some();
            let counter = match (gpu.holder.is_some(), faulted, blocked) {
                (true, _, _) => &mut counts.held,
                (_, true, _) => &mut counts.faulted,
                (_, _, true) => &mut counts.blocked,
                _ if is_silent => &mut counts.unreachable,
                _ => &mut counts.free,
            };
            *counter += 1;
        }
        counts
    }
}

/// State in the terms of Slurm: `idle mixed allocated draining drained blocked suspect lost`.
fn state(host: &v1::Host, gpus: GpuCountsView) -> &'static str {
    match host.health() {
        v1::HostHealth::Lost => return "lost",
        v1::HostHealth::Suspect => return "suspect",
        v1::HostHealth::Up | v1::HostHealth::Unspecified => {}
    }
    if let Some(block) = &host.block {
        return match (block.drain_deadline_ms.is_some(), host.tasks > 0) {
            (true, true) => "draining",
            (true, false) => "drained",
            (false, _) => "blocked",
        };
    }
    if host.tasks == 0 {
        "idle"
    } else if gpus.free > 0 || gpus.total == 0 {
        "mixed"
    } else {
        "allocated"
    }
}

impl HostView {
    fn tone(&self) -> Tone {
        match self.state {
            "lost" => Tone::Bad,
            "suspect" | "blocked" | "draining" | "drained" => Tone::Waiting,
            _ => Tone::Good,
        }
    }
}

impl Row for HostView {
    const COLUMNS: &'static [Column] = &[
        Column::new("NAME"),
        Column::new("STATE"),
        Column::new("HEALTH"),
        Column::new("GPUS"),
        Column::new("FREE"),
        Column::new("TASKS"),
        Column::new("MODEL"),
        Column::wide("CPUS"),
        Column::wide("MEMORY"),
        Column::wide("ADDRESS"),
        Column::wide("SINCE"),
        Column::new("REASON"),
    ];
    const KEY: &'static str = "hosts";

    fn cells(&self, now: Timestamp) -> Vec<Cell> {
        let (cpus_used, cpus) = self.cpus_milli;
        let cpu = |milli: u32| CpuCount { milli }.to_string();
        let block = self.block.as_ref().map(|block| block.text(now));
        let faulted = self.gpus.faulted;
        let faulted = (faulted > 0).then(|| format!("{faulted} GPUs faulted"));
        let planned = self.planned.as_ref().map(|block| block.text_of_plan(now));
        let one_way = self.one_way.then(|| ONE_WAY.to_owned());
        let stands = self.standing.reasons();
        let reasons: Vec<String> = { one_way.into_iter() }
            .chain(block.or(faulted))
            .chain(stands)
            .chain(planned)
            .collect();
        let reason = reasons.join("; ");
        vec![
            (*self.name).into(),
            Cell::toned(self.state, self.tone()),
            self.standing.cell(),
            self.gpus.total.to_string().into(),
            self.gpus.free.to_string().into(),
            self.tasks.to_string().into(),
            self.gpu_models.join(",").into(),
            format!("{}/{}", cpu(cpus_used), cpu(cpus)).into(),
            format!(
                "{}/{}",
                format_mib(self.memory_mib_used),
                format_mib(self.memory_mib)
            )
            .into(),
            (*self.address).into(),
            Cell::toned(ago(now, self.health_since_ms), Tone::Faint),
            reason.into(),
        ]
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// State of two free GPUs of such a host.
    fn counted(health: v1::HostHealth, block: Option<v1::Block>) -> GpuCountsView {
        let host = v1::Host {
            health: health.into(),
            block,
            gpus: vec![v1::Gpu::default(), v1::Gpu::default()],
            ..v1::Host::default()
        };
        HostView::from(host).gpus
    }

    #[test]
    fn gpus_of_a_host_that_takes_no_work_are_not_free() {
        let free = counted(v1::HostHealth::Up, None);
        assert_eq!((free.free, free.blocked, free.unreachable), (2, 0, 0));
        let blocked = counted(v1::HostHealth::Up, Some(v1::Block::default()));
        assert_eq!((blocked.free, blocked.blocked), (0, 2));
        let lost = counted(v1::HostHealth::Lost, None);
        assert_eq!((lost.free, lost.unreachable), (0, 2));
    }
}
