//! Hosts and GPUs: registration, phases, health and blocks.

pub(super) mod blocks;
pub(super) mod cell_tree;
pub(super) mod gpus;
pub(super) mod health;
pub(super) mod host_health;
pub(super) mod hosts;

use muster_model::command::HostCommand;
use muster_model::rejection::Rejection;

use crate::apply::Step;
use crate::state::Answer;

impl Step<'_> {
    pub(super) fn host(&mut self, command: &HostCommand) -> Result<Answer, Rejection> {
        match command {
            HostCommand::RegisterHost { registration, .. } => self.register_host(registration),
            HostCommand::SetHostHealth {
                host,
                health,
                one_way,
                ..
            } => self.set_host_health(*host, *health, *one_way),
            HostCommand::SetGpuHealth {
                host, gpu, health, ..
            } => self.set_gpu_health(*host, *gpu, health),
        }
    }
}
