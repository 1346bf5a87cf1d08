//! Faults injected into a host with simulated GPUs, for drills: they take the same path as real ones.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_health::checks::{self, CheckEnd, Dialect};
use muster_health::kernel_log::Scanner;
use muster_model::health::Component;
use muster_model::ids::HostId;
use muster_proto::convert::gpu_uuid;
use muster_proto::v1;
use muster_proto::v1::injection::What;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use crate::health::{Observation, Sample, THIS_HOST};

/// Facility and level of the kernel's own errors.
const KERNEL_ERROR: u32 = 3;

/// An injected observation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Injected {
    /// A reading; a lasting one is repeated until another one of the same rule and component replaces it.
    Reading { sample: Sample, lasts: bool },
    /// A line of the kernel's log.
    Line(String),
    /// A result of a site check.
    Check {
        name: String,
        code: i32,
        output: String,
    },
}

impl Injected {
    /// Converts an order to inject, unless it is a signal of the GPU backend.
    ///
    /// # Errors
    /// The problem with the order.
    pub(crate) fn of(what: What) -> Result<Self, String> {
        match what {
            What::Signal(_) => Err("signals are injected through the GPU backend".to_owned()),
            What::KernelLine(text) => Ok(Self::Line(text)),
            What::Check(check) => Ok(Self::Check {
                name: check.name,
                code: check.code,
                output: check.output,
            }),
            What::Reading(reading) => {
                let component = component(&reading)?;
                let metrics: Vec<(String, i64)> = reading.metrics.into_iter().collect();
                Ok(Self::Reading {
                    sample: Sample {
                        rule: reading.rule,
                        component,
                        metrics,
                    },
                    lasts: reading.lasts,
                })
            }
        }
    }
}

fn component(reading: &v1::InjectedReading) -> Result<Component, String> {
    if !reading.gpu.is_empty() {
        let gpu = gpu_uuid("gpu", &reading.gpu);
        return gpu.map(Component::Gpu).map_err(|error| error.to_string());
    }
    if reading.adapter.is_empty() {
        return Ok(THIS_HOST);
    }
    Ok(Component::Nic {
        host: HostId(0),
        name: reading.adapter.clone(),
    })
}

/// Passes on injected observations until the sender is dropped; lasting ones again after every `period`.
pub(super) async fn show(
    mut injected: mpsc::Receiver<Injected>,
    mut scanner: Scanner,
    period: Duration,
    seen: mpsc::Sender<Observation>,
) {
    let mut lasting: BTreeMap<(String, Component), Sample> = BTreeMap::new();
    let mut lines = 0u64;
    let mut again = interval(period);
    again.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let shown = tokio::select! {
            next = injected.recv() => match next {
                Some(Injected::Reading { sample, lasts }) => {
                    let key = (sample.rule.clone(), sample.component.clone());
                    lasting.remove(&key);
                    if lasts {
                        lasting.insert(key, sample.clone());
                    }
                    Some(Observation::Samples(vec![sample]))
                }
                Some(Injected::Line(text)) => {
                    lines += 1;
                    line(&mut scanner, lines, &text)
                }
                Some(Injected::Check { name, code, output }) => {
                    let read = checks::read(Dialect::Nagios, CheckEnd::Exited(code), &output);
                    Some(Observation::Checked(name, read))
                }
                None => return,
            },
            _ = again.tick(), if !lasting.is_empty() => {
                Some(Observation::Samples(lasting.values().cloned().collect()))
            }
        };
        let Some(shown) = shown else { continue };
        if seen.send(shown).await.is_err() {
            return;
        }
    }
}

/// Parses a line as if it were the kernel log's next record.
fn line(scanner: &mut Scanner, number: u64, text: &str) -> Option<Observation> {
    let record = format!("{KERNEL_ERROR},{number},{number},-;{text}");
    match scanner.read("injected", &record) {
        Ok(scanned) => scanned.event.map(|event| Observation::Line {
            event,
            text: scanned.text,
            cursor: None,
        }),
        Err(error) => {
            tracing::warn!(%error, text, "the injected line is not a kernel log line");
            None
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use muster_health::kernel_log::{BusMap, Cursor, TrustedWriters};
    use tokio::time::timeout;

    use super::*;

    fn reading(value: i64, lasts: bool) -> Injected {
        let metrics = [("slowed".to_owned(), value)].into();
        Injected::of(What::Reading(v1::InjectedReading {
            adapter: "mlx5_0/1".to_owned(),
            rule: "ib_state".to_owned(),
            metrics,
            lasts,
            ..v1::InjectedReading::default()
        }))
        .unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_lasting_injected_reading_repeats_until_it_is_replaced() {
        let (inject, injected) = mpsc::channel(4);
        let (seen, mut observations) = mpsc::channel(4);
        let scanner = Scanner::new(TrustedWriters::Kernel, Cursor::default(), BusMap::default());
        let period = Duration::from_secs(30);
        let showing = tokio::spawn(show(injected, scanner, period, seen));
        inject.send(reading(1, true)).await.unwrap();
        for _ in 0..3 {
            let Some(Observation::Samples(samples)) = observations.recv().await else {
                unreachable!("it lasts")
            };
            assert_eq!(samples[0].metrics, [("slowed".to_owned(), 1)]);
        }
        inject.send(reading(0, false)).await.unwrap();
        let last = observations.recv().await;
        assert!(matches!(last, Some(Observation::Samples(_))));
        assert!(
            timeout(10 * period, observations.recv()).await.is_err(),
            "it is over"
        );
        let xid = "NVRM: GPU at 0000:10:00.0 has fallen off the bus.";
        inject.send(Injected::Line(xid.to_owned())).await.unwrap();
        let quota = "EXT4-fs (sda1): Remounting filesystem read-only";
        inject.send(Injected::Line(quota.to_owned())).await.unwrap();
        let line = observations.recv().await;
        assert!(matches!(line, Some(Observation::Line { .. })), "{line:?}");
        let check = Injected::of(What::Check(v1::InjectedCheck {
            name: "scratch".to_owned(),
            code: 2,
            output: "CRITICAL".to_owned(),
        }));
        inject.send(check.unwrap()).await.unwrap();
        drop(inject);
        let mut rest = Vec::new();
        while let Some(seen) = observations.recv().await {
            rest.push(seen);
        }
        assert!(matches!(&rest[..], [.., Observation::Checked(name, _)] if name == "scratch"));
        showing.await.unwrap();
    }

    #[test]
    fn a_reading_names_a_gpu_an_adapter_or_the_host() {
        let of = |gpu: &str, adapter: &str| {
            component(&v1::InjectedReading {
                gpu: gpu.to_owned(),
                adapter: adapter.to_owned(),
                ..v1::InjectedReading::default()
            })
        };
        assert_eq!(of("", ""), Ok(THIS_HOST));
        assert!(matches!(of("", "mlx5_0/1"), Ok(Component::Nic { .. })));
        assert!(of("GPU-1", "").is_err());
    }
}
