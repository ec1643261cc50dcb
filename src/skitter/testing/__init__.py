"""Testing: loopback sites and fixtures for the tests of those who write spiders."""
