"""Optional: a frontier whose queue is in NSQ or NATS JetStream and whose state is in another frontier."""
