"""Plans: memory, bytes and time of jobs, predicted from counts before they run."""
