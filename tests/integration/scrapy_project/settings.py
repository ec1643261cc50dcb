BOT_NAME = "project"
SPIDER_MODULES = ["scrapy_project.spiders"]
ITEM_PIPELINES = {"scrapy_project.pipelines.Checked": 300}
ROBOTSTXT_OBEY = True
TELNETCONSOLE_ENABLED = False
RETRY_TIMES = 2
RETRY_PRIORITY_ADJUST = 0
LOG_LEVEL = "INFO"
