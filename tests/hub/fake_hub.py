"""A model hub on 127.0.0.1, with a second server in the part of its CDN, that misbehaves on demand.

    hub = FakeHub()
    commit = hub.add("owner/name", {"config.json": b"{}", "model.safetensors": b"..."})
    hub.fault("model.safetensors", cut(after=1000, times=1))

Files that end in .safetensors or .bin are LFS files: the hub redirects to the CDN for them. Every request is in
hub.requests. A fault is a function of (handler, file) that answers the request itself and returns True, or returns False to
let the ordinary answer happen.
"""
from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import socket
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclasses.dataclass
class Request:
    role: str  # "hub" or "cdn"
    path: str
    headers: dict[str, str]  # names in lower case

    @property
    def data(self) -> bool:
        """Asks for a file's bytes (or for where they are)."""
        return self.role == "cdn" or "/resolve/" in self.path


@dataclasses.dataclass
class File:
    path: str
    content: bytes
    lfs: bool
    version: int = 0  # part of the entity tag

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @property
    def git_blob(self) -> str:
        return hashlib.sha1(b"blob %d\0" % len(self.content) + self.content).hexdigest()

    @property
    def etag(self) -> str:
        return f'"{self.version}-{self.sha256[:20]}"' if self.lfs else f'"{self.git_blob}"'

    def entry(self) -> dict[str, object]:
        entry: dict[str, object] = {"type": "file", "path": self.path, "size": len(self.content), "oid": self.git_blob}
        if self.lfs:
            entry["lfs"] = {"oid": self.sha256, "size": len(self.content), "pointerSize": 135}
        return entry


Fault = Callable[["Handler", File], bool]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are two writes
    server: Server

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        hub = self.server.hub
        headers = {name.lower(): value for name, value in self.headers.items()}
        with hub.lock:
            hub.requests.append(Request(self.server.role, self.path, headers))
        try:
            hub.answer(self)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def reply(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def json(self, value: object, **headers: str) -> None:
        self.reply(200, json.dumps(value).encode(), Content_Type="application/json", **headers)

    def wanted(self, file: File) -> tuple[int, int] | None:
        """The range that the request may have: [begin, end)."""
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not found or self.headers.get("If-Range", file.etag) != file.etag:
            return None
        return int(found[1]), min(int(found[2]) + 1, len(file.content))

    def head_of(self, file: File) -> bytes:
        """Sends the status line and the headers; returns the body that should follow."""
        piece = self.wanted(file)
        begin, end = piece or (0, len(file.content))
        self.send_response(206 if piece else 200)
        if piece:
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(file.content)}")
        self.send_header("Content-Length", str(end - begin))
        self.send_header("ETag", file.etag)
        self.end_headers()
        return file.content[begin:end]

    def hang_up(self) -> None:
        self.wfile.flush()
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, hub: FakeHub, role: str, tls: ssl.SSLContext | None):
        self.hub, self.role = hub, role
        super().__init__(("127.0.0.1", 0), Handler)
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def handle_error(self, *_: object) -> None:
        pass


class FakeHub:
    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.lock = threading.Lock()
        self.requests: list[Request] = []
        self.commits: dict[tuple[str, str], dict[str, File]] = {}  # (repo, commit) -> files
        self.refs: dict[tuple[str, str], str] = {}  # (repo, revision) -> commit
        self.faults: dict[str, list[Fault]] = {}  # by path; "api" for the JSON interface
        self.token: str | None = None  # None: open to everybody
        self.page_size = 1000
        self.signature = 0  # of the last redirect
        self.tree: list[object] | bytes | None = None  # instead of the honest listing
        self.hub, self.cdn = Server(self, "hub", tls), Server(self, "cdn", tls)
        self.url = self.hub.url

    def close(self) -> None:
        for server in (self.hub, self.cdn):
            server.shutdown()
            server.server_close()

    def add(self, repo: str, files: dict[str, bytes], revision: str = "main") -> str:
        entries = {path: File(path, content, path.endswith((".safetensors", ".bin"))) for path, content in files.items()}
        commit = hashlib.sha1(repr(sorted((path, file.sha256) for path, file in entries.items())).encode()).hexdigest()
        self.commits[repo, commit] = entries
        self.refs[repo, revision] = self.refs[repo, commit] = commit
        return commit

    def file(self, path: str) -> File:
        return next(files[path] for files in self.commits.values() if path in files)

    def fault(self, path: str, fault: Fault) -> None:
        self.faults.setdefault(path, []).append(fault)

    def data_requests(self) -> list[Request]:
        with self.lock:
            return [request for request in self.requests if request.data]

    def forget(self) -> None:
        with self.lock:
            self.requests.clear()

    def _failed(self, handler: Handler, key: str, file: File) -> bool:
        return any(fault(handler, file) for fault in self.faults.get(key, []))

    def answer(self, handler: Handler) -> None:
        url = urllib.parse.urlsplit(handler.path)
        if handler.server.role == "cdn":
            repo, commit, path = re.fullmatch(r"/blob/([^/]+/[^/]+)/(\w+)/(.+)", urllib.parse.unquote(url.path)).groups()
            file = self.commits[repo, commit][path]
            if not self._failed(handler, path, file):
                handler.wfile.write(handler.head_of(file))
            return
        if self.token is not None and handler.headers.get("Authorization") != f"Bearer {self.token}":
            handler.reply(401, b"gated", X_Error_Code="GatedRepo")
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/(revision|tree)/([^/]+)", url.path):
            if not self._failed(handler, "api", File("api", b"", False)):
                self._api(handler, found[1], found[2], urllib.parse.unquote(found[3]), url.query)
        elif found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/(\w+)/(.+)", urllib.parse.unquote(url.path)):
            self._resolve(handler, found[1], found[2], found[3])
        else:
            handler.reply(404)

    def _api(self, handler: Handler, repo: str, what: str, revision: str, query: str) -> None:
        if (repo, revision) not in self.refs:
            known = any(one == repo for one, _ in self.refs)
            handler.reply(404, X_Error_Code="RevisionNotFound" if known else "RepoNotFound")
            return
        commit = self.refs[repo, revision]
        if what == "revision":
            handler.json({"id": repo, "sha": commit, "siblings": []})
            return
        if isinstance(self.tree, bytes):
            handler.reply(200, self.tree)
            return
        entries = self.tree if self.tree is not None else [file.entry() for file in self.commits[repo, commit].values()]
        entries = [{"type": "directory", "path": "encoding", "oid": "0" * 40, "size": 0}, *entries]
        begin = int(urllib.parse.parse_qs(query).get("cursor", ["0"])[0])
        end = begin + self.page_size
        link = {}
        if end < len(entries):
            link["Link"] = f'<{self.url}/api/models/{repo}/tree/{commit}?recursive=true&cursor={end}>; rel="next"'
        handler.json(entries[begin:end], **link)

    def _resolve(self, handler: Handler, repo: str, commit: str, path: str) -> None:
        file = self.commits.get((repo, commit), {}).get(path)
        if file is None:
            handler.reply(404, X_Error_Code="EntryNotFound")
        elif file.lfs:
            if not self._failed(handler, "redirect " + path, file):
                with self.lock:
                    self.signature += 1
                handler.reply(302, X_Linked_Size=str(len(file.content)), X_Linked_Etag=f'"{file.sha256}"',
                              X_Repo_Commit=commit,
                              Location=f"{self.cdn.url}/blob/{repo}/{commit}/{urllib.parse.quote(path)}?signature={self.signature}")
        elif not self._failed(handler, path, file):
            handler.wfile.write(handler.head_of(file))


class Times:
    """Counts how often a fault has struck; safe across the servers' threads."""

    def __init__(self, times: float):
        self._left, self._lock = times, threading.Lock()

    def strike(self) -> bool:
        with self._lock:
            self._left -= 1
            return self._left >= 0


def cut(after: int, times: float = 1) -> Fault:
    """The line is cut after so many bytes of the body."""
    left = Times(times)

    def fault(handler: Handler, file: File) -> bool:
        if not left.strike():
            return False
        body = handler.head_of(file)
        handler.wfile.write(body[:after])
        handler.hang_up()
        return True
    return fault


def status(code: int, times: float = 1, **headers: str) -> Fault:
    left = Times(times)

    def fault(handler: Handler, _: File) -> bool:
        if not left.strike():
            return False
        handler.reply(code, b"not now", **headers)
        return True
    return fault


def no_ranges(times: float = float("inf"), skip: int = 0) -> Fault:
    """Answers 200 with the whole file, whatever is asked for."""
    left, before = Times(times), Times(skip)

    def fault(handler: Handler, file: File) -> bool:
        if before.strike() or not left.strike():
            return False
        handler.reply(200, file.content, ETag=file.etag)
        return True
    return fault


def slow(bytes_per_s: int, times: float = float("inf")) -> Fault:
    left = Times(times)

    def fault(handler: Handler, file: File) -> bool:
        if not left.strike():
            return False
        body, step = handler.head_of(file), max(1, bytes_per_s // 20)
        for begin in range(0, len(body), step):
            handler.wfile.write(body[begin:begin + step])
            handler.wfile.flush()
            time.sleep(step / bytes_per_s)
        return True
    return fault


def stall(after: int, times: float = 1, event: threading.Event | None = None) -> Fault:
    """Sends some bytes, then nothing, and keeps the line open: until the client leaves, or until the event and then the rest."""
    left = Times(times)

    def fault(handler: Handler, file: File) -> bool:
        if not left.strike():
            return False
        body = handler.head_of(file)
        handler.wfile.write(body[:after])
        if event:
            event.wait(60)
            handler.wfile.write(body[after:])
            return True
        handler.connection.settimeout(60)
        try:
            handler.connection.recv(1)  # until the client leaves
        except OSError:
            pass
        handler.close_connection = True
        return True
    return fault


def silent() -> Fault:
    """Takes the request and never answers."""
    def fault(handler: Handler, _: File) -> bool:
        handler.connection.settimeout(60)
        handler.connection.recv(1)  # until the client leaves
        handler.close_connection = True
        return True
    return fault


def hold(event: threading.Event) -> Fault:
    """No answer before the event."""
    def fault(_: Handler, __: File) -> bool:
        event.wait(60)
        return False
    return fault


def raw(text: bytes, forever: bytes = b"") -> Fault:
    """These bytes as the whole answer, then `forever` again and again."""
    def fault(handler: Handler, _: File) -> bool:
        handler.wfile.write(text)
        while forever:
            handler.wfile.write(forever)
        handler.hang_up()
        return True
    return fault


def changes(after_requests: int) -> Fault:
    """From then on the server has another entity tag for the same file."""
    left = Times(after_requests)

    def fault(_: Handler, file: File) -> bool:
        if not left.strike():
            file.version = 1
        return False
    return fault


def corrupt() -> Fault:
    """The right number of bytes, the wrong ones."""
    def fault(handler: Handler, file: File) -> bool:
        handler.wfile.write(bytes(len(handler.head_of(file))))
        return True
    return fault
