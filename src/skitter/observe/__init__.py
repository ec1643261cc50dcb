"""Progress, summaries and dead letters of jobs, prepared for display."""
