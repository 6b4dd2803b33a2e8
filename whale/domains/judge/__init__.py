"""An LLM judge: whether an answer means the same as a reference, by a fixed rubric, with cached verdicts."""
