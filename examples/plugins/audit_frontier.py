"""``--frontier audit:FILE``: the memory frontier, with a log of how each request ended."""

import asyncio
from pathlib import Path

from skitter.frontier.embedded.frontier import EmbeddedFrontier


class AuditFrontier(EmbeddedFrontier):
    @classmethod
    def from_url(cls, url, context):
        frontier = cls(context.politeness, context.options)
        frontier.file = Path(url.rpartition(":")[2])
        frontier.urls = {}
        return frontier

    async def lease(self, worker, limit, reports=(), quotas=None):
        result = await super().lease(worker, limit, reports, quotas)
        self.urls |= {lease.id: lease.url for lease in result.leases}
        return result

    async def commit(self, outcomes):
        taken = await super().commit(outcomes)
        lines = [
            f"{outcome.resolution} {self.urls[outcome.lease_id]} {outcome.error}".rstrip() + "\n"
            for outcome, was_taken in zip(outcomes, taken, strict=True)
            if was_taken
        ]
        await asyncio.to_thread(self._note, "".join(lines))
        return taken

    def _note(self, text):
        with self.file.open("a") as file:
            file.write(text)
