"""Finds the browser of the system and the flags to start it with."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from skitter.errors import UsageError
from skitter.settings import Settings

log = logging.getLogger("skitter.browser")

_NAMES = (
    "chromium-headless-shell", "chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome",
)  # fmt: skip
"""Programs in the order of preference: the headless shell needs about half the CPU of the whole browser."""
_MACOS = ("/Applications/Chromium.app/Contents/MacOS/Chromium",
          "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome")  # fmt: skip
INSTALL = "apt install chromium-headless-shell, or set browser_executable"
"""Remedy for a missing browser."""

_OFF = (
    # calls home
    "background-networking", "component-update", "default-apps", "sync", "breakpad", "crash-reporter",
    "domain-reliability", "client-side-phishing-detection", "field-trial-config", "pings", "quic",
    # windows and prompts
    "extensions", "component-extensions-with-background-pages", "hang-monitor", "prompt-on-repost", "infobars",
    "search-engine-choice-screen", "notifications", "popup-blocking",
    # throttling of what is not visible, and work that no one sees
    "background-timer-throttling", "backgrounding-occluded-windows", "renderer-backgrounding", "back-forward-cache",
    "ipc-flooding-protection", "stack-profiler", "dev-shm-usage", "gpu", "site-isolation-trials",
)  # fmt: skip
_FEATURES_OFF = (
    "AutofillServerCommunication", "BackForwardCache", "CertificateTransparencyComponentUpdater", "DialMediaRouteProvider",
    "GlobalMediaControls", "HttpsUpgrades", "HttpsFirstBalancedModeAutoEnable", "InterestFeedContentSuggestions",
    "IsolateOrigins", "site-per-process", "MediaRouter", "NetworkTimeServiceQuerying", "OptimizationHints", "PaintHolding",
    "PreconnectToSearch", "PreloadTopChromeWebUI", "ProactivelySwapBrowsingInstance", "RenderDocument", "SpareRendererForSitePerProcess",
    "Translate", "WebOTP",
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
    wanted = settings.browser_executable
    if wanted:
        found = shutil.which(wanted)
        if found is None:
            raise UsageError(
                f"browser not found: {wanted!r}",
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
            remedy='pip install "skitter[browser]"',
            field="fetcher",
        )
    if not settings.browser_url:
        find_executable(settings)


def is_sandboxed(settings: Settings) -> bool:
    """Return whether the browser runs in its sandbox."""
    return settings.browser_sandbox and os.geteuid() != 0


def sandbox_flags(settings: Settings) -> list[str]:
    """Return the flags that switch the sandbox off, where the settings or the user require it, with a warning."""
    if is_sandboxed(settings):
        return []
    reason = "browser_sandbox is off" if os.geteuid() != 0 else "Chromium refuses it for the root user"
    log.warning("the browser runs without its sandbox: %s", reason)
    return ["--no-sandbox"]


def command(settings: Settings, folder: str) -> list[str]:
    """Return the arguments of the Python interpreter that starts the browser below a keeper."""
    keeper = str(Path(__file__).with_name("keeper.py"))
    heap = max(64, settings.page_memory // 1024 // 1024)
    return [
        "-I", "-S", keeper, folder, find_executable(settings), *FLAGS, *sandbox_flags(settings),
        f"--user-data-dir={folder}/profile", f"--js-flags=--max-old-space-size={heap}",
    ]  # fmt: skip


def interpreter() -> str:
    """Return the Python interpreter that runs the keeper."""
    return sys.executable
