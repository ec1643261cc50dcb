"""Message: one delivery, which ends by ``finish`` or ``requeue``, or by nsqd's patience."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skitter.brokers.nsq_client.connection import Connection


class Message:
    """A message as it was delivered over a connection.

    An answer after the connection has ended goes nowhere: nsqd delivers the message again.
    """

    __slots__ = ("attempts", "body", "connection", "id", "is_answered", "published")

    def __init__(
        self, connection: Connection, message_id: bytes, body: bytes, attempts: int, published: int
    ) -> None:
        self.connection = connection
        self.id = message_id
        self.body = body
        self.attempts = attempts
        """How often it was delivered, this time included; nsqd stops counting at 65,535."""
        self.published = published
        """Nanoseconds of Unix time, by the clock of nsqd."""
        self.is_answered = False

    def finish(self) -> None:
        """Tell nsqd that the work is done, and to forget the message (``FIN``). A second answer is ignored."""
        if not self.is_answered:
            self.is_answered = True
            self.connection.finish(self)

    def requeue(self, delay: float = 0.0) -> None:
        """Put it back, to be delivered after so many seconds (``REQ``). A second answer is ignored.

        nsqd takes at most its ``--max-req-timeout``, an hour by default; longer delays are cut to that.
        """
        if not self.is_answered:
            self.is_answered = True
            self.connection.requeue(self, delay)

    def touch(self) -> None:
        """Ask for a whole message timeout more (``TOUCH``); nsqd grants it up to ``--max-msg-timeout``."""
        if not self.is_answered:
            self.connection.touch(self)
