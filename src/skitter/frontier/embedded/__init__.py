"""The embedded frontier: one SQLite file and one owner process. Also the in-memory variant."""
