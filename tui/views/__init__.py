"""The screens, one module each; `VIEWS` names them in the order of their keys."""

VIEWS = ("runs", "overview", "lineage", "diff", "harness", "rollouts", "events", "compare", "proposer")
