//! Submission, running and end of jobs.

mod arrays;
mod bad_input;
mod containers;
mod gangs;
mod launch;
mod output;
mod pipelines;
mod preemption;
mod queues;
mod retries;
mod stop_requests;
mod suspension;
mod task_interface;
mod tasks;
mod what_if;
