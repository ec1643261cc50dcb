"""Origins: the places where a test site listens."""

from __future__ import annotations


class Origins:
    """``host:port`` of all places, hosts changing fastest; none before the site is served."""

    origins: tuple[str, ...] = ()

    @property
    def port(self) -> int:
        """The first port."""
        return int(self.origins[0].rpartition(":")[2])

    @property
    def url(self) -> str:
        """The front page of the first origin."""
        return self.url_of()

    def url_of(self, path: str = "/", place: int = 0) -> str:
        """Return the absolute URL of a path at one of the origins."""
        return f"http://{self.origins[place]}{path}"
