"""The harness phase: archive, proposers, validation, scoring, acceptance."""
