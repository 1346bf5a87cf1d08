//! GPU health as reported by workers.

use muster_model::command::{GpuHealth, StopCause, StopReason};
use muster_model::event::EventKind;
use muster_model::health::{Component, with_detail};
use muster_model::ids::{GpuUuid, HostId};
use muster_model::limits;
use muster_model::rejection::Rejection;

use crate::apply::attempt::stopping::grace_ms;
use crate::apply::attempt::texts;
use crate::apply::{Step, require_length};
use crate::state::Answer;

/// Signals of GPUs that accept no new work but do not affect running work, which continues with the driver it
/// started with.
const SPARING_SIGNALS: &[&str] = &["driver-version-mismatch"];

impl Step<'_> {
    pub(in crate::apply) fn set_gpu_health(
        &mut self,
        host: HostId,
        uuid: GpuUuid,
        health: &GpuHealth,
    ) -> Result<Answer, Rejection> {
        if let GpuHealth::Faulted { signal, detail } = health {
            let limit = limits::NAME_BYTES_MAX;
            require_length("signal", signal, "NAME_BYTES_MAX", limit)?;
            let limit = limits::TEXT_BYTES_MAX;
            require_length("detail", detail, "TEXT_BYTES_MAX", limit)?;
        }
        match self.state.gpu(uuid) {
            Some((of, gpu)) if of.id == host => {
                if gpu.health != *health {
                    self.change_gpu_health(host, uuid, health);
                }
                Ok(Answer::Done)
            }
            _ => Err(Rejection::UnknownGpu(uuid)),
        }
    }

    fn change_gpu_health(&mut self, id: HostId, uuid: GpuUuid, health: &GpuHealth) {
        let since = self.state.time;
        let host_name = self.edit_host(id, |host| {
            for gpu in host.gpus.iter_mut().filter(|gpu| gpu.uuid == uuid) {
                gpu.health = health.clone();
                gpu.health_since = since;
            }
            host.name.to_string()
        });
        self.emit(EventKind::GpuHealthChanged {
            gpu: uuid,
            host: id,
            host_name,
            health: health.clone(),
        });
        if let GpuHealth::Faulted { signal, .. } = health {
            if !SPARING_SIGNALS.contains(&signal.as_str()) {
                self.stop_holder(uuid);
            }
            self.give_up_broken_claims(id);
        }
    }

    /// Stops the attempt that holds an unfit GPU.
    pub(in crate::apply) fn stop_holder(&mut self, uuid: GpuUuid) {
        let Some((_, gpu)) = self.state.gpu(uuid) else {
            return;
        };
        if let Some(holder) = gpu.holder {
            let detail = match &gpu.health {
                GpuHealth::Faulted { signal, detail } => with_detail(signal, detail),
                GpuHealth::Healthy => {
                    texts::accusation(self.state.health.condition(&Component::Gpu(uuid)))
                }
            };
            let cause = StopCause::new(StopReason::GpuFault { gpu: uuid }, detail);
            let grace_ms = grace_ms(&self.job_mut(holder.job).spec, &cause.reason);
            let member = Some(holder.task);
            self.order_stop_at(holder.unit_id(), member, cause, grace_ms);
        }
    }
}
