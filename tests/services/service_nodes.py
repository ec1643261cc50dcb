"""Nodes of a service, each a real `skitter serve`, and a client of their API."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

TOKEN = "a-token-for-tests-only"
PATIENCE = 60.0


class ServiceNode:
    """A node. It is killed at the end of the block if it is still running."""

    def __init__(self, folder, *options):
        folder.mkdir(exist_ok=True)
        self._command = [
            sys.executable,
            "-m",
            "skitter",
            "serve",
            "--port",
            "0",
            "--folder",
            str(folder / "node"),
            "--allow-network",
            "127.0.0.0/8",
            *options,
        ]
        self._folder = folder
        self.runs = folder / "node" / "runs"

    def __enter__(self):
        self.process = subprocess.Popen(
            self._command, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, env={**os.environ, "SKITTER_SERVE_TOKEN": TOKEN}, text=True,
        )  # fmt: skip
        line = self.process.stderr.readline()
        found = re.search(r"node (\S+) listens on http://127\.0\.0\.1:(\d+)", line)
        assert found, line + self.process.stderr.read()
        self.name, self.port = found[1], int(found[2])
        self._lines = [line]
        self._reader = threading.Thread(target=lambda: self._lines.extend(self.process.stderr))
        self._reader.start()
        return self

    def __exit__(self, *_):
        self.kill()
        self.process.wait()
        self._reader.join()
        self.process.stderr.close()

    @property
    def errors(self):
        return "".join(self._lines)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()

    def leave(self):
        """End the node as an operator does. Return its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)

    def call(self, method, path, body=None, *, token=TOKEN, kind="application/json"):
        """Call the API. Return the status and the decoded body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        if body is not None:
            headers["Content-Type"] = kind
            body = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        return answer.status, json.loads(data) if data else None

    def text(self, path):
        """Return a response that is not JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})
            answer = connection.getresponse()
            assert (answer.status, answer.getheader("Content-Type")) == (200, "application/x-ndjson")
            return answer.read().decode()
        finally:
            connection.close()

    def done(self, method, path, body=None, **options):
        """Call the API and require success. Return the decoded body."""
        status, answer = self.call(method, path, body, **options)
        assert status < 300, (method, path, status, answer, self.errors)
        return answer

    def wait_for(self, path, fact, what):
        """Repeat a request until ``fact`` is true for its response. Return the response."""
        deadline = time.monotonic() + PATIENCE
        while True:
            answer = self.done("GET", path)
            if fact(answer):
                return answer
            assert time.monotonic() < deadline, f"never came: {what}: {answer}\n{self.errors}"
            time.sleep(0.05)

    def all_items(self, job, limit=7, run=None):
        """Read all items of a job, page by page."""
        found, after = [], None
        while True:
            query = f"?limit={limit}" + (f"&after={after}" if after else "") + (f"&run={run}" if run else "")
            page = self.done("GET", f"/jobs/{job}/items{query}")
            found += page["items"]
            if page["next"] is None:
                return found
            after = page["next"]
