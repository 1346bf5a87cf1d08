//! How tasks are run, as it is written in a job file.

use std::collections::BTreeMap;

use muster_proto::v1;
use serde::{Deserialize, Serialize};

use crate::container::ContainerFile;

/// How tasks are run, beside their command.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExecutionFile {
    /// The container that each task runs in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerFile>,
    /// The kernel's limits for each process, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub ulimits: BTreeMap<String, UlimitFile>,
    /// Processes and threads that a task may have at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids_max: Option<u32>,
    /// Secrets of its host that a task is given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<SecretFile>,
    /// On which CPUs its processes run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binding: Option<BindingFile>,
}

/// A limit of the kernel: one for all, or the soft one and the hard one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    untagged,
    deny_unknown_fields,
    expecting = "must be a whole number, `unlimited`, or {soft: ..., hard: ...}"
)]
pub enum UlimitFile {
    /// Both are the same.
    Both(AmountFile),
    /// One each.
    Apart {
        /// What is in force.
        soft: AmountFile,
        /// What no process of the task raises.
        hard: AmountFile,
    },
}

/// An amount in the kernel's own unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum AmountFile {
    /// So much.
    Number(u64),
    /// As much as there is.
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
    /// How the task is given it.
    pub r#as: SecretFormFile,
}

/// How a task is given a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecretFormFile {
    /// As this environment variable.
    Variable(String),
    /// As a file; this environment variable has its path.
    File(String),
}

/// On which CPUs processes run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "snake_case")]
pub enum BindingFile {
    /// On any.
    None,
    /// On as many as the task was given.
    Cpus,
    /// On those of its GPUs' NUMA nodes.
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

/// A secret of a specification; none if a newer build means something by it that this one does not know.
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
