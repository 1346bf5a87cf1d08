//! Task lists of a job: `3`, `0,4-7`, `all`.

use std::collections::BTreeSet;

/// A selection of a job's tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskList {
    /// Every task of the job.
    All,
    /// These tasks, ascending.
    Some(Vec<u32>),
}

/// Maximum number of tasks in one list.
const LISTED_MAX: u32 = 100_000;

/// Parses a list of tasks.
///
/// # Errors
/// Names the problem and the expected form.
pub fn task_list(text: &str) -> Result<TaskList, String> {
    if text == "all" {
        return Ok(TaskList::All);
    }
    let (mut tasks, mut listed) = (BTreeSet::new(), 0u32);
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let bounds = first.parse::<u32>().ok().zip(last.parse::<u32>().ok());
        let Some((first, last)) = bounds.filter(|(first, last)| first <= last) else {
            return Err(format!(
                "`{text}` names no tasks: `{part}` is neither a number nor a range (write 3, 0,4-7 or all)"
            ));
        };
        // Repetitions count, which bounds the work by the limit.
        listed = (last - first).saturating_add(listed).saturating_add(1);
        if listed > LISTED_MAX {
            return Err(format!("`{part}` exceeds the limit of {LISTED_MAX} tasks"));
        }
        tasks.extend(first..=last);
    }
    Ok(TaskList::Some(tasks.into_iter().collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_numbers_ranges_or_all() {
        assert_eq!(task_list("all"), Ok(TaskList::All));
        assert_eq!(task_list("3"), Ok(TaskList::Some(vec![3])));
        assert_eq!(task_list("4-6,0,5"), Ok(TaskList::Some(vec![0, 4, 5, 6])));
        for unusable in [
            "",
            "x",
            "3-",
            "5-4",
            "-1",
            "1,,2",
            "0-4294967295",
            "0-99999,100000",
        ] {
            assert!(task_list(unusable).is_err(), "{unusable}");
        }
    }
}
