"""Tables from a run's state."""
