"""The weight phase: sampler, samples, RSFT, checkpoints."""
