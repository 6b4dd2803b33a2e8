"""The harness store: every proposal is a commit in a bare Git repository."""
