"""An OTLP/HTTP collector that decodes what it receives with the official messages, and the OpenTelemetry Collector before it."""

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import yaml
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from services.processes import ServerProcess

PATIENCE = 60.0


class Span:
    """One received span."""

    def __init__(self, sent, resource):
        self.trace, self.id, self.parent = sent.trace_id.hex(), sent.span_id.hex(), sent.parent_span_id.hex()
        self.name, self.start, self.end = sent.name, sent.start_time_unix_nano, sent.end_time_unix_nano
        self.kind, self.failed, self.message = sent.kind, sent.status.code == 2, sent.status.message
        self.attributes = _values(sent.attributes)
        self.resource = resource


def _values(attributes):
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


class Trace(list):
    """The spans of one trace."""

    @property
    def roots(self):
        return [span for span in self if not span.parent]

    def named(self, name):
        return [span for span in self if span.name == name]

    def below(self, parent):
        return sorted(span.name for span in self if span.parent == parent.id)


class Collector:
    """Serves on a free loopback port until the end of its block. ``silent``: accepts connections, but never answers."""

    def __init__(self, *, status=200, silent=False):
        self._spans, self._lock = [], threading.Lock()
        self.released = threading.Event()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if silent:
                    collector.released.wait(PATIENCE)
                if status == 200:
                    collector._take(self.path, ExportTraceServiceRequest.FromString(body))
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(status)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def _take(self, path, request):
        assert path == "/v1/traces"
        with self._lock:
            for group in request.resource_spans:
                resource = _values(group.resource.attributes)
                self._spans += [Span(one, resource) for scope in group.scope_spans for one in scope.spans]

    def __enter__(self):
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.released.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def spans(self):
        with self._lock:
            return list(self._spans)

    @property
    def traces(self):
        """All traces of ended requests by URL; each URL has one."""
        traces = {}
        for span in self.spans:
            traces.setdefault(span.trace, Trace()).append(span)
        ended = [trace for trace in traces.values() if trace.roots]
        found = {trace.roots[0].attributes["url.full"]: trace for trace in ended}
        assert len(found) == len(ended), "two traces of one request"
        return found

    def wait_for(self, fact):
        """Wait until ``fact()`` is true for the received traces."""
        deadline = time.monotonic() + PATIENCE
        while not fact(self.traces):
            assert time.monotonic() < deadline, sorted(self.traces)
            time.sleep(0.02)


class OpenTelemetryCollector(ServerProcess):
    """The OpenTelemetry Collector. It forwards all accepted traces to a :class:`Collector`."""

    def __init__(self, program, target):
        super().__init__()
        self._program, self._target = program, target
        self.url = f"http://127.0.0.1:{self.port}"

    def command(self):
        parts = {
            "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{self.port}"}}}},
            "exporters": {"otlphttp": {"endpoint": self._target.url, "compression": "none"}},
            "service": {
                "telemetry": {"metrics": {"level": "none"}, "logs": {"level": "warn"}},
                "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["otlphttp"]}},
            },
        }
        (self.folder / "config.yaml").write_text(yaml.safe_dump(parts))
        return [self._program, "--config", "config.yaml"]
