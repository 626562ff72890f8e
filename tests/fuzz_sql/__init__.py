"""A differential fuzzer of the SQL engine: see CONTRIBUTING.md, "Fuzzing the SQL engine"."""
