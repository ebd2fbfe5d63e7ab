//! Operations of a node.
