"""Names of Crawlee that skitter does not use, with what to write instead."""

SETTINGS = {
    "additional_http_error_status_codes": "return HookAction.RETRY from the hook after_request",
    "browser_new_context_options": "write browser_context",
    "browser_type": "write fetcher='browser'; the browser is Chromium",
    "desired_concurrency": "write concurrency, which does not follow the load of the machine",
    "headless": "write fetcher='browser', which shows no window",
    "ignore_http_error_status_codes": "write allowed_statuses",
    "keep_alive": "write wait_for_seeds",
    "max_concurrency": "write concurrency",
    "max_crawl_depth": "write depth_limit",
    "max_request_retries": "write max_retries",
    "max_requests_per_crawl": "write max_pages",
    "max_session_rotations": "write max_retries, which includes them",
    "max_tasks_per_minute": "write rates, such as '120/m', for each host",
    "min_concurrency": "write concurrency, which does not follow the load of the machine",
    "navigation_timeout": "write timeout, or page_timeout for a browser",
    "proxy_configuration": "write proxies",
    "request_handler_timeout": "write timeout, which limits the transfer",
    "respect_robots_txt_file": "write robots, which is on by default",
    "retry_on_blocked": "write sessions, with blocked_statuses",
    "session_pool": "write sessions",
    "use_session_pool": "write sessions",
}
"""What to write instead of an option of a crawler, which a user may take for a setting."""

ARGUMENTS = {
    "always_enqueue": "write dont_filter=True",
    "exclude": "write deny, with regular expressions",
    "include": "write allow, with regular expressions",
    "label": "write callback=self.METHOD",
    "payload": "write body, or Request.form() or Request.json()",
    "selector": "write css",
    "session_id": "write session",
    "strategy": "set allowed_domains of the spider",
    "transform_request_function": "loop over the batch, and yield request.replace(...)",
    "unique_key": "write fingerprint_keys, or dont_filter=True",
    "use_extended_unique_key": "leave it out: the method and the body distinguish requests",
    "user_data": "write meta",
}
"""What to write instead of an argument of ``enqueue_links`` or ``Request.from_url``."""

MEMBERS = {
    "Request": {
        "label": "write callback",
        "loaded_url": "write response.url",
        "no_retry": "pass max_retries=0 to the request",
        "unique_key": "write fingerprint_keys, or dont_filter=True",
        "user_data": "write meta",
    },
    "Response": {
        "add_requests": "yield the requests",
        "enqueue_links": "write yield response.follow_all(...)",
        "extract_links": "write LinkExtractor(...).extract_links(response)",
        "get_key_value_store": "set files_store, and yield items with file_urls",
        "http_response": "read response.status, response.headers and response.body",
        "log": "write self.logger",
        "parsed_content": "write response.selector",
        "proxy_info": "write response.request.proxy",
        "push_data": "yield the item",
        "send_request": "yield a Request with a callback",
        "session": "write response.request.session",
        "soup": "write BeautifulSoup(response.text)",
        "use_state": "count with self.stats.inc_value(), or pass values in meta",
    },
}
"""What to write instead of an attribute of a context or its request, by the class of ours that lacks it."""
