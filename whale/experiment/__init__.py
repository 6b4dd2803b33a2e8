"""Many runs as one comparison: systems × domains × seeds, from one file."""
