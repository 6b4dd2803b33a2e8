"""Proposers that are language models at work: one session per iteration, with tools confined to the archive."""
