"""The version of this package, for code that should not wait until its metadata is read."""

VERSION = "0.1.0"
