"""Options: how a connection introduces itself to an nsqd."""

from __future__ import annotations

import json
import socket
import ssl
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a connection introduces itself, and the features it asks for."""

    connect_timeout: float = 5.0
    """Seconds for the whole greeting."""
    answer_timeout: float = 30.0
    """Seconds for which the answer to a command is waited for; then the connection is closed."""
    heartbeat: float = 30.0
    """Seconds between two heartbeats; a server that is silent for two of them is taken for dead."""
    msg_timeout: float | None = None
    """Seconds after which an unanswered message is delivered again; ``None``: as nsqd is set."""
    output_buffer_size: int | None = None
    """Bytes nsqd gathers before it sends; ``None``: as nsqd is set (16 KB), -1: every message is sent at once
    (not together with compression: nsqd 1.3.0 then keeps them for itself)."""
    output_buffer_timeout: float | None = None
    """Seconds for which nsqd gathers; ``None``: as nsqd is set (0.25). nsqd takes nothing below 0.025."""
    sample_rate: int = 0
    """Percentage of messages that is delivered; 0: all."""
    client_id: str = ""
    """Name of this client in nsqd's statistics; empty: the host's name."""
    user_agent: str = "skitter-nsq/1"
    tls: ssl.SSLContext | None = None
    """Encrypt. A server that does not is refused."""
    deflate: int = 0
    """Level from 1 to 9; 0: none. Not together with snappy."""
    snappy: bool = False
    auth_secret: str = ""

    def greeting(self) -> bytes:
        """Return what IDENTIFY says."""
        host = socket.gethostname()
        wishes: dict[str, Any] = {
            "client_id": self.client_id or host,
            "hostname": host,
            "user_agent": self.user_agent,
            "feature_negotiation": True,
            "heartbeat_interval": round(self.heartbeat * 1000),
            "sample_rate": self.sample_rate,
            "tls_v1": self.tls is not None,
            "deflate": self.deflate > 0,
            "deflate_level": self.deflate,
            "snappy": self.snappy,
        }
        if self.msg_timeout is not None:
            wishes["msg_timeout"] = round(self.msg_timeout * 1000)
        if self.output_buffer_size is not None:
            wishes["output_buffer_size"] = self.output_buffer_size
        if self.output_buffer_timeout is not None:
            wishes["output_buffer_timeout"] = round(self.output_buffer_timeout * 1000)
        return json.dumps(wishes).encode()
