"""The service: ``skitter serve``, nodes that run the jobs which stand in a store they share, and their HTTP API."""
