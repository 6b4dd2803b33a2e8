"""GEPA's reflective prompt evolution (extra `gepa`) as a proposer: its search, our rollouts, scores and archive."""
