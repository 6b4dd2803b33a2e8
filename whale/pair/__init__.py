"""An evolved pair (θ, h) in use: chosen from a run, written to a folder of its own, served."""
