//! Execution options of tasks, apart from the command.

use std::collections::BTreeMap;

use muster_model::spec::{
    Container, CpuBinding, Execution, Secret, SecretForm, Ulimit, UlimitKind,
};

use crate::field::{InvalidField, required};
use crate::v1;

impl TryFrom<v1::Execution> for Execution {
    type Error = InvalidField;

    fn try_from(wire: v1::Execution) -> Result<Self, InvalidField> {
        let binding = match wire.binding() {
            v1::CpuBinding::Cpus => CpuBinding::Cpus,
            v1::CpuBinding::Numa => CpuBinding::Numa,
            // An unknown number from a newer build must not be read as unspecified.
            v1::CpuBinding::Unspecified if wire.binding != 0 => {
                let rule = format!("{} is not a value that this version knows", wire.binding);
                return Err(InvalidField::new("binding", rule));
            }
            v1::CpuBinding::Unspecified => CpuBinding::None,
        };
        let secrets = wire.secrets.into_iter().enumerate();
        let container = wire.container.map(Container::try_from).transpose();
        Ok(Self {
            container: container.map_err(|invalid| invalid.within("container"))?,
            ulimits: ulimits(wire.ulimits)?,
            pids_max: wire.pids_max,
            secrets: secrets
                .map(|(position, secret)| {
                    Secret::try_from(secret)
                        .map_err(|invalid| invalid.within_item("secrets", position))
                })
                .collect::<Result<_, _>>()?,
            binding,
        })
    }
}

fn ulimits(wire: Vec<v1::Ulimit>) -> Result<BTreeMap<UlimitKind, Ulimit>, InvalidField> {
    let mut limits = BTreeMap::new();
    for limit in wire {
        let v1::Ulimit { name, soft, hard } = limit;
        let kind: UlimitKind = name
            .parse()
            .map_err(|error| InvalidField::new("ulimits", format!("{error}")))?;
        if limits.insert(kind, Ulimit { soft, hard }).is_some() {
            let rule = format!("`{kind}` is given twice");
            return Err(InvalidField::new("ulimits", rule));
        }
    }
    Ok(limits)
}

impl From<&Execution> for v1::Execution {
    fn from(execution: &Execution) -> Self {
        let limit = |(kind, limit): (&UlimitKind, &Ulimit)| v1::Ulimit {
            name: kind.name().to_owned(),
            soft: limit.soft,
            hard: limit.hard,
        };
        let binding = match execution.binding {
            CpuBinding::None => v1::CpuBinding::Unspecified,
            CpuBinding::Cpus => v1::CpuBinding::Cpus,
            CpuBinding::Numa => v1::CpuBinding::Numa,
        };
        Self {
            container: execution.container.as_ref().map(Into::into),
            ulimits: execution.ulimits.iter().map(limit).collect(),
            pids_max: execution.pids_max,
            secrets: execution.secrets.iter().map(Into::into).collect(),
            binding: binding.into(),
        }
    }
}

impl TryFrom<v1::Secret> for Secret {
    type Error = InvalidField;

    fn try_from(wire: v1::Secret) -> Result<Self, InvalidField> {
        use v1::secret::Form;
        let form = match required("form", wire.form)? {
            Form::Variable(variable) => SecretForm::Variable(variable),
            Form::File(variable) => SecretForm::File(variable),
        };
        Ok(Self {
            name: wire.name,
            form,
        })
    }
}

impl From<&Secret> for v1::Secret {
    fn from(secret: &Secret) -> Self {
        use v1::secret::Form;
        let form = match secret.form.clone() {
            SecretForm::Variable(variable) => Form::Variable(variable),
            SecretForm::File(variable) => Form::File(variable),
        };
        Self {
            name: secret.name.clone(),
            form: Some(form),
        }
    }
}
