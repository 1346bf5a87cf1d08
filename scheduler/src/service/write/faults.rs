//! Drills: faults injected on hosts with simulated GPUs.

use std::collections::BTreeSet;

use muster_health::rules::RuleSet;
use muster_model::access::Role;
use muster_model::health::ComponentKind;
use muster_model::ids::GpuUuid;
use muster_model::limits;
use muster_model::rejection::Rejection;
use muster_proto::convert::gpu_uuid;
use muster_proto::field::InvalidField;
use muster_proto::status::{self, status_of};
use muster_proto::v1;
use muster_proto::v1::injection::What;
use tokio::time::{Instant, timeout_at};
use tonic::{Code, Status};

use crate::audit_log::Record;
use crate::leader::ToWorker;
use crate::service::context::Context;
use crate::service::gate::Method;
use crate::service::replies::{HOST_UNREACHABLE, unreachable};
use crate::service::write::request::{Reply, WriteRequest};

/// A checked injection.
pub(crate) struct InjectionOrder {
    host: String,
    what: What,
    /// The GPU concerned, if any.
    gpu: Option<GpuUuid>,
}

impl WriteRequest for v1::InjectFaultRequest {
    const METHOD: Method = Method::of_admin("InjectFault", Role::Admin);
    const IS_REPEATABLE: bool = false;

    type Order = InjectionOrder;

    fn record(&self) -> Record {
        Record::about("", format!("host {}", self.host))
    }

    fn order(self) -> Result<InjectionOrder, Status> {
        let what = self.injection.and_then(|injection| injection.what);
        let what =
            what.ok_or_else(|| InvalidField::new("injection", "must contain a fault to inject"))?;
        Ok(InjectionOrder {
            host: self.host,
            gpu: injected_gpu(&what)?,
            what,
        })
    }

    async fn execute(order: InjectionOrder, context: &Context, deadline: Instant) -> Reply<Self> {
        let InjectionOrder {
            host: name,
            what,
            gpu,
        } = order;
        let leadership = context.handle.leadership().borrow().clone();
        if !leadership.is_self {
            let leader = leadership.leader.as_ref();
            return Err(status::not_leader(leader.map(|peer| peer.address.as_str())));
        }
        let state = context.fork();
        check_injection(&state.health_rules.set, &what)?;
        let host = state
            .host_by_name(&name)
            .ok_or_else(|| status_of(&Rejection::UnknownHost(name.clone())))?;
        let is_its_own = |gpu: &GpuUuid| host.gpus.iter().any(|known| known.uuid == *gpu);
        if let Some(gpu) = gpu.filter(|gpu| !is_its_own(gpu)) {
            return Err(status_of(&Rejection::UnknownGpu(gpu)));
        }
        let (session, worker) = context
            .directory
            .find(host.id)
            .ok_or_else(|| unreachable(&name))?;
        let (awaited, answer) = context.replies().expect_inject(session);
        let order = ToWorker::Inject(Box::new(v1::InjectFault {
            id: awaited.id,
            injection: Some(v1::Injection { what: Some(what) }),
        }));
        if worker.try_send(order).is_err() {
            return Err(unreachable(&name));
        }
        match timeout_at(deadline, answer).await {
            Ok(Ok(v1::InjectResult { error: None, .. })) => Ok(v1::InjectFaultResponse {}),
            Ok(Ok(v1::InjectResult {
                error: Some(error), ..
            })) => Err(status::error(
                Code::FailedPrecondition,
                "NOT_SIMULATED",
                &error,
                &[],
            )),
            Ok(Err(_)) => Err(unreachable(&name)),
            Err(_) => Err(status::error(
                Code::DeadlineExceeded,
                HOST_UNREACHABLE,
                &format!("the worker of host `{name}` did not answer before the timeout"),
                &[("host", name)],
            )),
        }
    }
}

/// The GPU of an injection, if it concerns one.
fn injected_gpu(what: &What) -> Result<Option<GpuUuid>, InvalidField> {
    let (field, gpu) = match what {
        What::Signal(signal) => ("injection.signal.gpu", &signal.gpu),
        What::Reading(reading) if !reading.gpu.is_empty() => {
            ("injection.reading.gpu", &reading.gpu)
        }
        What::Reading(_) | What::KernelLine(_) | What::Check(_) => return Ok(None),
    };
    gpu_uuid(field, gpu).map(Some)
}

/// Refuses an injection without an observable effect.
fn check_injection(rules: &RuleSet, what: &What) -> Result<(), InvalidField> {
    match what {
        What::Signal(signal) => match &signal.fault {
            Some(fault) => check_length("injection.signal.fault.signal", &fault.signal, 1),
            None => Ok(()),
        },
        What::KernelLine(line) => check_length("injection.kernel_line", line, 1),
        What::Check(check) => {
            check_length("injection.check.name", &check.name, 1)?;
            check_length("injection.check.output", &check.output, 0)
        }
        What::Reading(reading) => check_reading(rules, reading),
    }
}

fn check_length(field: &str, text: &str, least: usize) -> Result<(), InvalidField> {
    let limit = limits::TEXT_BYTES_MAX;
    if (least..=limit).contains(&text.len()) {
        return Ok(());
    }
    let rule = format!("must have {least} to {limit} bytes (TEXT_BYTES_MAX)");
    Err(InvalidField::new(field, rule))
}

/// A reading must match its rule in component and metrics.
fn check_reading(rules: &RuleSet, reading: &v1::InjectedReading) -> Result<(), InvalidField> {
    let of = match (reading.gpu.as_str(), reading.adapter.as_str()) {
        ("", "") => ComponentKind::Host,
        (_, "") => ComponentKind::Gpu,
        ("", _) => ComponentKind::Nic,
        _ => {
            let rule = "must be a GPU or an adapter, not both";
            return Err(InvalidField::new("injection.reading.adapter", rule));
        }
    };
    let Some(rule) = rules.rule(&reading.rule) else {
        let problem = format!(
            "unknown rule `{}` (`muster health rules` lists them)",
            reading.rule
        );
        return Err(InvalidField::new("injection.reading.rule", problem));
    };
    // Hosts report on behalf of racks and tasks.
    let read_of = match rule.component {
        ComponentKind::Rack | ComponentKind::Task => ComponentKind::Host,
        kind => kind,
    };
    if read_of != of {
        let (name, about) = (&rule.id, rule.component);
        let problem = format!("rule {name} applies to a {about}, and this is a {of}");
        return Err(InvalidField::new("injection.reading.rule", problem));
    }
    let sides = rule.degraded.when.iter().chain(&rule.fatal.when);
    let known: BTreeSet<&str> = { sides.chain(&rule.healthy) }
        .map(|condition| condition.metric.as_str())
        .collect();
    let names: Vec<&str> = known.iter().copied().collect();
    let unknown = { reading.metrics.keys() }.find(|metric| !known.contains(metric.as_str()));
    let problem = match unknown {
        Some(metric) => format!("rule {} has no `{metric}`; it has", rule.id),
        None if reading.metrics.is_empty() => format!("needs a metric; rule {} has", rule.id),
        None => return Ok(()),
    };
    let problem = format!("{problem} {}", names.join(", "));
    Err(InvalidField::new("injection.reading.metrics", problem))
}
