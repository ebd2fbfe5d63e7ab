//! Look-alikes of the envelope made inert.
