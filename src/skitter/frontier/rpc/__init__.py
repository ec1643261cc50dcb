"""Remote access to an embedded frontier over a local socket."""
