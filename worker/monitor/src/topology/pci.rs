//! Addresses of PCI devices.

use std::fmt;
use std::str::FromStr;

/// A device's address in the kernel's format: `0000:17:00.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

/// The text is not the address of a PCI device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a PCI address: DOMAIN:BUS:DEVICE.FUNCTION in hexadecimal digits")]
pub struct PciAddressError(pub String);

impl FromStr for PciAddress {
    type Err = PciAddressError;

    /// Accepts the kernel's format and NVML's, whose domain has eight digits and whose letters are upper
    /// case.
    fn from_str(text: &str) -> Result<Self, PciAddressError> {
        let parse = || {
            let (domain, rest) = text.split_once(':')?;
            let (bus, rest) = rest.split_once(':')?;
            let (device, function) = rest.split_once('.')?;
            let is_hexadecimal = |part: &str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
            if ![domain, bus, device, function]
                .into_iter()
                .all(is_hexadecimal)
            {
                return None;
            }
            Some(Self {
                domain: u32::from_str_radix(domain, 16).ok()?,
                bus: u8::from_str_radix(bus, 16).ok()?,
                device: u8::from_str_radix(device, 16).ok()?,
                function: u8::from_str_radix(function, 16).ok()?,
            })
        };
        parse().ok_or_else(|| PciAddressError(text.to_owned()))
    }
}

impl PciAddress {
    /// Formats it as NVIDIA's tools do: `00000000:17:00.0`.
    #[must_use]
    pub fn to_driver_form(self) -> String {
        let Self {
            domain,
            bus,
            device,
            function,
        } = self;
        format!("{domain:08X}:{bus:02X}:{device:02X}.{function:X}")
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            domain,
            bus,
            device,
            function,
        } = self;
        write!(
            formatter,
            "{domain:04x}:{bus:02x}:{device:02x}.{function:x}"
        )
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    #[test]
    fn the_drivers_form_becomes_the_kernels() {
        let read = |text: &str| {
            text.parse::<PciAddress>()
                .map(|address| address.to_string())
        };
        assert_eq!(read("00000000:AB:00.0").unwrap(), "0000:ab:00.0");
        assert_eq!(read("0000:17:1f.7").unwrap(), "0000:17:1f.7");
        assert_eq!(read("00010000:17:00.0").unwrap(), "10000:17:00.0");
        for bad in [
            "",
            "17:00.0",
            "0000:17:00",
            "0000:+7:00.0",
            "0000:17:00.zz",
            "pci0000:00",
        ] {
            assert_eq!(read(bad), Err(PciAddressError(bad.to_owned())));
        }
    }
}
