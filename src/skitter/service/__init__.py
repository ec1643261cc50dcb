"""The service ``skitter serve``: nodes that share a store and run its jobs, and their HTTP API."""
