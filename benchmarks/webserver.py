"""nginx with the pages of a generated site as static files, on loopback."""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

from skitter.testing import GeneratedSite

CONFIG = """
daemon off;
master_process off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{ worker_connections 4096; }}
http {{
    types {{ text/html html; }}
    default_type text/html;
    charset utf-8;
    log_format target '{format}';
    access_log {log};
    sendfile on;
    tcp_nopush on;
    keepalive_requests 100000000;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port} backlog=1024;
        root {pages};
        {rules}
    }}
}}
"""


class NotStarted(Exception):
    """nginx is missing or ended at once."""


def site_files(cache, pages):
    """Write a site's pages as files, or find them written before. Returns site, folder and port.

    The port is part of the pages (absolute links) and so of the folder's name.
    """
    site = GeneratedSite(pages=pages)
    for folder in Path(cache).glob(f"site-{pages}-*"):
        port = int(folder.name.rpartition("-")[2])
        if _is_free(port):
            return site, folder, port
        shutil.rmtree(folder)
    port = free_port()
    folder = Path(cache, f"site-{pages}-{port}")
    write_files(site, Path(cache, "unfinished"), [f"127.0.0.1:{port}"])
    Path(cache, "unfinished").rename(folder)
    return site, folder, port


def write_files(site, folder, origins):
    shutil.rmtree(folder, ignore_errors=True)
    made = set()
    for number in range(site.pages):
        target = site.url(number, origins).split("/", 3)[3].partition("?")[0] or "index.html"
        file = folder / target
        if file.parent not in made:
            file.parent.mkdir(parents=True)
            made.add(file.parent)
        file.write_bytes(site.body(number, origins))


@contextlib.contextmanager
def nginx(folder, pages, port, log=None, rules="", log_format="$request_uri"):
    """Serve ``pages`` on a port while the block lasts; ``folder`` takes its own files.

    ``log``: a file that gets a line for each request when it is answered: its path, or what ``log_format`` says.
    ``rules``: directives of the server.
    """
    program = shutil.which("nginx") or shutil.which("nginx", path=f"/usr/sbin:/usr/local/sbin:{os.defpath}")
    if program is None:
        raise NotStarted("nginx is not installed; Debian: apt-get install nginx-light")
    config = Path(folder, "nginx.conf")
    logging = f"{log} target" if log else "off"
    config.write_text(
        CONFIG.format(folder=folder, pages=pages, port=port, log=logging, format=log_format, rules=rules)
    )
    process = subprocess.Popen([program, "-e", f"{folder}/error.log", "-c", str(config)])
    try:
        _wait_for(port, process, folder)
        yield process
    finally:
        process.terminate()
        process.wait()


def _wait_for(port, process, folder):
    deadline = time.monotonic() + 10
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise NotStarted(f"nginx does not respond: {Path(folder, 'error.log').read_text()[-500:]}")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _is_free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return probe.connect_ex(("127.0.0.1", port)) != 0
