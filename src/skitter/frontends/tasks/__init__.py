"""Tasks: many crawls in one job, each with its own rules, limits, cookies and priority."""
