"""Frontends: ways to describe a crawl other than a spider class. All of them run on the same engine.

- ``collector``: for users who prefer callbacks on an object, as in Colly.
- ``recipe``: for users who describe a spider in YAML or TOML; ``scripting`` runs the JavaScript in recipes.
- ``tasks``: for operators who run many small crawls in one job.
- ``lifecycle``: for programs that control a crawl as an object.
- ``page_spider``: the spider of ``skitter crawl``, for crawls without any code.
"""
