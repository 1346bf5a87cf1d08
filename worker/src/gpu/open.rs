//! Opening the GPUs that the settings name.

use muster_systemd::Systemd;

use super::{GpuBackend, GpuError, HelpedBackend, HelperProgram, SimulatedBackend, Timeline};
use crate::config::GpuConfig;
use crate::error::Error;
use crate::starting::telling;

/// Opens them; a driver that cannot be asked costs the host its GPUs and not its agent.
pub(crate) async fn open_gpus(
    config: &GpuConfig,
    host: &str,
    systemd: Option<&Systemd>,
) -> Result<Box<dyn GpuBackend>, Error> {
    match config {
        // A driver that starts may take a minute: systemd must not take us for frozen.
        GpuConfig::Nvml | GpuConfig::Auto => match telling(systemd, open_helped()).await {
            Ok(backend) => Ok(Box::new(backend)),
            Err(error @ GpuError::NoDriver(_)) if *config == GpuConfig::Auto => {
                tracing::info!(%error, "this host offers no GPUs");
                Ok(no_gpus(host))
            }
            Err(error @ GpuError::NoDriver(_)) => Err(error.into()),
            // The tasks of an earlier agent need this one more than a list of GPUs.
            Err(error) => {
                tracing::error!(%error, "the driver lists no GPUs: this host offers none");
                Ok(no_gpus(host))
            }
        },
        GpuConfig::Simulated {
            count,
            model,
            memory_mib,
            timeline,
            pci_addresses,
        } => {
            let timeline = match timeline {
                Some(path) => Timeline::read(path)?,
                None => Timeline::default(),
            };
            let backend = SimulatedBackend::new(host, *count, model, *memory_mib, timeline);
            Ok(Box::new(backend.with_pci_addresses(pci_addresses)?))
        }
        GpuConfig::None => Ok(no_gpus(host)),
    }
}

async fn open_helped() -> Result<HelpedBackend, GpuError> {
    let open = || HelpedBackend::open(HelperProgram::of_this_binary());
    let opened = tokio::task::spawn_blocking(open).await;
    opened.unwrap_or_else(|error| Err(GpuError::Told(format!("the opening failed: {error}"))))
}

fn no_gpus(host: &str) -> Box<dyn GpuBackend> {
    Box::new(SimulatedBackend::new(host, 0, "", 0, Timeline::default()))
}
