//! The execution section of a job file: container, ulimits, secrets and CPU binding.

use std::collections::BTreeMap;

use muster_proto::v1;
use serde::{Deserialize, Serialize};

use crate::container::ContainerFile;

/// Execution settings of tasks, besides their command.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExecutionFile {
    /// The container that each task runs in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerFile>,
    /// Kernel resource limits of each process, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub ulimits: BTreeMap<String, UlimitFile>,
    /// Maximum number of processes and threads per task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids_max: Option<u32>,
    /// Secrets of the host passed to each task.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<SecretFile>,
    /// CPUs that the task's processes may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binding: Option<BindingFile>,
}

/// A kernel resource limit: one value for both, or soft and hard limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    untagged,
    deny_unknown_fields,
    expecting = "must be a whole number, `unlimited`, or {soft: ..., hard: ...}"
)]
pub enum UlimitFile {
    /// Soft and hard limit are equal.
    Both(AmountFile),
    /// Separate soft and hard limits.
    Apart {
        /// The limit in force.
        soft: AmountFile,
        /// The ceiling up to which a process may raise its soft limit.
        hard: AmountFile,
    },
}

/// An amount in the kernel's own unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum AmountFile {
    /// A number.
    Number(u64),
    /// No limit.
    Word(UnlimitedFile),
}

/// The word for no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnlimitedFile {
    /// No limit.
    Unlimited,
}

/// A secret of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretFile {
    /// The name of its file in the worker's folder of secrets.
    pub name: String,
    /// How the task receives the secret.
    pub r#as: SecretFormFile,
}

/// How a task receives a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecretFormFile {
    /// In this environment variable.
    Variable(String),
    /// As a file whose path is in this environment variable.
    File(String),
}

/// CPUs that processes may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "snake_case")]
pub enum BindingFile {
    /// Any CPU.
    None,
    /// As many CPUs as were allocated to the task.
    Cpus,
    /// The CPUs of its GPUs' NUMA nodes.
    Numa,
}

impl From<AmountFile> for Option<u64> {
    fn from(amount: AmountFile) -> Self {
        match amount {
            AmountFile::Number(number) => Some(number),
            AmountFile::Word(UnlimitedFile::Unlimited) => None,
        }
    }
}

impl From<Option<u64>> for AmountFile {
    fn from(amount: Option<u64>) -> Self {
        amount.map_or(Self::Word(UnlimitedFile::Unlimited), Self::Number)
    }
}

impl From<ExecutionFile> for v1::Execution {
    fn from(file: ExecutionFile) -> Self {
        let limit = |(name, limit): (String, UlimitFile)| {
            let (soft, hard) = match limit {
                UlimitFile::Both(amount) => (amount, amount),
                UlimitFile::Apart { soft, hard } => (soft, hard),
            };
            v1::Ulimit {
                name,
                soft: soft.into(),
                hard: hard.into(),
            }
        };
        let binding = match file.binding.unwrap_or(BindingFile::None) {
            BindingFile::None => v1::CpuBinding::Unspecified,
            BindingFile::Cpus => v1::CpuBinding::Cpus,
            BindingFile::Numa => v1::CpuBinding::Numa,
        };
        Self {
            container: file.container.map(Into::into),
            ulimits: file.ulimits.into_iter().map(limit).collect(),
            pids_max: file.pids_max,
            secrets: file.secrets.into_iter().map(Into::into).collect(),
            binding: binding.into(),
        }
    }
}

impl From<&v1::Execution> for ExecutionFile {
    fn from(execution: &v1::Execution) -> Self {
        let limit = |limit: &v1::Ulimit| {
            let file = if limit.soft == limit.hard {
                UlimitFile::Both(limit.soft.into())
            } else {
                UlimitFile::Apart {
                    soft: limit.soft.into(),
                    hard: limit.hard.into(),
                }
            };
            (limit.name.clone(), file)
        };
        Self {
            container: execution.container.as_ref().map(Into::into),
            ulimits: execution.ulimits.iter().map(limit).collect(),
            pids_max: execution.pids_max,
            secrets: execution.secrets.iter().filter_map(secret).collect(),
            binding: match execution.binding() {
                v1::CpuBinding::Unspecified => None,
                v1::CpuBinding::Cpus => Some(BindingFile::Cpus),
                v1::CpuBinding::Numa => Some(BindingFile::Numa),
            },
        }
    }
}

impl From<SecretFile> for v1::Secret {
    fn from(file: SecretFile) -> Self {
        use v1::secret::Form;
        Self {
            name: file.name,
            form: Some(match file.r#as {
                SecretFormFile::Variable(variable) => Form::Variable(variable),
                SecretFormFile::File(variable) => Form::File(variable),
            }),
        }
    }
}

/// Secret of a job specification; `None` for a form introduced by a newer build.
fn secret(wire: &v1::Secret) -> Option<SecretFile> {
    use v1::secret::Form;
    let form = match wire.form.clone()? {
        Form::Variable(variable) => SecretFormFile::Variable(variable),
        Form::File(variable) => SecretFormFile::File(variable),
    };
    Some(SecretFile {
        name: wire.name.clone(),
        r#as: form,
    })
}
