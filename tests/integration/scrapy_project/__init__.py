"""A Scrapy project that does not use skitter itself. Its tests run it with and without the add-on."""
