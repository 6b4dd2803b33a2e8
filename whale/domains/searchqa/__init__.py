"""SearchQA, embedded: questions over a small encyclopedia, one search tool, the `<answer>` verifier."""
