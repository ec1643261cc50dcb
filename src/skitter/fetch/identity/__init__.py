"""Identity: as whom requests go out: user agents, proxies, cookies, and the sessions that bind them."""
