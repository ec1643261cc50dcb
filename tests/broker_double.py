"""A broker that delivers at once, for tests of what is said to it."""

import asyncio


class Delivery:
    """A message that was delivered, and what was said of it."""

    def __init__(self, body, attempts=1):
        self.body = body
        self.attempts = attempts
        self.said = []

    def finish(self):
        self.said.append("finish")

    def requeue(self, seconds):
        self.said.append(("requeue", seconds))

    def touch(self):
        self.said.append("touch")


class BrokerDouble:
    """Keeps everything in a list; ``gate`` lets publishing go on."""

    def __init__(self):
        self.inbox = []
        self.delivered = []
        self.published = []
        self.allowed = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def open(self):
        pass

    async def close(self):
        pass

    async def publish(self, postings):
        await self.gate.wait()
        self.published += postings
        self.inbox += [posting.body for posting in postings]

    def allow(self, count):
        self.allowed.append(count)

    def deliver(self, body, attempts=1):
        self.inbox.append((body, attempts))

    def receive(self):
        new = [Delivery(*one) if isinstance(one, tuple) else Delivery(one) for one in self.inbox]
        self.inbox.clear()
        self.delivered += new
        return new

    async def wait(self, seconds):
        return bool(self.inbox)

    @property
    def said(self):
        """What was said of all messages."""
        return [word for delivery in self.delivered for word in delivery.said]
