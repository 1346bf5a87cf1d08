//! Scripts, and what is said of those that are wrong.

mod complaints;
mod scripts;
