"""What a run will take, told before anything is paid."""
