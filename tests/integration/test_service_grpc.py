"""The service over gRPC: the operations of the HTTP API, called by a client that uses only reflection."""

import asyncio
import json
import os
import re
import ssl
import subprocess
import sys
import urllib.request

import grpc
import pytest
import trustme
from fastapi.responses import StreamingResponse
from google.protobuf import descriptor_pb2, json_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from api_caller import TOKEN, Caller, application
from cli_command import Logged, skitter, usage_error
from skitter.errors import StoreError
from skitter.service.api.access import SAFE_METHODS
from skitter.service.api.grpc_schema import SERVICE, ApiSchema
from skitter.service.api.grpc_server import grpc_server
from skitter.service.api.routes import JSON_LINES

RECIPE = "name: web\nstart: http://127.0.0.1/\npages:\n  p: {items: {fields: {url: {value: '{url}'}}}}\n"
READER, LIMITED, EXPIRED = "a-token-that-only-reads", "a-token-for-other-jobs", "a-token-that-has-expired"
TOKENS = (
    TOKEN, f"{READER} name=reader scope=read", f"{LIMITED} name=limited jobs=other-*", f"{EXPIRED} name=old expires=2020-01-01",
)  # fmt: skip
NAMED = {"name": "web", "task": "x"}


class Client:
    """Calls methods by their names. Calls block, so make them in a thread."""

    def __init__(self, port, authority=None):
        """``authority``: certificate of the authority that has signed the server's, for TLS."""
        place = f"localhost:{port}" if authority else f"127.0.0.1:{port}"
        self.channel = (
            grpc.secure_channel(place, grpc.ssl_channel_credentials(authority))
            if authority
            else grpc.insecure_channel(place)
        )
        self._pool = DescriptorPool(ProtoReflectionDescriptorDatabase(self.channel))
        self.methods = {one.name: one for one in self._pool.FindServiceByName(SERVICE).methods}

    def __call__(self, name, fields=None, token=TOKEN):
        method = self.methods[name]
        request = json_format.ParseDict(fields or {}, GetMessageClass(method.input_type)())
        make = self.channel.unary_stream if method.server_streaming else self.channel.unary_unary
        call = make(
            f"/{SERVICE}/{name}", lambda message: message.SerializeToString(), GetMessageClass(method.output_type).FromString
        )  # fmt: skip
        metadata = () if token is None else (("authorization", f"Bearer {token}"),)
        answer = call(request, metadata=metadata, timeout=60)
        if method.server_streaming:
            return [json_format.MessageToDict(one) for one in answer]
        return json_format.MessageToDict(answer)

    def error(self, name, fields=None, token=TOKEN):
        """Return the error of a call, or None."""
        try:
            self(name, fields, token)
        except grpc.RpcError as error:
            return error
        return None

    def code(self, *call):
        error = self.error(*call)
        return None if error is None else error.code()

    def named(self, name):
        """Return the names of a path that a request has, with values."""
        return {
            field: value
            for field, value in NAMED.items()
            if field in self.methods[name].input_type.fields_by_name
        }


@pytest.fixture
async def service(tmp_path):
    """Return an application, its jobs, and a client."""
    app, jobs = application(tmp_path, tokens=TOKENS)
    await jobs.store.open()
    async with grpc_server(app, "127.0.0.1", 0, 10_000) as port:
        client = await asyncio.to_thread(Client, port)
        yield app, jobs, client
        await asyncio.to_thread(client.channel.close)
    await jobs.store.close()


async def test_every_operation_of_the_http_api_is_a_method_and_no_call_goes_without_its_token(service):
    app, _, client = service
    paths = (await Caller(app)("GET", "/openapi.json"))[1]["paths"]
    calls = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    operations = ApiSchema(app.inner).operations
    assert {(one.http_method, one.path) for one in operations} == calls - {
        ("POST", "/session"),
        ("DELETE", "/session"),
    }
    assert {one.name for one in operations} == set(client.methods)

    def codes(token):
        return {name: client.code(name, client.named(name), token) for name in client.methods}

    for token in (None, "wrong-token-that-nobody-has", EXPIRED, f"{TOKEN}x"):
        refused = await asyncio.to_thread(codes, token)
        assert refused.pop("Health") is None
        assert set(refused.values()) == {grpc.StatusCode.UNAUTHENTICATED}
    read = await asyncio.to_thread(codes, READER)
    unsafe = {one.name for one in operations if one.http_method not in SAFE_METHODS}
    denied = {name for name, code in read.items() if code is grpc.StatusCode.PERMISSION_DENIED}
    assert denied == unsafe | {"Entries"}
    limited = await asyncio.to_thread(codes, LIMITED)
    named = {one.name for one in operations if "name" in one.path_names}
    assert {name for name in named if limited[name] is not grpc.StatusCode.PERMISSION_DENIED} == set()


async def test_jobs_are_run_over_grpc_as_over_http(service):
    app, _, client = service
    http = Caller(app)
    call = lambda *given: asyncio.to_thread(client, *given)  # noqa: E731 - short
    assert (await call("PutRecipe", {"name": "web", "body": RECIPE}))["name"] == "web"
    body = {
        "name": "web",
        "recipe": "web",
        "settings": {"max_pages": 5, "delay": 0.5},
        "workers": 2,
        "start": False,
    }
    added = await call("AddJob", {"body": body})
    assert (added["name"], added["state"]) == ("web", "new")
    over_http = (await http("GET", "/jobs/web"))[1]
    assert over_http["settings"] == {"max_pages": 5, "delay": 0.5}
    assert (await call("Job", {"name": "web"})) == json.loads(json.dumps(over_http), parse_int=float)
    assert (await call("Start", {"name": "web"}))["state"] == "waiting"
    assert [job["name"] for job in (await call("ListJobs", {"contains": "we", "limit": 3}))["jobs"]] == [
        "web"
    ]
    await call("AddJob", {"body": {"name": "many", "tasks": True}})
    assert await call("AddTask", {"name": "many", "body": {"recipe": "web"}}) == {"task": "web"}
    assert (await call("Tasks", {"name": "many"}))["tasks"][0]["state"] == "open"
    assert await call("CloseTask", {"name": "many", "task": "web"}) == {}
    assert await call("AllItems", {"name": "web"}) == []
    [history, update] = await call("Events", {"name": "web"})
    assert (history["event"], update["event"], update["data"]["name"]) == ("history", "update", "web")
    assert any("skitter_" in line for line in await call("Metrics"))
    recorded = (await http("GET", "/audit"))[1]["entries"]
    assert ("POST", "/jobs/web/start", 200) in {
        (one["method"], one["path"], one["status"]) for one in recorded
    }


async def test_errors_have_the_code_of_their_status_and_their_problem_document(service):
    _, _, client = service
    codes = grpc.StatusCode
    for name, fields, code in (
        ("Job", {"name": "nobody"}, codes.NOT_FOUND), ("AddJob", {"body": {"name": "x"}}, codes.INVALID_ARGUMENT),
        ("Job", {}, codes.INVALID_ARGUMENT), ("Job", {"name": "x/log"}, codes.INVALID_ARGUMENT),
        ("PutRecipe", {"name": "web", "body": "x" * 10_001}, codes.RESOURCE_EXHAUSTED),
        ("PutRecipe", {"name": "web", "body": "pages: {}"}, codes.INVALID_ARGUMENT),
    ):  # fmt: skip
        error = await asyncio.to_thread(client.error, name, fields)
        assert error.code() is code, (name, fields, error)
    document = json.loads(dict(error.trailing_metadata())["problem-bin"])
    assert document["status"] == 422
    assert document["errors"][0]["field"] == "recipe"


async def test_the_printed_proto_file_equals_the_reflection(service, tmp_path):
    _, _, client = service
    printed = await asyncio.to_thread(skitter, "serve", "--print-proto", cwd=tmp_path)
    assert (printed.returncode, printed.stderr) == (0, "")
    (tmp_path / "skitter.proto").write_text(printed.stdout)
    protoc = [
        sys.executable,
        "-m",
        "grpc_tools.protoc",
        f"-I{tmp_path}",
        f"--descriptor_set_out={tmp_path / 'set'}",
    ]
    await asyncio.to_thread(subprocess.run, [*protoc, "skitter.proto"], check=True, timeout=60)
    [compiled] = descriptor_pb2.FileDescriptorSet.FromString((tmp_path / "set").read_bytes()).file
    served = descriptor_pb2.FileDescriptorProto()
    client.methods["Job"].containing_service.file.CopyToProto(served)
    assert len(served.message_type) > 40
    for found in (compiled, served):
        found.ClearField("name")
        for field in (field for message in found.message_type for field in message.field):
            field.ClearField("json_name")
    assert (compiled.package, compiled.syntax) == (served.package, served.syntax)
    assert list(compiled.service) == list(served.service)
    assert list(compiled.message_type) == list(served.message_type)


async def test_too_many_calls_receive_the_time_of_the_next_attempt(tmp_path):
    app, jobs = application(tmp_path, max_rate=1)
    await jobs.store.open()
    async with grpc_server(app, "127.0.0.1", 0, 10_000) as port:
        client = await asyncio.to_thread(Client, port)
        errors = [await asyncio.to_thread(client.error, "Recipes") for _ in range(20)]
        guesses = [await asyncio.to_thread(client.code, "Recipes", {}, f"guessed-{n}") for n in range(20)]
        await asyncio.to_thread(client.channel.close)
    await jobs.store.close()
    assert set(guesses) == {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.RESOURCE_EXHAUSTED}
    refused = [error for error in errors if error is not None]
    assert {error.code() for error in refused} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert int(dict(refused[0].trailing_metadata())["retry-after"]) >= 1


async def test_a_stream_ends_in_the_service_when_its_caller_is_gone(service):
    _, _, client = service
    method = client.methods["Overview"]
    request = json_format.ParseDict({"follow": True}, GetMessageClass(method.input_type)())
    call = client.channel.unary_stream(
        f"/{SERVICE}/Overview", lambda message: message.SerializeToString(), GetMessageClass(method.output_type).FromString
    )(request, metadata=(("authorization", f"Bearer {TOKEN}"),))  # fmt: skip
    assert json_format.MessageToDict(await asyncio.to_thread(next, call))["event"] == "update"

    def running():
        return [task for task in asyncio.all_tasks() if task.get_name() == "gRPC Overview"]

    assert len(running()) == 1
    call.cancel()
    async with asyncio.timeout(60):
        while running():
            await asyncio.sleep(0.01)


async def test_a_stream_that_fails_ends_with_an_error(tmp_path):
    app, jobs = application(tmp_path)

    @app.inner.get("/failing", response_class=StreamingResponse, responses=JSON_LINES)
    async def failing():
        async def lines():
            yield b'"the first line"\n'
            raise StoreError("the store is gone", remedy="none")

        return StreamingResponse(lines(), media_type="application/x-ndjson")

    await jobs.store.open()
    async with grpc_server(app, "127.0.0.1", 0, 10_000) as port:
        client = await asyncio.to_thread(Client, port)
        error = await asyncio.to_thread(client.error, "Failing")
        await asyncio.to_thread(client.channel.close)
    await jobs.store.close()
    assert error.code() is grpc.StatusCode.INTERNAL
    assert "incomplete" in error.details()


async def test_a_new_operation_is_in_both(tmp_path):
    app, jobs = application(tmp_path)

    @app.inner.get("/double/{name}")
    async def double_it(name: str, number: int = 1) -> dict[str, object]:
        return {"name": name, "double": 2 * number}

    await jobs.store.open()
    assert await Caller(app)("GET", "/double/a?number=4") == (200, {"name": "a", "double": 8})
    async with grpc_server(app, "127.0.0.1", 0, 10_000) as port:
        client = await asyncio.to_thread(Client, port)
        assert await asyncio.to_thread(client, "DoubleIt", {"name": "a", "number": 4}) == {
            "name": "a",
            "double": 8,
        }
        assert await asyncio.to_thread(client, "DoubleIt", {"name": "b"}) == {"name": "b", "double": 2}
        await asyncio.to_thread(client.channel.close)
    await jobs.store.close()


def test_a_node_with_a_certificate_accepts_tls_only(tmp_path, monkeypatch):
    monkeypatch.setenv("SKITTER_SERVE_TOKEN", TOKEN)
    authority = trustme.CA()
    own = authority.issue_cert("localhost", "127.0.0.1")
    own.private_key_pem.write_to_path(tmp_path / "key.pem")
    for part in own.cert_chain_pems:
        part.write_to_path(tmp_path / "cert.pem", append=True)
    assert "belong together" in usage_error("serve", "--tls-cert", "cert.pem", cwd=tmp_path)
    swapped = usage_error("serve", "--tls-cert", "key.pem", "--tls-key", "cert.pem", cwd=tmp_path)
    assert "key.pem" in swapped
    tls = ("--tls-cert", "cert.pem", "--tls-key", "key.pem")
    with Logged("serve", "--port", 0, "--grpc-port", 0, *tls, cwd=tmp_path) as node:
        node.wait_for(lambda: "listens on" in node.log)
        port = int(re.search(r"offers gRPC on port (\d+)", node.log)[1])
        client = Client(port, authority.cert_pem.bytes())
        assert client("ListJobs")["jobs"] == []
        client.channel.close()
        with pytest.raises(grpc.RpcError):
            Client(port)
        with pytest.raises(grpc.RpcError):
            Client(port, trustme.CA().cert_pem.bytes())
        url = re.search(r"listens on (https://\S+)", node.log)[1]
        trusted = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
        with urllib.request.urlopen(f"{url}/health", context=trusted, timeout=60) as answer:
            assert answer.status == 200
        os.kill(node.process.pid, 15)
        assert node.end() == 0


def test_a_node_offers_both_and_refuses_a_port_that_is_taken(tmp_path, monkeypatch):
    monkeypatch.setenv("SKITTER_SERVE_TOKEN", TOKEN)
    with Logged("serve", "--port", 0, "--grpc-port", 0, cwd=tmp_path) as node:
        node.wait_for(lambda: "listens on" in node.log)
        port = int(re.search(r"offers gRPC on port (\d+)", node.log)[1])
        client = Client(port)
        assert client("ListJobs")["jobs"] == []
        taken = usage_error("serve", "--folder", "other", "--port", 0, "--grpc-port", port, cwd=tmp_path)
        assert str(port) in taken
        again = usage_error("serve", "--port", 0, cwd=tmp_path)
        assert "the service in " in again
        assert f"is being run by process {node.process.pid}" in again
        assert "--folder" in again
        client.channel.close()
        os.kill(node.process.pid, 15)
        assert node.end() == 0
