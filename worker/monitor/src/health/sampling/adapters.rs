//! Ports of network adapters (InfiniBand and RoCE) and their counters.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use muster_health::kernel_log::BusId;
use muster_model::health::Component;
use muster_model::ids::HostId;
use muster_model::time::{HOUR_MS, MonotonicMs};

use crate::health::Sample;
use crate::health::sampling::host::{entries, number};
use crate::limits::ADAPTER_PORTS_MAX;
use crate::rates::{Growth, Rate, WindowedGrowth};

/// Folder that lists the adapters.
const FOLDER: &str = "sys/class/infiniband";
/// Time that a port must have been down to count as a flap, in milliseconds; shorter losses of carrier are
/// only counted.
const FLAP_MS: u64 = 25_000;

/// All ports seen so far.
#[derive(Debug, Default)]
pub(super) struct Adapters {
    ports: BTreeMap<String, Port>,
    /// Expected speed of each port, in Gbit/s.
    expected_gbit_per_s: Option<u64>,
}

/// State of a port.
#[derive(Debug, Default)]
struct Port {
    /// Whether it was ever up: a port that never was has no cable.
    was_up: bool,
    down_since: Option<MonotonicMs>,
    rates: BTreeMap<&'static str, Rate>,
    symbols_lately: WindowedGrowth,
}

/// The component of a port in findings.
fn nic(name: &str) -> Component {
    Component::Nic {
        host: HostId(0),
        name: name.to_owned(),
    }
}

/// The first port of the adapter at a PCI address.
pub(crate) fn at(root: &Path, bus: BusId) -> Option<Component> {
    let is_there = |adapter: &std::path::PathBuf| {
        let device = fs::read_link(adapter.join("device")).unwrap_or_default();
        let place = device.file_name().unwrap_or_default();
        BusId::parse(&place.to_string_lossy()) == Some(bus)
    };
    let adapter = entries(&root.join(FOLDER), "").into_iter().find(is_there)?;
    let name = adapter.file_name()?.to_string_lossy().into_owned();
    Some(nic(&format!("{name}/1")))
}

/// Whether a port is up; none if there is no such port.
pub(crate) fn is_up(root: &Path, name: &str) -> Option<bool> {
    let (adapter, port) = name.split_once('/')?;
    port_is_up(&root.join(FOLDER).join(adapter).join("ports").join(port))
}

/// Parses a state such as `4: ACTIVE`.
fn port_is_up(port: &Path) -> Option<bool> {
    let state = fs::read_to_string(port.join("state")).ok()?;
    Some(state.contains("ACTIVE"))
}

/// Parses a rate such as `400 Gb/sec (4X NDR)`; whether it is below the expected one; none if unknown.
fn is_slower(port: &Path, expected_gbit_per_s: Option<u64>) -> Option<bool> {
    let rate = fs::read_to_string(port.join("rate")).ok()?;
    let (gbit_per_s, _) = rate.split_once(" Gb/sec")?;
    let gbit_per_s: f64 = gbit_per_s.parse().ok()?;
    #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
    let expected = expected_gbit_per_s? as f64;
    Some(gbit_per_s < expected)
}

/// A metric, the counter from which it is read, and the measure of its growth.
type CounterRow = (&'static str, &'static str, fn(Growth) -> i64);

impl Adapters {
    /// No port was seen yet; `expected_gbit_per_s` is the expected speed of each, if known.
    pub(super) fn new(expected_gbit_per_s: Option<u64>) -> Self {
        Self {
            expected_gbit_per_s,
            ..Self::default()
        }
    }

    /// Reads all ports.
    pub(super) fn read(&mut self, root: &Path, now: MonotonicMs) -> Vec<Sample> {
        let mut samples = Vec::new();
        for adapter in entries(&root.join(FOLDER), "") {
            for folder in entries(&adapter.join("ports"), "") {
                let (Some(of), Some(port)) = (adapter.file_name(), folder.file_name()) else {
                    continue;
                };
                let name = format!("{}/{}", of.to_string_lossy(), port.to_string_lossy());
                if self.ports.len() >= ADAPTER_PORTS_MAX && !self.ports.contains_key(&name) {
                    continue;
                }
                let component = nic(&name);
                let is_slow = is_slower(&folder, self.expected_gbit_per_s);
                let port = self.ports.entry(name).or_default();
                samples.extend(port.read(&component, is_slow, &folder, now));
            }
        }
        samples
    }
}

impl Port {
    /// Reads a port. `is_slow`: whether it is slower than expected, if known.
    fn read(
        &mut self,
        component: &Component,
        is_slow: Option<bool>,
        folder: &Path,
        now: MonotonicMs,
    ) -> Vec<Sample> {
        let Some(is_up) = port_is_up(folder) else {
            return Vec::new();
        };
        let sample =
            |rule: &str, metrics: &[(&str, i64)]| Sample::new(rule, component.clone(), metrics);
        let away_ms = match (is_up, self.down_since) {
            (true, Some(since)) => {
                self.down_since = None;
                Some(now.since(since))
            }
            (false, None) => {
                self.down_since = Some(now);
                None
            }
            _ => None,
        };
        let has_flapped = self.was_up && away_ms.is_some();
        self.was_up |= is_up;
        let downs = self.grow(folder, now, "counters/link_downed");
        let increase = |growth: Option<Growth>| growth.map_or(0, |growth| growth.increase);
        let was_long = has_flapped && away_ms.is_some_and(|ms| ms >= FLAP_MS);
        let mut samples = vec![sample(
            "ib_flap",
            &[
                ("flaps", i64::from(has_flapped)),
                ("flaps_over_25s", i64::from(was_long)),
                ("lost_carrier", i64::from(increase(downs) > 0)),
            ],
        )];
        if self.was_up {
            let mut metrics = vec![("down", i64::from(!is_up))];
            let is_short = is_slow.map(|is_slow| is_up && is_slow);
            metrics.extend(is_short.map(|is_short| ("short_of_profile", i64::from(is_short))));
            samples.push(sample("ib_state", &metrics));
        }
        if let Some(symbols) = self.grow(folder, now, "counters/symbol_error") {
            self.symbols_lately.add(now, symbols.increase);
            let per_hour = self.symbols_lately.within(now, HOUR_MS);
            let metrics = [("per_second", symbols.per_second()), ("per_hour", per_hour)];
            samples.push(sample("ib_symbol", &metrics));
        }
        let mut counters = self.counters(folder, now);
        counters.extend(downs.map(|downs| ("link_downed_increase", downs.increase)));
        samples.push(sample("ib_counters", &counters));
        samples
    }

    /// Growth of the error counters that the adapter has.
    fn counters(&mut self, folder: &Path, now: MonotonicMs) -> Vec<(&'static str, i64)> {
        let (per_minute, per_second) = (Growth::per_minute, Growth::per_second);
        let increase = |growth: Growth| growth.increase;
        let table: [CounterRow; 8] = [
            (
                "recoveries_per_minute",
                "counters/link_error_recovery",
                per_minute,
            ),
            (
                "receive_errors_per_second",
                "counters/port_rcv_errors",
                per_second,
            ),
            (
                "discards_per_second",
                "counters/port_xmit_discards",
                per_second,
            ),
            (
                "ack_timeouts_per_second",
                "hw_counters/local_ack_timeout_err",
                per_second,
            ),
            (
                "slow_restarts_per_second",
                "hw_counters/roce_slow_restart",
                per_second,
            ),
            (
                "integrity_increase",
                "counters/local_link_integrity_errors",
                increase,
            ),
            (
                "overrun_increase",
                "counters/excessive_buffer_overrun_errors",
                increase,
            ),
            (
                "rnr_retry_increase",
                "hw_counters/rnr_nak_retry_err",
                increase,
            ),
        ];
        let mut read = Vec::new();
        for (metric, file, value) in table {
            let growth = self.grow(folder, now, file);
            read.extend(growth.map(|growth| (metric, value(growth))));
        }
        read
    }

    fn grow(&mut self, folder: &Path, now: MonotonicMs, file: &'static str) -> Option<Growth> {
        let total = number(&folder.join(file))?;
        self.rates.entry(file).or_default().grow(now, total)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    #[test]
    fn a_port_goes_down_and_comes_back_and_one_without_a_cable_is_ignored() {
        let home = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = home.path().join(FOLDER).join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("mlx5_0/ports/1/state", "4: ACTIVE\n");
        write("mlx5_0/ports/1/counters/symbol_error", "0\n");
        write("mlx5_0/ports/1/counters/link_downed", "0\n");
        write("mlx5_1/ports/1/state", "1: DOWN\n");
        write("mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)\n");
        let mut adapters = Adapters::new(Some(400));
        let mut read = |now_s: u64| {
            let samples = adapters.read(home.path(), MonotonicMs(now_s * 1_000));
            move |name: &str, rule: &str, metric: &str| {
                let of = |it: &&Sample| it.component == nic(name) && it.rule == rule;
                let metrics = samples.iter().find(of)?.metrics.iter();
                metrics
                    .clone()
                    .find(|(of, _)| of == metric)
                    .map(|(_, value)| *value)
            }
        };
        let up = read(1);
        assert_eq!(up("mlx5_0/1", "ib_state", "down"), Some(0));
        assert_eq!(up("mlx5_0/1", "ib_state", "short_of_profile"), Some(0));
        assert_eq!(up("mlx5_1/1", "ib_state", "down"), None);
        write("mlx5_0/ports/1/state", "1: DOWN\n");
        write("mlx5_0/ports/1/counters/link_downed", "1\n");
        write("mlx5_0/ports/1/counters/symbol_error", "300\n");
        let down = read(31);
        assert_eq!(down("mlx5_0/1", "ib_state", "down"), Some(1));
        assert_eq!(down("mlx5_0/1", "ib_symbol", "per_second"), Some(10));
        assert_eq!(down("mlx5_0/1", "ib_symbol", "per_hour"), Some(300));
        assert_eq!(down("mlx5_0/1", "ib_flap", "lost_carrier"), Some(1));
        assert_eq!(
            down("mlx5_0/1", "ib_counters", "link_downed_increase"),
            Some(1)
        );
        write("mlx5_0/ports/1/state", "4: ACTIVE\n");
        write("mlx5_0/ports/1/rate", "2.5 Gb/sec (1X SDR)\n");
        let back = read(61);
        assert_eq!(back("mlx5_0/1", "ib_state", "short_of_profile"), Some(1));
        assert_eq!(back("mlx5_0/1", "ib_flap", "flaps_over_25s"), Some(1));
        assert_eq!(back("mlx5_0/1", "ib_flap", "lost_carrier"), Some(0));
        assert_eq!(is_up(home.path(), "mlx5_1/1"), Some(false));
        assert_eq!(is_up(home.path(), "mlx5_9/1"), None);
    }
}
