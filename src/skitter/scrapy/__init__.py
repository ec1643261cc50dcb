"""Optional: the frontier of skitter as the scheduler of a Scrapy project, with the add-on that installs it.

A project names the add-on in its settings: ``ADDONS = {"skitter.scrapy.Addon": 0}``. Loading this package does not load
Scrapy, because commands such as ``skitter failures`` load it to open the job.
"""

from skitter.scrapy.addon import Addon

__all__ = ["Addon"]
