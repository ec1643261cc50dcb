"""A shop with product numbers: requests are short in the queue and sent in full, each with another browser and proxy.

gocrawler needs a scheduler, hooks, getters and a store for this; here, settings and a few methods are enough:

    skitter run shop.py -o 'mongodb://127.0.0.1/shop/{task}' -s proxies=file:proxies.txt -s proxy_rotation=random
"""

from skitter import HookAction, Request, Spider

ADDRESS = "{site}/catalogue/product?id={number}&country=de&currency=EUR&view=full"


class Shop(Spider):
    site = "http://127.0.0.1:8000"
    tasks = "books,games"
    custom_settings = {
        "user_agents": "random",  # a whole header set for each request
        "fingerprint_keys": ["task"],  # a product that two tasks ask for is two requests
        "item_meta_fields": ["task"],  # every item says which task it belongs to
        "group_key": "task",  # and every task is counted: `skitter stats JOB --by group`
        "max_retries": 5,
        "queues": {"products": {"concurrency": 16, "rates": ["50/s"]}},
    }

    async def start(self):
        for task in self.tasks.split(","):
            yield Request(f"{self.site}/list/{task}", self.listing, meta={"task": task})

    def listing(self, response):
        for number in response.css("li::attr(data-product)").getall():
            # The queue holds only this short request. Products have a queue of their own, with its own rate.
            yield response.follow(f"/p/{number}", meta=response.meta, queue="products")
        for link in response.css("a[rel=next]"):
            yield response.follow(link, self.listing, meta=response.meta)  # stays with the lists

    def before_request(self, request):
        start, short, number = request.url.partition("/p/")
        return request.replace(url=ADDRESS.format(site=start, number=number)) if short else None

    def after_request(self, response):
        # 200: continue; 404: no longer for sale; any other status: retry.
        return {200: HookAction.CONTINUE, 404: HookAction.DROP}.get(response.status, HookAction.RETRY)

    def parse(self, response):
        yield {"name": response.css("h1::text").get(), "price": float(response.css("b.price::text").get())}
