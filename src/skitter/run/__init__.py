"""Running a job: its folder, worker processes and outputs, and access to it from other processes."""
