"""Compare runs: what `whale report` prints. Every figure comes from event logs alone."""
