"""The frontier on a Valkey or Redis server, shared by any number of machines."""

SERVER_SCHEMES = ("redis", "rediss", "redis+sentinel", "rediss+sentinel", "unix")
"""URL schemes of one server, found directly or by its sentinels."""
CLUSTER_SCHEMES = ("redis+cluster", "rediss+cluster")
