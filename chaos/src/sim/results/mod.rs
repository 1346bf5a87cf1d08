//! Results of a simulated cluster: its report, why it is stuck, and the smallest set of faults that makes it fail.

pub mod diagnosis;
pub mod digest;
pub mod report;
pub mod shrink;
