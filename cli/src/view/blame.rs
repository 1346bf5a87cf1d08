//! Attribution of the end of an attempt.

use muster_proto::v1;
use serde::Serialize;

use crate::view::word;

/// Attribution of an end, its confidence, and its consequences.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct BlameView {
    class: String,
    component: Option<String>,
    confidence_permille: u32,
    charge: String,
    measures: Vec<String>,
    step: String,
    evidence: Vec<String>,
}

impl From<v1::Blame> for BlameView {
    fn from(wire: v1::Blame) -> Self {
        let component = wire.component.as_ref();
        Self {
            component: component.map(|it| word::component(Some(it), &wire.host)),
            class: wire.class,
            confidence_permille: wire.confidence_permille,
            charge: wire.charge,
            measures: wire.measures,
            step: wire.step,
            evidence: wire.evidence,
        }
    }
}

impl BlameView {
    /// Short form: `gpu, paid by infra, 95 %`.
    pub(crate) fn text(&self) -> String {
        let payer = match self.charge.as_str() {
            "user" => "charged to the job",
            "infra" => "charged to the infrastructure",
            _ => "not charged",
        };
        let percent = self.confidence_permille / 10;
        let component = self.component.as_deref();
        let class = &self.class;
        let what = match component {
            // The name contains its class: `host node04`.
            Some(name) if name.split(' ').next() == Some(class.as_str()) => name.to_owned(),
            Some(name) => format!("{class} ({name})"),
            None => class.clone(),
        };
        format!("{what}, {payer}, {percent} % sure")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_named_once() {
        let blame = v1::Blame {
            class: "host".to_owned(),
            component: Some(v1::Component {
                kind: Some(v1::component::Kind::HostId(4)),
            }),
            host: "node04".to_owned(),
            charge: "infra".to_owned(),
            confidence_permille: 700,
            ..v1::Blame::default()
        };
        let text = BlameView::from(blame).text();
        assert_eq!(
            text,
            "host node04, charged to the infrastructure, 70 % sure"
        );
    }
}
