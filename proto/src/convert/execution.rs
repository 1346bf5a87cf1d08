//! How tasks are run on their hosts.

use muster_core::spec::{Container, Execution};

use super::InvalidField;
use crate::v1;

impl TryFrom<v1::Execution> for Execution {
    type Error = InvalidField;

    fn try_from(wire: v1::Execution) -> Result<Self, InvalidField> {
        let container = wire.container.map(Container::try_from).transpose();
        Ok(Self {
            container: container.map_err(|invalid| invalid.within("container"))?,
        })
    }
}

impl From<&Execution> for v1::Execution {
    fn from(execution: &Execution) -> Self {
        Self {
            container: execution.container.as_ref().map(Into::into),
        }
    }
}
