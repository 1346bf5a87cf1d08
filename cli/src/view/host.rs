//! A host in a list.

use jiff::Timestamp;
use muster_documents::{Host, HostState, SilenceCause};

use crate::output::{Cell, Column, Row, Tone, ago};
use crate::parse::format_mib;
use crate::view::{block, health};

fn tone(state: HostState) -> Tone {
    match state {
        HostState::Lost => Tone::Bad,
        HostState::Suspect | HostState::Blocked | HostState::Draining | HostState::Drained => {
            Tone::Waiting
        }
        _ => Tone::Good,
    }
}

impl Row for Host {
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

    fn cells(&self, now: Timestamp) -> Vec<Cell> {
        let block = self.block.as_ref().map(|it| block::text(it, now));
        let faulted = self.gpus.faulted;
        let faulted = (faulted > 0).then(|| format!("{faulted} GPUs faulted"));
        let planned = self.planned.as_ref().map(|it| block::plan_text(it, now));
        let is_one_way = self.silence_cause == Some(SilenceCause::OneWay);
        let one_way = is_one_way.then(|| SilenceCause::ONE_WAY.to_owned());
        let reasons = one_way.into_iter().chain(block.or(faulted));
        let reasons = reasons.chain(self.health_state.reasons()).chain(planned);
        let reasons: Vec<String> = reasons.collect();
        let reason = reasons.join("; ");
        vec![
            (*self.name).into(),
            Cell::toned(self.state.as_str(), tone(self.state)),
            health::state_cell(&self.health_state),
            self.gpus.total.to_string().into(),
            self.gpus.free.to_string().into(),
            self.tasks.to_string().into(),
            self.gpu_models.join(",").into(),
            format!("{}/{}", self.cpus_used, self.cpus).into(),
            format!(
                "{}/{}",
                format_mib(self.memory_mib_used),
                format_mib(self.memory_mib)
            )
            .into(),
            (*self.address).into(),
            Cell::toned(ago(now, self.health_since), Tone::Faint),
            reason.into(),
        ]
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}
