"""Finds the browser of the system and the flags to start it with."""

from __future__ import annotations

import logging
import os
import shutil
import stat
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from skitter.errors import SettingsError, UsageError
from skitter.settings import Settings

log = logging.getLogger("skitter.browser")

PROFILE = "profile"
"""Folder of the profile of the browser, in the folder of its process."""
_NAMES = (
    "chromium-headless-shell", "chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome",
)  # fmt: skip
"""Programs in the order of preference: the headless shell needs about half the CPU of the whole browser."""
_MACOS = ("/Applications/Chromium.app/Contents/MacOS/Chromium",
          "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome")  # fmt: skip
_HELPERS = ("/usr/lib/chromium/chrome-sandbox", "/opt/google/chrome/chrome-sandbox")
_CAP_SYS_ADMIN = 21
INSTALL = "apt install chromium-headless-shell, or set browser_executable"
"""Remedy for a missing browser."""

_OFF = (
    # requests to the vendor
    "background-networking", "component-update", "default-apps", "sync", "breakpad", "crash-reporter",
    "domain-reliability", "client-side-phishing-detection", "field-trial-config", "pings", "quic",
    # windows and prompts
    "extensions", "component-extensions-with-background-pages", "hang-monitor", "prompt-on-repost", "infobars",
    "search-engine-choice-screen", "notifications",
    # requests and documents that do not belong to the page
    "shared-workers",
    # throttling of invisible pages, and work for invisible results
    "background-timer-throttling", "backgrounding-occluded-windows", "renderer-backgrounding", "back-forward-cache",
    "ipc-flooding-protection", "stack-profiler", "dev-shm-usage", "gpu", "site-isolation-trials",
)  # fmt: skip
_FEATURES_OFF = (
    "AutofillServerCommunication", "BackForwardCache", "CertificateTransparencyComponentUpdater", "DialMediaRouteProvider",
    "GlobalMediaControls", "HttpsUpgrades", "HttpsFirstBalancedModeAutoEnable", "InterestFeedContentSuggestions",
    "IsolateOrigins", "site-per-process", "MediaRouter", "NetworkTimeServiceQuerying", "OptimizationHints", "PaintHolding",
    "PreconnectToSearch", "PreloadTopChromeWebUI", "ProactivelySwapBrowsingInstance", "RenderDocument", "SpareRendererForSitePerProcess",
    "Translate", "WebOTP",
    # documents that the browser would load before a page asks for them, or load a second time
    "Prerender2", "CriticalClientHint",
    # requests that may outlive their page, and are not intercepted
    "KeepAliveInBrowserMigration", "AttributionReportingInBrowserMigration",
    # two renderers for each window, which show suggestions of the address bar
    "WebUIOmniboxAimPopup", "WebUIOmniboxFullPopup", "WebUIOmniboxPopup",
)  # fmt: skip
FLAGS = (
    "--headless", "--remote-debugging-pipe", "--no-startup-window", "--no-first-run", "--no-default-browser-check",
    "--no-service-autorun", "--no-pings", "--metrics-recording-only", "--mute-audio", "--hide-scrollbars",
    "--password-store=basic", "--use-mock-keychain", "--force-color-profile=srgb", "--allow-pre-commit-input",
    "--block-new-web-contents", "--in-process-gpu",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp", "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    f"--disable-features={','.join(_FEATURES_OFF)}",
    *(f"--disable-{name}" for name in _OFF),
)  # fmt: skip


def find_executable(settings: Settings) -> str:
    """Return the path of the browser. Raises :class:`~skitter.errors.UsageError` if there is none. Reads the file system."""
    executable = settings.browser_executable
    if executable:
        found = shutil.which(executable)
        if found is None:
            raise UsageError(
                f"browser not found: {executable!r}",
                remedy="correct browser_executable",
                field="browser_executable",
            )
        return found
    for name in _NAMES:
        if found := shutil.which(name):
            return found
    for name in _MACOS:
        if Path(name).exists():
            return name
    raise UsageError("browser pages need Chromium, which is not installed", remedy=INSTALL, field="fetcher")


def check_installed(settings: Settings) -> None:
    """Raise :class:`~skitter.errors.UsageError` if Playwright or the browser is missing."""
    if find_spec("playwright") is None:
        raise UsageError(
            "browser pages: the package playwright is missing",
            remedy='in the clone of skitter: pip install ".[browser]"',
            field="fetcher",
        )
    if not settings.browser_url:
        find_executable(settings)


_UNSUPPORTED = {
    "ca_file": 'add the authority for the user of the worker (certutil -d "sql:$HOME/.pki/nssdb" -A -t C -n NAME -i FILE),'
    " or name the hosts in unverified_hosts",
    "ca_files": "fetch these pages by HTTP, or name the hosts in unverified_hosts",
    "client_certs": "fetch these pages by HTTP",
    "client_cert": "fetch these pages by HTTP",
    "client_key": "fetch these pages by HTTP",
}
"""Settings of HTTP fetches without an equivalent in Chromium, with remedies."""


_CONTEXT_OPTIONS = frozenset({
    "viewport", "screen", "locale", "timezone_id", "geolocation", "permissions", "color_scheme", "reduced_motion",
    "device_scale_factor", "is_mobile", "has_touch", "java_script_enabled",
})  # fmt: skip
"""Options of Playwright's contexts, except options for identity and network, which have their own settings."""


def check_settings(settings: Settings) -> None:
    """Raise :class:`~skitter.errors.SettingsError` for a setting that a browser does not support."""
    unknown = sorted(settings.browser_context.keys() - _CONTEXT_OPTIONS)
    if unknown:
        raise SettingsError(
            f"unknown option {unknown[0]!r} of browser_context",
            remedy=f"use {', '.join(sorted(_CONTEXT_OPTIONS))}",
            field="browser_context",
        )
    unsupported = [name for name in _UNSUPPORTED if getattr(settings, name)]
    if unsupported:
        raise SettingsError(
            f"pages in the browser cannot use {unsupported[0]}",
            remedy=_UNSUPPORTED[unsupported[0]],
            field=unsupported[0],
        )
    if not settings.reuse_connections:
        raise SettingsError(
            "pages in the browser reuse connections",
            remedy="leave out reuse_connections, or fetch these pages by HTTP",
            field="reuse_connections",
        )
    if settings.browser_url and not settings.http2:
        raise SettingsError(
            "http2 cannot be changed in a running browser",
            remedy="start it with --disable-http2, and leave out http2",
            field="http2",
        )


def sandbox_obstacle(settings: Settings) -> str:
    """Return why the browser runs without its sandbox; empty if it has a sandbox. Starts a process."""
    if not settings.browser_sandbox:
        return "browser_sandbox is off"
    if os.geteuid() == 0:
        return "Chromium refuses it for the root user"
    if sys.platform == "linux" and not (_may_make_namespaces() or _may_use_helper()):
        return "the system forbids user namespaces, as the default profile of Docker does"
    return ""


def _may_make_namespaces() -> bool:
    attempt = "import ctypes, os; os._exit(ctypes.CDLL(None).unshare(0x10000000) != 0)"  # CLONE_NEWUSER
    command = [sys.executable, "-I", "-S", "-c", attempt]
    return subprocess.run(command, check=False).returncode == 0  # noqa: S603 - this interpreter, with a constant


def _may_use_helper() -> bool:
    """Return whether the browser's setuid helper exists and has the permissions that it needs."""
    fields = dict(
        line.split(":\t", 1)
        for line in Path("/proc/self/status").read_text("ascii").splitlines()
        if ":\t" in line
    )
    if fields.get("NoNewPrivs") == "1" or not int(fields["CapBnd"], 16) >> _CAP_SYS_ADMIN & 1:
        return False
    return any(Path(path).exists() and Path(path).stat().st_mode & stat.S_ISUID for path in _HELPERS)


def sandbox_flags(settings: Settings) -> list[str]:
    """Return the flags that disable the sandbox if the settings, the user or the system require it. Log a warning then."""
    reason = sandbox_obstacle(settings)
    if not reason:
        return []
    log.warning("the browser runs without its sandbox: %s", reason)
    return ["--no-sandbox"]


def command(settings: Settings, folder: str) -> list[str]:
    """Return the arguments of the Python interpreter that starts the browser below a watchdog."""
    watchdog = str(Path(__file__).with_name("watchdog.py"))
    heap = max(64, settings.page_memory // 1024 // 1024)
    return [
        "-I", "-S", watchdog, folder, find_executable(settings), *FLAGS, *sandbox_flags(settings),
        *(() if settings.http2 else ("--disable-http2",)),
        f"--user-data-dir={folder}/{PROFILE}", f"--js-flags=--max-old-space-size={heap}",
    ]  # fmt: skip
