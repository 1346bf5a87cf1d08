//! Attribution of the end of an attempt.

use muster_proto::v1;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::name::component_name;

/// What an end is attributed to, the confidence, and the consequences; the words are in docs/health.md.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Attribution {
    pub class: String,
    pub component: Option<String>,
    pub confidence_permille: u32,
    pub charge: String,
    pub measures: Vec<String>,
    pub step: String,
    pub evidence: Vec<String>,
}

impl From<v1::Attribution> for Attribution {
    fn from(wire: v1::Attribution) -> Self {
        let component = wire.component.as_ref();
        Self {
            component: component.map(|it| component_name(Some(it), &wire.host)),
            class: wire.class,
            confidence_permille: wire.confidence_permille,
            charge: wire.charge,
            measures: wire.measures,
            step: wire.step,
            evidence: wire.evidence,
        }
    }
}

from_wire!(Attribution, v1::Attribution);

impl Attribution {
    /// Short form: `gpu, charged to the infrastructure, 95 % sure`.
    #[must_use]
    pub fn text(&self) -> String {
        let payer = match self.charge.as_str() {
            "user" => "charged to the job",
            "infra" => "charged to the infrastructure",
            _ => "not charged",
        };
        let percent = self.confidence_permille / 10;
        let class = &self.class;
        let what = match self.component.as_deref() {
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
        let attribution = v1::Attribution {
            class: "host".to_owned(),
            component: Some(v1::Component {
                kind: Some(v1::component::Kind::HostId(4)),
            }),
            host: "node04".to_owned(),
            charge: "infra".to_owned(),
            confidence_permille: 700,
            ..v1::Attribution::default()
        };
        assert_eq!(
            Attribution::from(attribution).text(),
            "host node04, charged to the infrastructure, 70 % sure"
        );
    }
}
