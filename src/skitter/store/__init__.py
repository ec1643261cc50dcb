"""Store: where items go, each exactly once."""
