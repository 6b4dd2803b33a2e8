"""The alternation: state as a fold of the log, schedules as data, one runner."""
