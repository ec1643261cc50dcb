"""The command line: one module for each command or group of related commands."""
