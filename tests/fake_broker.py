"""A broker in memory that delivers immediately and records the answers to its messages."""

import asyncio


class FakeDelivery:
    """A delivered message, and the answers to it."""

    def __init__(self, body, attempts=1):
        self.body = body
        self.attempts = attempts
        self.answers = []

    def finish(self):
        self.answers.append("finish")

    def requeue(self, seconds):
        self.answers.append(("requeue", seconds))

    def touch(self):
        self.answers.append("touch")


class FakeBroker:
    """Keeps messages in lists. While ``gate`` is cleared, publishing waits."""

    is_receiving = True

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

    async def publish(self, messages):
        await self.gate.wait()
        self.published += messages
        self.inbox += [message.body for message in messages]

    def allow(self, count):
        self.allowed.append(count)

    def deliver(self, body, attempts=1):
        self.inbox.append((body, attempts))

    def receive(self):
        new = [FakeDelivery(*one) if isinstance(one, tuple) else FakeDelivery(one) for one in self.inbox]
        self.inbox.clear()
        self.delivered += new
        return new

    async def wait(self, seconds):
        return bool(self.inbox)

    @property
    def answers(self):
        """The answers to all messages."""
        return [answer for delivery in self.delivered for answer in delivery.answers]
