"""The frontier: the queue of a job, and its only durable state."""
