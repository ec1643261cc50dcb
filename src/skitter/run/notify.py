"""Reports violated monitors to webhooks and by mail (setting ``notify``)."""

from __future__ import annotations

import asyncio
import logging
import re
import smtplib
import ssl
from contextlib import suppress
from email.message import EmailMessage
from email.utils import formatdate, make_msgid, parseaddr
from ipaddress import ip_address
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from skitter.errors import SettingsError, SkitterError
from skitter.fetch.address_guard import AddressGuard
from skitter.fetch.http import HttpFetcher
from skitter.monitors import Verdict, describe
from skitter.request import Request
from skitter.run.passes import PassRecord
from skitter.secrets import referenced_secret, shown_url
from skitter.settings import Settings
from skitter.web.urls import normalize

log = logging.getLogger("skitter.monitors")

_ATTEMPTS = 3
_PAUSE = 1.0
"""Seconds before the second attempt. Doubles with each further attempt."""
_TIMEOUT = 15.0
_ADDRESSES = r"[^\s@,?]+@[^\s@,?]+(?:,[^\s@,?]+@[^\s@,?]+)*"
"""One or more email addresses, as a pattern for the text after ``mailto:``."""


class NotificationError(SkitterError):
    """A report that a webhook or a mail server did not accept."""


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a webhook."""

    job: str
    number: int
    """Number of the pass. Together with ``job`` and ``ended``, it distinguishes a new report from a repeated one."""
    began: float
    ended: float
    """Unix time of the end of the pass; 0 while it runs."""
    reason: str
    violated: list[Verdict]
    figures: dict[str, float]


def check_targets(settings: Settings) -> None:
    """Raise :class:`~skitter.errors.SettingsError` for a target of another kind, or an invalid mail server."""
    for place, target in enumerate(settings.notify):
        text = referenced_secret(target, f"notify[{place}]")
        scheme, _, rest = text.partition(":")
        if scheme == "mailto" and rest.isprintable() and re.fullmatch(_ADDRESSES, rest):
            _mail_server(settings)
        elif scheme not in {"http", "https"} or normalize(text) is None:
            raise SettingsError(
                f"cannot report to {shown_url(text)!r:.80}",
                remedy="give https://HOST/PATH, or mailto:NAME@HOST",
                field=f"notify[{place}]",
            )


def _mail_server(settings: Settings) -> SplitResult:
    """Return the URL of the mail server. Raises :class:`~skitter.errors.SettingsError`."""
    text = referenced_secret(settings.smtp_url, "smtp_url")
    with suppress(ValueError):  # an invalid host, or an invalid port
        server = urlsplit(text)
        if server.scheme in {"smtp", "smtps"} and server.hostname and server.port != 0:
            return server
    raise SettingsError(
        f"invalid mail server {shown_url(text)!r:.80}",
        remedy="write smtp://HOST:PORT or smtps://HOST",
        field="smtp_url",
    )


def _connect(scheme: str, host: str, port: int | None, context: ssl.SSLContext) -> smtplib.SMTP:
    """Connect to a mail server. Raise :class:`NotificationError`, which names the server, if it is not reachable."""
    port = port or (465 if scheme == "smtps" else 25)
    try:
        if scheme == "smtps":
            return smtplib.SMTP_SSL(host, port, timeout=_TIMEOUT, context=context)
        return smtplib.SMTP(host, port, timeout=_TIMEOUT)
    except OSError as error:
        raise NotificationError(
            f"cannot connect to the mail server {host}:{port}: {error}",
            remedy="name your mail server in smtp_url, such as smtp://HOST:PORT",
        ) from error


def _check_private(client: smtplib.SMTP, host: str) -> None:
    """Raise :class:`NotificationError` if others could read a login: it needs TLS, except to this machine.

    Someone in between can remove STARTTLS from the reply of a server in order to read the password.
    """
    assert client.sock is not None, "it is connected"
    if isinstance(client.sock, ssl.SSLSocket) or ip_address(client.sock.getpeername()[0]).is_loopback:
        return
    raise NotificationError(
        f"the connection to {host} is not encrypted (no STARTTLS), so the login of smtp_url was not sent",
        remedy="use smtps://, or a server that offers STARTTLS",
        field="smtp_url",
    )


class Notifier:
    """Reports passes whose monitors were violated."""

    def __init__(self, job: str, settings: Settings) -> None:
        self._job = job
        self._settings = settings

    async def report(self, record: PassRecord) -> bool:
        """Report a pass to all targets. Return whether all have accepted it."""
        accepted = [await self._deliver(target, record) for target in self._settings.notify]
        return all(accepted)

    async def _deliver(self, target: str, record: PassRecord) -> bool:
        problem: Exception | None = None
        for attempt in range(_ATTEMPTS):
            if attempt:
                await asyncio.sleep(_PAUSE * 2 ** (attempt - 1))
            try:
                address = await asyncio.to_thread(referenced_secret, target, "notify")
                if address.startswith("mailto:"):
                    await asyncio.to_thread(self._mail, address.removeprefix("mailto:"), record)
                else:
                    await self._post(address, record)
            except (SkitterError, OSError, smtplib.SMTPException) as error:
                problem = error
            else:
                return True
        remedy = f"; {problem.remedy}" if isinstance(problem, SkitterError) and problem.remedy else ""
        log.warning("cannot report the violated monitors to %s: %s%s", shown_url(target), problem, remedy)
        return False

    async def _post(self, url: str, record: PassRecord) -> None:
        # Webhooks may not use the networks that seeds have opened.
        guard = AddressGuard(self._settings.allow_networks, seeds_open=False)
        # The headers of the crawl may contain secrets that are meant for the crawled sites only.
        fetcher = HttpFetcher(msgspec.structs.replace(self._settings, headers={}), guard=guard)
        await fetcher.open()
        try:
            response = await fetcher.fetch(
                Request(
                    url,
                    method="POST",
                    headers={"Content-Type": "application/json"},
                    body=msgspec.json.encode(self._notice(record)),
                    timeout=_TIMEOUT,
                )
            )
        finally:
            await fetcher.close()
        if not 200 <= response.status < 300:
            raise NotificationError(f"status {response.status}")

    def _notice(self, record: PassRecord) -> Notice:
        return Notice(
            job=self._job, number=record.number, began=record.began, ended=record.ended, reason=record.reason,
            violated=record.violated, figures=record.figures,
        )  # fmt: skip

    def _mail(self, address: str, record: PassRecord) -> None:
        message = EmailMessage()
        violated = record.violated
        message["Subject"] = f"skitter: job {self._job} violates {len(violated)} of its monitors"
        sender = self._settings.mail_from
        message["From"], message["To"], message["Date"] = sender, address, formatdate()
        # Large mail services refuse mails without it.
        message["Message-ID"] = make_msgid(domain=parseaddr(sender)[1].rpartition("@")[2] or "localhost")
        lines = [describe(verdict) for verdict in violated]
        message.set_content("\n".join([f"Pass {record.number} of job {self._job} violates:", "", *lines, ""]))
        server = _mail_server(self._settings)
        assert server.hostname is not None, "it was checked"
        context = ssl.create_default_context(cafile=self._settings.ca_file or None)
        with _connect(server.scheme, server.hostname, server.port, context) as client:
            client.ehlo()
            if server.scheme == "smtp" and client.has_extn("starttls"):
                client.starttls(context=context)
                client.ehlo()
            if server.username:
                _check_private(client, server.hostname)
                client.login(unquote(server.username), unquote(server.password or ""))
            client.send_message(message)
