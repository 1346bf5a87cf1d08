//! Scenario scripts, and the errors of invalid ones.

mod complaints;
mod scripts;
