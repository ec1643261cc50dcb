"""Names of Scrapy that skitter does not use, with what to write instead."""

from __future__ import annotations

SETTINGS = {
    "AUTOTHROTTLE_ENABLED": "remove it: the delay adapts unless delay is set",
    "AUTOTHROTTLE_MAX_DELAY": "remove it: the delay adapts unless delay is set",
    "AUTOTHROTTLE_START_DELAY": "remove it: the delay adapts unless delay is set",
    "AUTOTHROTTLE_TARGET_CONCURRENCY": "write concurrency_per_slot",
    "CLOSESPIDER_ERRORCOUNT": "write max_errors",
    "CLOSESPIDER_ITEMCOUNT": "write max_items",
    "CLOSESPIDER_PAGECOUNT": "write max_pages",
    "CLOSESPIDER_TIMEOUT": "write time_limit",
    "CONCURRENT_REQUESTS": "write concurrency",
    "CONCURRENT_REQUESTS_PER_DOMAIN": "write concurrency_per_slot",
    "CONCURRENT_REQUESTS_PER_IP": "write limit_rules",
    "COOKIES_ENABLED": 'write cookies="none" to keep no cookies',
    "DEFAULT_REQUEST_HEADERS": "write headers",
    "DEPTH_LIMIT": "write depth_limit",
    "DOWNLOADER_MIDDLEWARES": "define hooks such as before_request and after_request in the spider",
    "DOWNLOAD_DELAY": "write delay",
    "DOWNLOAD_MAXSIZE": "write max_body",
    "DOWNLOAD_SLOTS": "write limit_rules",
    "DOWNLOAD_TIMEOUT": "write timeout",
    "FEEDS": "set outputs of the spider, or use the option -o",
    "FEED_FORMAT": "set outputs of the spider, or use the option -o",
    "FEED_URI": "set outputs of the spider, or use the option -o",
    "FILES_EXPIRES": "write files_ttl, in seconds",
    "FILES_STORE": "write files_store",
    "HTTPCACHE_ENABLED": "write cache_dir",
    "HTTPERROR_ALLOWED_CODES": "write allowed_statuses",
    "IMAGES_EXPIRES": "write files_ttl, in seconds",
    "IMAGES_STORE": "write files_store",
    "IMAGES_THUMBS": "write image_thumbnails",
    "ITEM_PIPELINES": "define the hook before_save(response, items) in the spider",
    "JOBDIR": "remove it: every job can be resumed",
    "LOG_LEVEL": "use the option --log-level",
    "RANDOMIZE_DOWNLOAD_DELAY": "write jitter",
    "REDIRECT_MAX_TIMES": "write max_redirects",
    "RETRY_TIMES": "write max_retries",
    "ROBOTSTXT_OBEY": "write robots",
    "SPIDER_MIDDLEWARES": "define hooks such as before_save in the spider",
    "URLLENGTH_LIMIT": "write max_url_length",
    "USER_AGENT": "write user_agent",
}
"""What to write instead of a setting of Scrapy."""

ATTRIBUTES = {
    "closed": "define on_stop(self, worker), which runs once in each process",
    "from_crawler": "use __init__ for arguments, and the hooks on_start and on_stop",
    "handle_httpstatus_all": "add the statuses to the setting allowed_statuses",
    "handle_httpstatus_list": "add the statuses to the setting allowed_statuses",
    "make_requests_from_url": "define async def start(self)",
    "parse_start_url": "name the method parse; the rules apply to its pages as well",
    "redis_batch_size": "use the setting seed_keys",
    "redis_key": "use the setting seed_keys",
    "start_url": "name it start_urls, and write a list",
    "update_settings": "set custom_settings",
}
"""What to write instead of an attribute or method that Scrapy's spiders may define and skitter never uses."""


def unused_attributes(spider_class: type) -> list[tuple[str, str]]:
    """Return the attributes of a class and its bases that only Scrapy would use, each with what to write instead."""
    defined = set(dir(spider_class))
    return [(name, remedy) for name, remedy in ATTRIBUTES.items() if name in defined]
