"""The paper's claims shown by simulation: a frozen config in, one tidy table out; figures read only the table."""
