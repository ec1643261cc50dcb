"""The version of this package, for those who may not wait for its metadata to be read."""

VERSION = "0.1.0"
