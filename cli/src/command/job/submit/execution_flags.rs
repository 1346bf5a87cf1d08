//! Flags for the execution of tasks. Secrets as files need a job file.

use clap::Args;
use muster_job_file::{
    AmountFile, BindingFile, ExecutionFile, SecretFile, SecretFormFile, UlimitFile,
};
use muster_proto::v1;

use crate::command::job::submit::container_flags::{self, ContainerFlags};
use crate::parse;

/// Execution of tasks, beside their command.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Execution")]
pub(super) struct ExecutionFlags {
    /// A kernel limit for each process: NAME=SOFT[:HARD], `unlimited` for none (nofile=65536)
    #[arg(long, value_name = "NAME=LIMIT", value_parser = ulimit)]
    ulimit: Vec<(String, UlimitFile)>,
    /// Maximum number of processes and threads per task
    #[arg(long, value_name = "COUNT")]
    pids_max: Option<u32>,
    /// A secret of the host in an environment variable: NAME=VARIABLE
    #[arg(long, value_name = "NAME=VARIABLE", value_parser = parse::assignment)]
    secret: Vec<(String, String)>,
    /// Bind tasks to CPUs of their own, or to the NUMA nodes of their GPUs
    #[arg(long, value_enum, value_name = "WHAT")]
    bind: Option<BindingFile>,
    #[command(flatten)]
    container: ContainerFlags,
}

impl ExecutionFlags {
    /// Each flag, and whether it is given.
    pub(super) const fn given(&self) -> [(&'static str, bool); 8] {
        let [image, pull, mount, shm] = self.container.given();
        [
            ("--ulimit", !self.ulimit.is_empty()),
            ("--pids-max", self.pids_max.is_some()),
            ("--secret", !self.secret.is_empty()),
            ("--bind", self.bind.is_some()),
            image,
            pull,
            mount,
            shm,
        ]
    }

    /// The image of the tasks' container, if they run in one.
    pub(super) fn image(&self) -> Option<&str> {
        self.container.image()
    }

    /// The execution section of the job.
    pub(super) fn execution(&self) -> v1::Execution {
        let secret = |(name, variable): &(String, String)| SecretFile {
            name: name.clone(),
            r#as: SecretFormFile::Variable(variable.clone()),
        };
        ExecutionFile {
            ulimits: self.ulimit.iter().cloned().collect(),
            pids_max: self.pids_max,
            secrets: self.secret.iter().map(secret).collect(),
            binding: self.bind,
            container: self.container.container(),
        }
        .into()
    }
}

/// The flag that sets a field of the specification.
pub(super) fn flag_of(field: &str) -> Option<&'static str> {
    let flags = [
        ("ulimits", "--ulimit"),
        ("pids_max", "--pids-max"),
        ("secrets", "--secret"),
        ("binding", "--bind"),
    ];
    let field = field.strip_prefix("groups[0].execution.")?;
    let flag = flags.iter().find(|(name, _)| field.starts_with(name));
    flag.map(|(_, flag)| *flag)
        .or_else(|| container_flags::flag_of(field))
}

fn ulimit(text: &str) -> Result<(String, UlimitFile), String> {
    let (name, limit) = parse::assignment(text)?;
    let limit = match limit.split_once(':') {
        Some((soft, hard)) => UlimitFile::Apart {
            soft: amount(soft)?,
            hard: amount(hard)?,
        },
        None => UlimitFile::Both(amount(&limit)?),
    };
    Ok((name, limit))
}

fn amount(text: &str) -> Result<AmountFile, String> {
    if text == "unlimited" {
        return Ok(None.into());
    }
    let number = text.parse::<u64>();
    let number =
        number.map_err(|_| format!("`{text}` is neither a whole number nor `unlimited`"))?;
    Ok(Some(number).into())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_ulimit_is_parsed_as_one_value_or_as_soft_and_hard() {
        let wire = |text: &str| {
            let (name, limit) = ulimit(text).unwrap();
            let execution: v1::Execution = ExecutionFile {
                ulimits: [(name, limit)].into(),
                ..ExecutionFile::default()
            }
            .into();
            let limit = execution.ulimits[0].clone();
            (limit.name, limit.soft, limit.hard)
        };
        assert_eq!(wire("nofile=8"), ("nofile".to_owned(), Some(8), Some(8)));
        assert_eq!(wire("core=0:9"), ("core".to_owned(), Some(0), Some(9)));
        assert_eq!(
            wire("stack=9:unlimited"),
            ("stack".to_owned(), Some(9), None)
        );
        assert!(ulimit("nofile").is_err() && ulimit("nofile=many").is_err());
    }
}
