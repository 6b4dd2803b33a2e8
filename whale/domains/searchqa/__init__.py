"""SearchQA, embedded: questions over a small closed encyclopedia, one search tool, the `<answer>` verifier."""
