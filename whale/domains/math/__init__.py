r"""Math: graded word problems (embedded) or competition problems (paper), a Python tool, the `\\boxed{}` verifier."""
