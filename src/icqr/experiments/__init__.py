"""The paper's experiments: its tables and figures, from real data, beside its own numbers; and the benchmark."""
