"""Component: the part of a crawl in which an error arose, or to which a module belongs."""

from __future__ import annotations

from enum import StrEnum

from skitter.errors import SkitterError


class Component(StrEnum):
    """The four kinds of the seed."""

    DOWNLOADER = "downloader"
    """Fetching: no answer, a bad one, a status that is no page, robots.txt, redirects."""
    ANALYZER = "analyzer"
    """User code that reads pages, hooks included."""
    PIPELINE = "pipeline"
    """Items: processors and stores."""
    SCHEDULER = "scheduler"
    """The crawl itself: a record that cannot be read, seeds that fail, a frontier that is gone."""


class ModuleError(SkitterError):
    """What went wrong in a module; the message names it, and says what and where in one line."""

    def __init__(self, component: Component, module: str, message: str) -> None:
        super().__init__(f"{component} {module}: {message}")
        self.component = component
        self.module = module

    @property
    def root(self) -> BaseException:
        """The error of user code behind it."""
        return self.__cause__ or self
