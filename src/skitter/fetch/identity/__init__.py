"""Identity of requests: user agents, proxies, cookies, and the sessions that bind them."""
