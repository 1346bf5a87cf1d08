//! Long tests of minutes each. CI runs a sample of their kind; `make soak` runs all of them.

mod chaos;
mod chaos_target;
mod trials;
