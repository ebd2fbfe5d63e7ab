//! Budgets of a turn and of a chain.
