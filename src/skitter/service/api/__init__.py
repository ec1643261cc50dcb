"""The HTTP API of the service: the same on every node."""
