"""A Scrapy project that knows nothing of skitter. Its tests run it with and without the add-on."""
