//! Whose fault the end of an attempt was.

use muster_proto::v1;
use serde::Serialize;

use crate::view::word;

/// Whose fault an end was, how sure that is, and what follows.
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
    /// In a few words: `gpu, paid by infra, 95 %`.
    pub(crate) fn text(&self) -> String {
        let payer = match self.charge.as_str() {
            "user" => "the job pays",
            "infra" => "the infrastructure pays",
            _ => "nobody pays",
        };
        let percent = self.confidence_permille / 10;
        let component = self.component.as_deref();
        let class = &self.class;
        let what = match component {
            // It says its class itself: `host node04`.
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
        assert_eq!(text, "host node04, the infrastructure pays, 70 % sure");
    }
}
