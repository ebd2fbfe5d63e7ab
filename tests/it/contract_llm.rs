//! Tests of contract_llm.
