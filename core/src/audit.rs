//! Independent linter of the state.
