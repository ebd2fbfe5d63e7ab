//! The house rules, checked on the source itself. Each rule is shown to catch a violation, so that
//! no rule is silently toothless. A fault says where it is, what is wrong, and what to do now.

#![cfg(test)]

#[path = "architecture/source.rs"]
mod source;
#[path = "architecture/tokens.rs"]
mod tokens;

#[path = "architecture/imports.rs"]
mod imports;
#[path = "architecture/map.rs"]
mod map;
#[path = "architecture/shape.rs"]
mod shape;
#[path = "architecture/supply.rs"]
mod supply;
#[path = "architecture/words.rs"]
mod words;
