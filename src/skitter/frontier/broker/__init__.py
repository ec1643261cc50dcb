"""Brokers: a frontier whose queue is in NSQ or NATS JetStream, and whose truth is in a state frontier beside it."""
