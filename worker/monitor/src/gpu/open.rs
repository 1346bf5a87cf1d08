//! Opening of the GPUs that the settings name.

use std::fs;
use std::path::Path;

use crate::gpu::{
    GpuBackend, GpuConfig, GpuError, HelpedBackend, HelperProgram, SimulatedBackend, Timeline,
};

/// PCI vendor id of NVIDIA and PCI class of display and compute controllers, as `sysfs` shows them.
const NVIDIA: &str = "0x10de";
const DISPLAY: &str = "0x03";
/// Drivers of GPUs that are reserved for other purposes: virtual machines, and a screen.
const OTHER_DRIVERS: [&str; 2] = ["vfio-pci", "nouveau"];

/// GPUs that were opened.
pub struct OpenGpus {
    /// The GPUs.
    pub backend: Box<dyn GpuBackend>,
    /// Why there are none although the host should have some.
    pub unopened: Option<String>,
}

impl OpenGpus {
    fn all(backend: Box<dyn GpuBackend>) -> Self {
        Self {
            backend,
            unopened: None,
        }
    }

    fn none(host: &str, unopened: Option<String>) -> Self {
        Self {
            backend: Box::new(SimulatedBackend::new(host, 0, "", 0, Timeline::default())),
            unopened,
        }
    }
}

/// Opens the GPUs. If the driver does not answer, the host offers no GPUs but its agent runs. Whether a
/// host should have GPUs is read from its `sysfs`. A driver may take a minute to start.
///
/// # Errors
/// [`GpuError::NoDriver`] if the settings require NVML, and errors in the settings of simulated GPUs.
pub async fn open_gpus(
    config: &GpuConfig,
    host: &str,
    host_root: Option<&Path>,
) -> Result<OpenGpus, GpuError> {
    match config {
        GpuConfig::Nvml | GpuConfig::Auto => match open_helped().await {
            Ok(backend) => Ok(OpenGpus::all(Box::new(backend))),
            Err(error @ GpuError::NoDriver(_)) if *config == GpuConfig::Auto => {
                tracing::info!(%error, "this host offers no GPUs");
                Ok(OpenGpus::none(host, None))
            }
            Err(error @ GpuError::NoDriver(_)) => Err(error),
            Err(error @ GpuError::DriverDoesNotStart(_))
                if *config == GpuConfig::Auto && !host_root.is_some_and(has_gpus) =>
            {
                tracing::info!(%error, "this host has no GPUs");
                Ok(OpenGpus::none(host, None))
            }
            // The tasks of an earlier agent need this one more than a list of GPUs.
            Err(error) => {
                tracing::error!(%error, "querying the GPUs failed: this host offers none");
                Ok(OpenGpus::none(host, Some(error.to_string())))
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
            let backend = SimulatedBackend::new(host, *count, model, *memory_mib, timeline)
                .with_pci_addresses(pci_addresses)?;
            Ok(OpenGpus::all(Box::new(backend)))
        }
        GpuConfig::None => Ok(OpenGpus::none(host, None)),
    }
}

async fn open_helped() -> Result<HelpedBackend, GpuError> {
    let open = || HelpedBackend::open(HelperProgram::of_this_binary());
    let opened = tokio::task::spawn_blocking(open).await;
    opened.unwrap_or_else(|error| {
        Err(GpuError::Refused(format!(
            "opening the GPUs failed: {error}"
        )))
    })
}

/// Whether the driver starts.
///
/// # Errors
/// The reason why it does not.
pub(crate) async fn try_driver() -> Result<(), String> {
    let opened = open_helped().await;
    opened.map(drop).map_err(|error| error.to_string())
}

/// Whether a host has NVIDIA GPUs that are not reserved for other purposes.
fn has_gpus(host_root: &Path) -> bool {
    let devices = fs::read_dir(host_root.join("sys/bus/pci/devices"));
    let mut paths = devices.into_iter().flatten().flatten().map(|it| it.path());
    paths.any(|device| {
        let is = |name: &str, begin: &str| {
            let text = fs::read_to_string(device.join(name));
            text.is_ok_and(|text| text.trim().starts_with(begin))
        };
        let link = fs::read_link(device.join("driver")).ok();
        let driver = link.as_deref().and_then(Path::file_name);
        let is_for_others = OTHER_DRIVERS
            .iter()
            .any(|it| driver.is_some_and(|of| of == *it));
        is("vendor", NVIDIA) && is("class", DISPLAY) && !is_for_others
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_seen_on_the_bus_unless_they_are_meant_for_something_else() {
        let home = tempfile::tempdir().unwrap();
        let device = |address: &str, vendor: &str, class: &str, driver: Option<&str>| {
            let device = home.path().join("sys/bus/pci/devices").join(address);
            fs::create_dir_all(&device).unwrap();
            fs::write(device.join("vendor"), format!("{vendor}\n")).unwrap();
            fs::write(device.join("class"), format!("{class}\n")).unwrap();
            if let Some(driver) = driver {
                let drivers = Path::new("../../../bus/pci/drivers");
                std::os::unix::fs::symlink(drivers.join(driver), device.join("driver")).unwrap();
            }
        };
        assert!(!has_gpus(home.path()));
        // An NVSwitch, a GPU of another vendor, and one passed to a virtual machine.
        device("0000:05:00.0", NVIDIA, "0x068000", None);
        device("0000:06:00.0", "0x1002", "0x030200", None);
        device("0000:07:00.0", NVIDIA, "0x030200", Some("vfio-pci"));
        assert!(!has_gpus(home.path()));
        device("0000:0f:00.0", NVIDIA, "0x030200", None);
        assert!(has_gpus(home.path()));
    }
}
