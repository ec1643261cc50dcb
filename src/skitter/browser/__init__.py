"""Optional: a fetcher that loads pages in Chromium, and a fetcher that does so only for pages that need JavaScript."""
