"""The life of a run: the job and its folder, the worker processes, outputs, and access from outside."""
