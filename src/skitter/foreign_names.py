"""Names of Scrapy and Crawlee that skitter does not use, with what to write instead."""

from __future__ import annotations

import inspect
import re
from typing import Any

SETTINGS = {
    "ADDONS": "remove it; to use skitter from Scrapy, see the guide on Scrapy projects",
    "AUTOTHROTTLE_DEBUG": "remove it",
    "AUTOTHROTTLE_ENABLED": "remove it: the delay adapts unless delay is set",
    "AUTOTHROTTLE_MAX_DELAY": "remove it: the delay adapts unless delay is set",
    "AUTOTHROTTLE_START_DELAY": "remove it: the delay adapts unless delay is set",
    "AUTOTHROTTLE_TARGET_CONCURRENCY": "write concurrency_per_slot",
    "BOT_NAME": "remove it: the job has the name of the spider",
    "CLOSESPIDER_ERRORCOUNT": "write max_errors",
    "CLOSESPIDER_ITEMCOUNT": "write max_items",
    "CLOSESPIDER_PAGECOUNT": "write max_pages",
    "CLOSESPIDER_PAGECOUNT_NO_ITEM": "write monitors with during='stop'",
    "CLOSESPIDER_TIMEOUT": "write time_limit",
    "CLOSESPIDER_TIMEOUT_NO_ITEM": "write monitors with during='stop', or time_limit",
    "COMMANDS_MODULE": "remove it",
    "COMPRESSION_ENABLED": "remove it: compressed responses are always unpacked",
    "CONCURRENT_ITEMS": "remove it",
    "CONCURRENT_REQUESTS": "write concurrency",
    "CONCURRENT_REQUESTS_PER_DOMAIN": "write concurrency_per_slot",
    "CONCURRENT_REQUESTS_PER_IP": "write limit_rules",
    "COOKIES_DEBUG": "write http_trace",
    "COOKIES_ENABLED": 'write cookies="none" to keep no cookies',
    "CRAWLSPIDER_FOLLOW_LINKS": "set rules = [] in the spider",
    "DEFAULT_REQUEST_HEADERS": "write headers",
    "DEPTH_LIMIT": "write depth_limit",
    "DEPTH_PRIORITY": "write queue_order",
    "DEPTH_STATS_VERBOSE": "remove it: `skitter stats JOB` lists the counters",
    "DNSCACHE_ENABLED": "write dns_cache_ttl",
    "DNS_RESOLVER": "write dns_servers",
    "DNS_TIMEOUT": "write connect_timeout",
    "DOWNLOADER_CLIENTCONTEXTFACTORY": "remove it, or write verify_tls",
    "DOWNLOADER_MIDDLEWARES": "define hooks such as before_request and after_request in the spider",
    "DOWNLOAD_DELAY": "write delay",
    "DOWNLOAD_DELAY_JITTER": "write jitter",
    "DOWNLOAD_FAIL_ON_DATALOSS": "remove it: an incomplete response is an error",
    "DOWNLOAD_HANDLERS": "write fetcher, such as fetcher='browser'",
    "DOWNLOAD_MAXSIZE": "write max_body",
    "DOWNLOAD_SLOTS": "write limit_rules",
    "DOWNLOAD_TIMEOUT": "write timeout",
    "DOWNLOAD_VERIFY_CERTIFICATES": "write verify_tls",
    "DOWNLOAD_WARNSIZE": "write max_body",
    "DUPEFILTER_CLASS": "remove it, or write fingerprint_keys",
    "EXTENSIONS": "define the hooks on_start and on_stop in the spider",
    "FEEDS": "set outputs of the spider, or use the option -o",
    "FEED_EXPORTERS": "remove it: the suffix of an output selects its format",
    "FEED_EXPORT_BATCH_ITEM_COUNT": "remove it: an output is one file",
    "FEED_EXPORT_ENCODING": "remove it: outputs are UTF-8",
    "FEED_EXPORT_FIELDS": "name the fields in the output, such as -o 'items.csv?fields=title,price'",
    "FEED_EXPORT_INDENT": "remove it",
    "FEED_FORMAT": "set outputs of the spider, or use the option -o",
    "FEED_STORE_EMPTY": "remove it",
    "FEED_URI": "set outputs of the spider, or use the option -o",
    "FILES_EXPIRES": "write files_ttl, in seconds",
    "FILES_STORE": "write files_store",
    "FILES_RESULT_FIELD": "write files_fields",
    "FILES_URLS_FIELD": "write files_fields",
    "HTTPAUTH_DOMAIN": "write credentials",
    "HTTPAUTH_PASS": "write credentials",
    "HTTPAUTH_USER": "write credentials",
    "HTTPCACHE_DIR": "write cache_dir",
    "HTTPCACHE_ENABLED": "write cache_dir",
    "HTTPCACHE_EXPIRATION_SECS": "write cache_ttl",
    "HTTPCACHE_IGNORE_HTTP_CODES": "remove it",
    "HTTPCACHE_POLICY": "write cache_dir",
    "HTTPCACHE_STORAGE": "write cache_dir",
    "HTTPERROR_ALLOWED_CODES": "write allowed_statuses",
    "HTTPERROR_ALLOW_ALL": "write allowed_statuses",
    "HTTPPROXY_ENABLED": 'write proxy="" to use no proxy',
    "IMAGES_EXPIRES": "write files_ttl, in seconds",
    "IMAGES_RESULT_FIELD": "write files_fields",
    "IMAGES_STORE": "write files_store",
    "IMAGES_THUMBS": "write image_thumbnails",
    "IMAGES_URLS_FIELD": "write files_fields",
    "ITEM_PIPELINES": "define the hook before_save(response, items) in the spider; for files and images, write files_store",
    "JOBDIR": "remove it: every job can be resumed",
    "LOGSTATS_INTERVAL": "remove it: a run shows its progress, unless it has the option --quiet",
    "LOG_ENABLED": "use the option --quiet",
    "LOG_FILE": "write log_file",
    "LOG_FORMAT": "use the option --log-format",
    "LOG_LEVEL": "use the option --log-level",
    "MEDIA_ALLOW_REDIRECTS": "remove it: downloads of files follow redirects",
    "MEMUSAGE_ENABLED": "limit the memory of the process with systemd or a container",
    "MEMUSAGE_LIMIT_MB": "limit the memory of the process with systemd or a container",
    "METAREFRESH_ENABLED": "write refresh_delay_cap",
    "METAREFRESH_MAXDELAY": "write refresh_delay_cap",
    "NEWSPIDER_MODULE": "remove it: `skitter run` takes the file of a spider",
    "PLAYWRIGHT_ABORT_REQUEST": "write blocked_resources for kinds of resources, and blocked_urls for patterns of URLs",
    "PLAYWRIGHT_BROWSER_TYPE": "write fetcher='browser'; the browser is Chromium",
    "RANDOMIZE_DOWNLOAD_DELAY": "write jitter",
    "REACTOR_THREADPOOL_MAXSIZE": "write callback_threads",
    "REDIRECT_ENABLED": "write max_redirects",
    "REDIRECT_MAX_TIMES": "write max_redirects",
    "REFERER_ENABLED": "send request.referer in the hook before_request",
    "REFERRER_POLICY": "send request.referer in the hook before_request",
    "REQUEST_FINGERPRINTER_CLASS": "remove it, or write fingerprint_keys",
    "REQUEST_FINGERPRINTER_IMPLEMENTATION": "remove it",
    "RETRY_ENABLED": "write max_retries",
    "RETRY_HTTP_CODES": "return HookAction.RETRY from the hook after_request",
    "RETRY_PRIORITY_ADJUST": "remove it",
    "RETRY_TIMES": "write max_retries, and max_throttled for retries after 429 and 503",
    "ROBOTSTXT_OBEY": "write robots",
    "ROBOTSTXT_PARSER": "remove it: robots.txt is read by RFC 9309",
    "ROBOTSTXT_USER_AGENT": "write user_agent, which robots.txt is matched with",
    "SCHEDULER": "use the option --frontier",
    "SCHEDULER_DISK_QUEUE": "write queue_order",
    "SCHEDULER_MEMORY_QUEUE": "write queue_order",
    "SPIDER_MIDDLEWARES": "define hooks such as before_save in the spider",
    "SPIDER_MODULES": "remove it: `skitter run` takes the file of a spider",
    "STATSMAILER_RCPTS": "write notify, such as mailto:ann@example.com",
    "STATS_DUMP": "remove it: a run ends with its counters",
    "TELNETCONSOLE_ENABLED": "remove it; skitter status and skitter config show and change a running job",
    "TWISTED_REACTOR": "remove it: skitter runs on asyncio",
    "URLLENGTH_LIMIT": "write max_url_length",
    "USER_AGENT": "write user_agent",
}
"""What to write instead of a setting of Scrapy."""

_SERVER = "name the server in the option --frontier, such as redis://HOST:PORT/DATABASE"
_SEED_TYPE = "remove it: the type of the key decides"
_KEYS = "remove it: all keys of a job begin with skitter:{JOB}:"
SCRAPY_REDIS_SETTINGS = {
    "DUPEFILTER_DEBUG": "remove it: `skitter stats JOB refused/` shows how many requests were refused, and why",
    "DUPEFILTER_KEY": _KEYS,
    "MAX_IDLE_TIME_BEFORE_CLOSE": "write wait_for_seeds, in seconds; True waits without end, as 0 does there",
    "REDIS_DB": _SERVER,
    "REDIS_DECODE_RESPONSES": "remove it",
    "REDIS_ENCODING": "remove it: seeds are UTF-8; make_request_from_data of the spider receives others as bytes",
    "REDIS_HOST": _SERVER,
    "REDIS_ITEMS_KEY": "write -o 'redis://HOST:PORT/DATABASE/%(spider)s:items'",
    "REDIS_ITEMS_SERIALIZER": "add ?serializer=MODULE:FUNCTION to the output",
    "REDIS_KEY_CHECK_INTERVAL": "remove it: the first of the seed_keys with elements is used for each batch",
    "REDIS_PARAMS": _SERVER,
    "REDIS_PORT": _SERVER,
    "REDIS_START_URLS_AS_SET": _SEED_TYPE,
    "REDIS_START_URLS_AS_ZSET": _SEED_TYPE,
    "REDIS_START_URLS_BATCH_SIZE": "remove it: workers take seeds in batches while the queue is short",
    "REDIS_START_URLS_KEY": "write seed_keys",
    "REDIS_URL": _SERVER,
    "SCHEDULER_DUPEFILTER_CLASS": "write seen_filter",
    "SCHEDULER_DUPEFILTER_KEY": _KEYS,
    "SCHEDULER_FLUSH_ON_START": "use the option --fresh",
    "SCHEDULER_IDLE_BEFORE_CLOSE": "write wait_for_seeds, in seconds",
    "SCHEDULER_PERSIST": "remove it: a job is kept until it is started with --fresh",
    "SCHEDULER_QUEUE_CLASS": "write queue_order",
    "SCHEDULER_QUEUE_KEY": _KEYS,
    "SCHEDULER_SERIALIZER": "remove it: requests are stored as MessagePack",
    "STATS_CLASS": "remove it: `skitter stats JOB` shows the counters of all workers",
    "STATS_KEY": _KEYS,
}
"""What to write instead of a setting of Scrapy-Redis."""

COMMANDS = {
    "bench": "run `skitter demo`, or `make bench` in the clone",
    "edit": "open the file of the spider in an editor",
    "genspider": "write `skitter new NAME`",
    "runspider": "write `skitter run FILE.py`",
    "settings": "write `skitter config JOB`; the reference of settings lists the defaults",
    "startproject": "write `skitter new NAME`",
    "version": "write `skitter --version`",
    "view": "write `skitter fetch URL`, or view(response) in `skitter shell URL`",
}
"""What to write instead of a command of Scrapy."""

OPTIONS = {
    "-L": "write --log-level",
    "-d": "`skitter parse` calls one callback; to follow its requests, write `skitter run FILE.py --limit N`",
    "-O": "write -o FILE --fresh, which also starts the job again",
    "-t": "the suffix of the output selects its format, such as -o items.csv",
    "--headers": "write --verbose",
    "--loglevel": "write --log-level",
    "--logfile": "write --log-file",
    "--noitems": "leave it out; --json is for programs",
    "--nolinks": "leave it out; --json is for programs",
    "--nolog": "write --quiet --log-level error",
    "--output-format": "the suffix of the output selects its format, such as -o items.csv",
    "--overwrite-output": "write -o FILE --fresh, which also starts the job again",
    "--pipelines": "leave it out: `skitter parse` calls no hook, and `skitter run FILE.py --limit N` calls them all",
    "--set": "write -s NAME=VALUE",
}
"""What to write instead of an option of Scrapy."""

ATTRIBUTES = {
    "close": "define on_stop(self, worker), which runs once in each process",
    "closed": "define on_stop(self, worker), which runs once in each process",
    "download_delay": "use the setting delay",
    "download_maxsize": "use the setting max_body",
    "download_timeout": "use the setting timeout",
    "from_crawler": "use __init__ for arguments, and the hooks on_start and on_stop",
    "handle_httpstatus_all": "add the statuses to the setting allowed_statuses",
    "handle_httpstatus_list": "add the statuses to the setting allowed_statuses",
    "http_auth_domain": "use the setting credentials",
    "http_pass": "use the setting credentials",
    "http_user": "use the setting credentials",
    "make_requests_from_url": "define async def start(self)",
    "max_concurrent_requests": "use the setting concurrency_per_slot",
    "max_idle_time": "use the setting wait_for_seeds",
    "parse_start_url": "name the method parse; the rules apply to its pages as well",
    "process_item": "define the hook before_save(self, response, items)",
    "redis_batch_size": SCRAPY_REDIS_SETTINGS["REDIS_START_URLS_BATCH_SIZE"],
    "redis_encoding": SCRAPY_REDIS_SETTINGS["REDIS_ENCODING"],
    "redis_key": "use the setting seed_keys",
    "redis_key_check_interval": SCRAPY_REDIS_SETTINGS["REDIS_KEY_CHECK_INTERVAL"],
    "settings": "name it custom_settings; skitter replaces settings by the settings of the job",
    "start_url": "name it start_urls, and write a list",
    "update_settings": "set custom_settings",
    "user_agent": "use the setting user_agent",
}
"""What to write instead of an attribute or method that Scrapy's spiders may define and skitter never uses."""

FEED_CALLBACKS = {
    "parse_node": "skitter does not call parse_node: define parse(self, response), and loop over response.xpath('//item') "
    "or response.feed()",
    "parse_row": "skitter does not call parse_row: define parse(self, response), and loop over response.csv_rows()",
}
"""What to write instead of the callback of a spider for feeds."""

HOOKS = {
    "close_spider": "on_stop(self, worker)",
    "open_spider": "on_start(self, worker)",
    "process_exception": "on_error(self, request, error)",
    "process_item": "before_save(self, response, items)",
    "process_request": "before_request(self, request)",
    "process_response": "after_request(self, response)",
    "process_spider_exception": "on_error(self, request, error)",
    "process_spider_input": "after_request(self, response)",
    "process_spider_output": "before_save(self, response, items)",
    "spider_closed": "on_stop(self, worker)",
    "spider_opened": "on_start(self, worker)",
}
"""The hook that takes the place of a method of Scrapy's middlewares, pipelines and extensions."""

META = {
    "allow_offsite": "set allowed_domains or the setting scope",
    "autothrottle_dont_adjust_delay": "remove it, or use the setting delay",
    "bindaddress": "remove it",
    "cookiejar": "write Request(session='NAME')",
    "dont_cache": "remove it; the setting cache_dir is for development",
    "dont_merge_cookies": "write Request(session='NAME') with a separate name",
    "dont_obey_robotstxt": "use the setting robots",
    "dont_redirect": "add the statuses to the setting allowed_statuses",
    "dont_retry": "write Request(max_retries=0)",
    "download_fail_on_dataloss": "remove it",
    "download_maxsize": "write Request(max_body=...)",
    "download_slot": "use the setting limit_rules",
    "download_timeout": "write Request(timeout=...)",
    "download_warnsize": "write Request(max_body=...)",
    "ftp_local_filename": "remove it: skitter fetches http and https",
    "ftp_password": "remove it: skitter fetches http and https",
    "ftp_user": "remove it: skitter fetches http and https",
    "give_up_log_level": "remove it",
    "handle_httpstatus_all": "add the statuses to the setting allowed_statuses",
    "handle_httpstatus_list": "add the statuses to the setting allowed_statuses",
    "http_auth_domain": "use the setting credentials",
    "http_pass": "use the setting credentials",
    "http_user": "use the setting credentials",
    "max_retry_times": "write Request(max_retries=...)",
    "playwright": "write Request(fetcher='browser')",
    "playwright_context": "write Request(session='NAME')",
    "playwright_context_kwargs": "use the setting browser_context",
    "playwright_include_page": "write Request(browsing={'keep_page': True})",
    "playwright_page_event_handlers": "write Request(browsing={'record': REGEXP})",
    "playwright_page_goto_kwargs": "write Request(browsing={'wait_until': ...})",
    "playwright_page_init_callback": "write Request(browsing={'init_script': ...})",
    "playwright_page_methods": "write Request(browsing={'actions': [...]})",
    "priority_adjust": "remove it: a retry keeps the priority of its request",
    "proxy": "write Request(proxy=...), or request.replace(proxy=...) in a hook",
    "redirect_ttl": "use the setting max_redirects",
    "referrer_policy": "send request.referer in the hook before_request",
    "retry_times": "read response.request.retries, which the engine sets",
    "splash": "write Request(fetcher='browser')",
    "verbatim_url": "remove it",
}
"""What to write instead of a key of ``meta`` that Scrapy, scrapy-playwright or scrapy-splash reads."""

META_VALUES = {
    "depth": "read response.depth",
    "download_latency": "set http_trace, and read response.meta['http_trace']['first_byte']",
    "is_start_request": "test response.depth == 0",
    "link_text": "select the links in the callback, and pass their texts in cb_kwargs: rules do not keep them",
    "redirect_reasons": "read response.request.redirects, which has the URLs alone",
    "redirect_times": "read len(response.request.redirects)",
    "redirect_urls": "read response.request.redirects",
    "retry_times": "read response.request.retries, or request.retries in a hook or errback",
}
"""What to read instead of a value that Scrapy puts into ``meta``."""

ARGUMENTS = {
    "clickdata": "write response.form({...}, click='[name=NAME]')",
    "dont_click": "write response.form({...}, click=False)",
    "flags": "write meta",
    "formcss": "write response.form({...}, css=...)",
    "formid": "write response.form({...}, css='#ID')",
    "formname": "write response.form({...}, css='form[name=NAME]')",
    "formdata": "write Request.form(url, {...}), or response.form({...}) for a form of the page",
}
"""What to write instead of an argument of Scrapy's requests."""

SELECTOR_ARGUMENTS = {
    "response": "write response.selector",
    "type": "leave it out for HTML; for an XML text, import Selector from parsel",
}
"""What to write instead of an argument of Scrapy's selectors."""

_CRAWL = "write `for item in skitter.iter_items(MySpider)`, or Crawl(JobSpec(job=..., spider=MySpider))"
_AWAIT = "yield the request with a second callback, and pass in cb_kwargs what it has to know"
_ENTRY = "the values of an entry are attributes: entry.url, entry.lastmod"
_ERRBACK = "an errback receives the request and the exception: def failed(self, request, error)"
_EXPORTER = "name an output with -o, such as -o items.csv"
_FILES = "set files_store, and yield items with file_urls or image_urls"
_PROCESSOR = "import it from itemloaders.processors"

NAMES = {
    "BaseSpider": "write Spider",
    "CSVFeedSpider": "write Spider, and read response.csv_rows()",
    "CloseSpider": "return HookAction.STOP from a hook, or set max_pages, max_items or time_limit",
    "CrawlSpider": "write Spider, with the same rules",
    "CrawlerProcess": _CRAWL,
    "CrawlerRunner": _CRAWL,
    "CsvItemExporter": _EXPORTER,
    "DontCloseSpider": "use the option --wait-for-seeds",
    "DropItem": "remove the item from items in the hook before_save",
    "Failure": _ERRBACK,
    "Field": "write a dataclass or a dict",
    "FilesPipeline": _FILES,
    "FormRequest": "write response.form({...}), or Request.form(url, {...}) without a page",
    "HtmlResponse": "test response.is_html",
    "HttpError": "write `from skitter.errors import StatusError`, and test isinstance(error, StatusError)",
    "IgnoreRequest": "return HookAction.DROP from a hook",
    "ImagesPipeline": _FILES,
    "InitSpider": "write Spider, and send the form of the login from start",
    "Item": "write a dataclass or a dict",
    "ItemAdapter": "import it from itemadapter; a dict or dataclass needs none",
    "ItemLoader": "import it from itemloaders, and pass selector=response.selector",
    "Join": _PROCESSOR,
    "JsonItemExporter": _EXPORTER,
    "JsonLinesItemExporter": _EXPORTER,
    "JsonRequest": "write Request.json(url, {...})",
    "MapCompose": _PROCESSOR,
    "RedisCrawlSpider": "write Spider, with the setting seed_keys",
    "RedisSpider": "write Spider, with the setting seed_keys",
    "TakeFirst": _PROCESSOR,
    "TextResponse": "test response.is_text",
    "XMLFeedSpider": "write Spider, and read response.feed() or response.xpath(...)",
    "XmlResponse": "test response.is_xml",
    "XmlRpcRequest": "write Request(url, method='POST', body=xmlrpc.client.dumps(...))",
    "get_project_settings": "read self.settings; pass settings to JobSpec(settings={...})",
    "scrapy": "import Request and other names from skitter, and write them without `scrapy.`",
    "signals": "define hooks such as on_start in the spider",
}
"""What to write instead of a class or module of Scrapy that a spider imports or uses."""

MODULES = {
    "crawler": _CRAWL,
    "downloadermiddlewares": "define hooks such as on_start and before_request in the spider",
    "exceptions": "hooks return HookAction.STOP, HookAction.DROP or HookAction.RETRY instead",
    "exporters": _EXPORTER,
    "extensions": "define hooks such as on_start and before_request in the spider",
    "http": "write `from skitter import Request, Response`",
    "link": "write `from skitter import Link`",
    "linkextractors": "write `from skitter import LinkExtractor`",
    "loader": NAMES["ItemLoader"],
    "pipelines": "define the hook before_save(response, items) in the spider; for files and images, set files_store",
    "selector": "write `from skitter import Selector`",
    "shell": "run `skitter shell URL`",
    "signals": "define hooks such as on_start and before_request in the spider",
    "spidermiddlewares": "define hooks such as on_start and before_request in the spider",
    "spiders": "write `from skitter import Rule, SitemapSpider, Spider`",
    "utils": "write self.settings in place of get_project_settings(); import other helpers from w3lib or parsel",
}
"""What to write instead of a module of Scrapy, by its name within the package."""

MEMBERS = {
    "CIMultiDictProxy": {"getlist": "write response.headers.getall(name, [])"},
    "Exception": {  # Scrapy passes a Failure to an errback
        "check": "write isinstance(error, StatusError); errbacks receive the exception itself",
        "getErrorMessage": "write str(error); errbacks receive the exception itself",
        "request": "errbacks receive the request as their first argument",
        "value": "errbacks receive the exception itself: write error in place of failure.value",
    },
    "Request": {
        "check": _ERRBACK,  # def failed(self, failure, **options) receives the request as its failure
        "copy": "write request.replace()",
        "flags": "write meta",
        "from_curl": "write Request(url, method=..., headers=..., body=...)",
        "getErrorMessage": _ERRBACK,
        "request": _ERRBACK,
        "value": _ERRBACK,
    },
    "Response": {
        "body_as_unicode": "write response.text",
        "copy": "write response.replace()",
        "flags": "write meta",
        "ip_address": "write response.ip",
    },
    "SitemapEntry": {"get": _ENTRY},
    "Spider": {
        "crawler": "write self.settings and self.stats; hooks take the place of self.crawler.signals; in place of "
        "engine.download(), yield the request with a second callback; in place of engine.close_spider(), set max_pages, "
        "max_items or time_limit, or return HookAction.STOP from a hook",
        "settings": "read it in another method; __init__ runs before the settings are known",
        "state": "pass values in meta or cb_kwargs, which are stored with the requests",
    },
    "Stats": {
        "get_value": "read it with `skitter stats JOB user/`; the counters of other workers are not known here",
        "set_value": "write inc_value, which adds over all workers",
    },
    "super": {"start_requests": "yield Request(url) for each of self.start_urls"},
    "str": {"decode": "remove .decode(): texts and the values of headers are strings"},
}
"""What to write instead of an attribute, by the class that lacks it. ``response.headers`` is a ``CIMultiDictProxy``."""

CRAWLEE_SETTINGS = {
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
"""What to write instead of an option of a Crawlee crawler that a user may take for a setting."""

CRAWLEE_NAMES = {
    "AdaptivePlaywrightCrawler": "write Spider, with the setting fetcher='adaptive'",
    "BeautifulSoupCrawler": "write Spider; response.css and response.xpath select elements",
    "ConcurrencySettings": "write the settings concurrency, concurrency_per_slot and rates",
    "Dataset": "yield the items, and name an output with -o",
    "FileDownloadCrawler": "write Spider, set files_store, and yield items with file_urls",
    "Glob": "write a regular expression",
    "HttpCrawler": "write Spider",
    "KeyValueStore": "set files_store, and yield items with file_urls",
    "ParselCrawler": "write Spider; response.css and response.xpath select elements",
    "PlaywrightCrawler": "write Spider, with the setting fetcher='browser'",
    "ProxyConfiguration": "write the setting proxies",
    "RequestList": "write start_urls, or define async def start(self)",
    "SessionPool": "write the setting sessions",
}
"""What to write instead of a class of Crawlee."""

CRAWLEE_ARGUMENTS = {
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
"""What to write instead of an argument of Crawlee's ``enqueue_links`` or ``Request.from_url``."""

CRAWLEE_MEMBERS = {
    "Request": {
        "label": "write callback",
        "loaded_url": "write response.url",
        "no_retry": "pass max_retries=0 to the request",
        "retry_count": "read request.retries",
        "unique_key": "write fingerprint_keys, or dont_filter=True",
        "user_data": "write meta",
    },
    "Response": {
        "add_requests": "yield the requests",
        "block_requests": "set blocked_resources for kinds of resources, and blocked_urls for patterns of URLs",
        "enqueue_links": "write yield response.follow_all(...)",
        "extract_links": "write LinkExtractor(...).extract_links(response)",
        "get_key_value_store": "set files_store, and yield items with file_urls",
        "http_response": "read response.status, response.headers and response.body",
        "log": "write self.logger",
        "parsed_content": "write response.selector",
        "proxy_info": "write response.request.proxy",
        "push_data": "yield the item",
        "send_request": "yield a Request with a callback",
        "session": "write response.request.session; to retire it, raise RetryRequest(..., blocked=True)",
        "soup": "write BeautifulSoup(response.text)",
        "use_state": "count with self.stats.inc_value(), or pass values in meta",
    },
}
"""What to write instead of an attribute of Crawlee's contexts and requests, by the class of skitter that lacks it."""


def remedy_for(error: BaseException) -> str | None:
    """Return what to write instead of a name of Scrapy or Crawlee, if ``error`` says that skitter does not have it."""
    match error:
        case ImportError():
            return _remedy_for_import(error)
        case NameError():
            return _remedy_for_name(str(error.name))  # raise CloseSpider
        case TypeError() | RuntimeError():
            return _remedy_for_call(str(error))
        case KeyError():
            return META_VALUES.get(str(error.args[0])) if error.args else None  # response.meta["retry_times"]
        case AttributeError():
            return _remedy_for_attribute(error)
    name = type(error).__name__
    return NAMES.get(name) if _is_of_scrapy(error) else None  # raise CloseSpider, imported from scrapy


def remedy_for_object(value: object) -> str | None:
    """Return what to write instead of an object of Scrapy; ``None`` for other objects."""
    if not _is_of_scrapy(value):
        return None
    name = type(value).__name__
    return NAMES.get(name) or f"it is a {name} of Scrapy: write `from skitter import {name}`"


def _is_of_scrapy(value: object) -> bool:
    return type(value).__module__.partition(".")[0] == "scrapy"


def _remedy_for_import(error: ImportError) -> str | None:
    package, _, module = (error.name or "").partition(".")
    if package != "skitter":
        return None
    quoted = re.search("'(.+?)'", str(error))  # cannot import name 'FormRequest' from 'skitter'
    return (quoted and _remedy_for_name(quoted[1])) or MODULES.get(module)


def remedy_for_statement(statement: str) -> str | None:
    """Return what to write instead of a statement that imports from Scrapy, such as ``from scrapy.loader import ItemLoader``."""
    found = re.match(r"(?:from|import) scrapy(?:\.(\w+))?\S*(?: import (.+))?", statement)
    if found is None:
        return None
    names = re.findall(r"\w+", found[2] or "")
    return next(filter(None, map(_remedy_for_name, names)), None) or MODULES.get(found[1])


def _remedy_for_name(name: str) -> str | None:
    return NAMES.get(name) or CRAWLEE_NAMES.get(name)


_CALLS = {
    "Request.form() missing 1 required positional argument: 'fields'": ARGUMENTS[
        "formdata"
    ],  # Request.form(url, formdata=...)
    "cannot create weak reference to 'Response' object": "import ItemLoader from itemloaders, and give the classes of Scrapy "
    "response.selector",  # ItemLoader(response=response) of Scrapy
    "object Request can't be used in 'await' expression": _AWAIT,
    "'Request' object can't be awaited": _AWAIT,  # the same from Python 3.14 on
    "'SitemapEntry' object is not subscriptable": _ENTRY,
}
"""What to write instead of a call or expression that raises a ``TypeError`` or ``RuntimeError`` with this text."""


def _remedy_for_call(text: str) -> str | None:
    if text in _CALLS:
        return _CALLS[text]
    if text.endswith(" must be instantiated with a selector"):  # ItemLoader(response=response) of itemloaders
        return "pass selector=response.selector to it"
    found = re.match(r"Selector\.__init__\(\) got an unexpected keyword argument '(.+)'$", text)
    if found is not None:
        return SELECTOR_ARGUMENTS.get(found[1])
    found = re.match("Unexpected keyword argument '(.+)'$", text)  # Request(url, label=...)
    return None if found is None else ARGUMENTS.get(found[1]) or CRAWLEE_ARGUMENTS.get(found[1])


def _remedy_for_attribute(error: AttributeError) -> str | None:
    name = str(error.name)
    if str(error) == "immutable type: 'Request'":
        return "write request = request.replace(...)"
    if str(error).startswith("module 'skitter' "):
        return _remedy_for_name(name)
    owner = error.obj if isinstance(error.obj, type) else type(error.obj)
    remedies = (
        members.get(base.__name__, {}).get(name)
        for base in owner.__mro__
        for members in (MEMBERS, CRAWLEE_MEMBERS)
    )
    return next(filter(None, remedies), None)


def unused_attributes(spider_class: type) -> list[tuple[str, str]]:
    """Return the attributes of a class and its bases that only Scrapy would use, each with what to write instead."""
    defined = set(dir(spider_class))
    for name, parameter in _PARAMETERS.items():
        if name in defined and not _takes(getattr(spider_class, name), parameter):
            defined.remove(name)
    return [(name, remedy) for name, remedy in ATTRIBUTES.items() if name in defined]


_PARAMETERS = {"close": "reason", "process_item": "item"}
"""Methods of Scrapy whose names fit other methods too, such as a callback, with a parameter that only Scrapy's have."""


def _takes(method: Any, parameter: str) -> bool:
    return inspect.isfunction(method) and parameter in inspect.getargs(method.__code__).args
