"""The frontier on a Valkey or Redis server, shared by any number of machines."""
