//! Names of components, as in all documents.

use muster_proto::v1;

use crate::wire::FromWire;

/// A host or GPU that can be blocked: `host node01`, `GPU-...`.
pub(crate) fn block_target(target: Option<&v1::BlockTarget>) -> String {
    use v1::block_target::Target;
    match target.and_then(|target| target.target.as_ref()) {
        Some(Target::Host(name)) => format!("host {name}"),
        Some(Target::Gpu(uuid)) => uuid.clone(),
        None => "something".to_owned(),
    }
}

impl FromWire<Option<v1::BlockTarget>> for String {
    fn from_wire(target: Option<v1::BlockTarget>) -> Self {
        block_target(target.as_ref())
    }
}

/// Name of a GPU, an adapter, a host or a rack: `GPU-... on node01`, `host node01`.
#[must_use]
pub fn component_name(component: Option<&v1::Component>, host: &str) -> String {
    use v1::component::Kind;
    match component.and_then(|component| component.kind.as_ref()) {
        Some(Kind::Gpu(uuid)) if host.is_empty() => uuid.clone(),
        Some(Kind::Gpu(uuid)) => format!("{uuid} on {host}"),
        Some(Kind::Nic(nic)) => format!("{} on {host}", nic.name),
        Some(Kind::HostId(_)) => format!("host {host}"),
        Some(Kind::Rack(name)) => format!("rack {name}"),
        None => "something".to_owned(),
    }
}
