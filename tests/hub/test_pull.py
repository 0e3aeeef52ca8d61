"""`nibble pull`: what lands in the cache, and what does when the server behaves."""
from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pty
import re
import shutil
import ssl
import stat
import subprocess
import threading
from pathlib import Path

import pytest

from conftest import REPO, Place, binary, bytes_of, model
from fake_hub import FakeHub, hold, slow, status

SELECTED = {"config.json", "tokenizer.json", "README.md", "LICENSE", "encoding/encoding_dsv4.py",
            "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}


def files_of(snapshot: Path) -> set[str]:
    return {str(path.relative_to(snapshot)) for path in snapshot.rglob("*") if not path.is_dir()} - {"nibble.lock.json"}


def test_layout_and_content(place: Place, hub: FakeHub) -> None:
    files = model()
    commit = hub.add(REPO, files)
    snapshot = place.pulled()
    assert snapshot == place.repository / "snapshots" / commit
    assert files_of(snapshot) == SELECTED
    for name in SELECTED:
        link = snapshot / name
        file = hub.file(name)
        assert link.is_symlink() and link.read_bytes() == files[name]
        target = os.readlink(link)
        assert not target.startswith("/") and link.resolve().parent == place.repository / "blobs"
        assert link.resolve().name == (file.sha256 if file.lfs else file.git_blob)
    assert (place.repository / "refs" / "main").read_text() == commit
    assert place.leftovers() == []


def test_lock_file(place: Place, hub: FakeHub) -> None:
    commit = hub.add(REPO, {**model(), 'odd "name".json': b"{}"})
    lock = json.loads((place.pulled() / "nibble.lock.json").read_text())
    assert (lock["version"], lock["repo"], lock["revision"]) == (1, REPO, commit)
    assert set(lock["files"]) == SELECTED | {'odd "name".json'}
    for name, entry in lock["files"].items():
        file = hub.file(name)
        assert entry == {"size": len(file.content), **({"sha256": file.sha256} if file.lfs else {"git_blob": file.git_blob})}


def test_a_second_pull_asks_for_no_data(place: Place, hub: FakeHub) -> None:
    hub.add(REPO, model())
    snapshot = place.pulled()
    assert len(hub.data_requests()) > 0
    hub.forget()
    assert place.pulled() == snapshot
    assert hub.data_requests() == []


def test_a_commit_in_the_cache_needs_no_hub(place: Place, hub: FakeHub) -> None:
    commit = hub.add(REPO, model())
    snapshot = place.pulled(repo=f"{REPO}@{commit}")
    assert not (place.repository / "refs").exists()
    hub.forget()
    assert place.pulled(repo=f"{REPO}@{commit}") == snapshot
    assert hub.requests == []


def test_what_is_fetched_can_be_chosen(place: Place, hub: FakeHub) -> None:
    files = model()
    hub.add(REPO, files)
    assert files_of(place.pulled("--include", "inference/*")) == SELECTED | {"inference/model.py"}
    snapshot = place.pulled("--all")
    assert files_of(snapshot) == set(files)
    # The lock file remembers what earlier pulls have verified.
    place.pulled()
    assert set(json.loads((snapshot / "nibble.lock.json").read_text())["files"]) == set(files)


def test_nothing_that_was_fetched_is_executable(place: Place, hub: FakeHub) -> None:
    hub.add(REPO, model())
    for path in place.pulled("--all").rglob("*"):
        if path.is_file():
            assert not path.stat().st_mode & (stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def test_revisions_share_blobs(place: Place, hub: FakeHub) -> None:
    files = model()
    first = hub.add(REPO, files)
    place.pulled()
    second = hub.add(REPO, {**files, "config.json": b'{"new": 1}'}, revision="refs/pr/1")
    hub.forget()
    snapshot = place.pulled(repo=f"{REPO}@refs/pr/1")
    assert [request.path.rsplit("/", 1)[1] for request in hub.data_requests()] == ["config.json"]
    assert snapshot.name == second != first
    assert (place.repository / "refs/refs/pr/1").read_text() == second
    assert (place.repository / "refs/main").read_text() == first


def test_many_pages(place: Place, hub: FakeHub) -> None:
    hub.page_size = 3
    files = {**model(), **{f"part{number}.json": b"[%d]" % number for number in range(20)}}
    hub.add(REPO, files)
    assert files_of(place.pulled()) == SELECTED | {name for name in files if name.startswith("part")}


def test_dry_run_writes_nothing(place: Place, hub: FakeHub) -> None:
    hub.add(REPO, model())
    result = place.pull("--dry-run")
    assert result.returncode == 0 and result.stdout == ""
    assert "model-00001-of-00002.safetensors" in result.stderr and "7 files" in result.stderr
    assert hub.data_requests() == [] and not place.cache.exists()


def test_large_file_in_pieces(place: Place, hub: FakeHub) -> None:
    """Two pieces and a bit, over several connections."""
    content = bytes_of(70_000_001)
    hub.add(REPO, {"config.json": b"{}", "model.safetensors": content})
    assert (place.pulled() / "model.safetensors").read_bytes() == content
    ranges = sorted(request.headers["range"] for request in hub.requests if request.role == "cdn")
    piece = 32 << 20
    assert ranges == [f"bytes=0-{piece - 1}", f"bytes={piece}-{2 * piece - 1}", f"bytes={2 * piece}-70000000"]
    # The redirect is asked for once, not for each piece.
    assert sum("/resolve/" in request.path and "safetensors" in request.path for request in hub.requests) == 1


def test_empty_file_and_equal_files(place: Place, hub: FakeHub) -> None:
    same = bytes_of(5000)
    hub.add(REPO, {"config.json": b"", "a.safetensors": same, "b.safetensors": same})
    snapshot = place.pulled()
    assert (snapshot / "config.json").read_bytes() == b""
    assert (snapshot / "a.safetensors").read_bytes() == (snapshot / "b.safetensors").read_bytes() == same
    assert sum(request.role == "cdn" for request in hub.requests) == 1


def test_a_damaged_blob_is_fetched_again(place: Place, hub: FakeHub) -> None:
    """What another tool left is hashed before it is believed."""
    hub.add(REPO, model())
    snapshot = place.pulled()
    (snapshot / "nibble.lock.json").unlink()
    blob = (snapshot / "model-00001-of-00002.safetensors").resolve()
    content = blob.read_bytes()
    blob.write_bytes(b"x" + content[1:])
    result = place.pull()
    assert result.returncode == 0 and "damaged" in result.stderr and "1 fetched now" in result.stderr
    assert blob.read_bytes() == content


def test_token_goes_to_the_hub_alone(place: Place, hub: FakeHub) -> None:
    hub.token = "hf_secret"
    hub.add(REPO, model())
    result = place.pull(HF_TOKEN="hf_secret")
    assert result.returncode == 0 and "hf_secret" not in result.stderr + result.stdout
    assert all(("authorization" in request.headers) == (request.role == "hub") for request in hub.requests)
    assert any(request.role == "cdn" for request in hub.requests)


def test_token_file(place: Place, hub: FakeHub) -> None:
    hub.token = "hf_other"
    hub.add(REPO, model())
    (place.home / "token").write_text("hf_other\n")
    place.pulled()


@pytest.mark.parametrize("token", ["", "wrong"])
def test_gated(place: Place, hub: FakeHub, token: str) -> None:
    hub.token = "hf_secret"
    hub.add(REPO, model())
    result = place.pull(HF_TOKEN=token)
    assert result.returncode == 1
    assert "HF_TOKEN" in result.stderr and "gated" in result.stderr and f"{hub.url}/{REPO}" in result.stderr
    assert len(hub.requests) == 1  # asking again would not help


def test_a_token_with_a_line_break_is_not_sent(place: Place, hub: FakeHub) -> None:
    result = place.pull(HF_TOKEN="abc\r\nX-Evil: 1")
    assert result.returncode == 2 and "HF_TOKEN" in result.stderr and "abc" not in result.stderr
    assert hub.requests == []


def test_no_such_repository_or_revision(place: Place, hub: FakeHub) -> None:
    hub.add(REPO, model())
    nobody = place.pull(repo="no/body")
    assert nobody.returncode == 2 and "no/body" in nobody.stderr and "no such repository" in nobody.stderr
    revision = place.pull(repo=f"{REPO}@v9")
    assert revision.returncode == 2 and f"{REPO}@v9" in revision.stderr and "no such revision" in revision.stderr


@pytest.mark.parametrize("name", ["name", "a/b/c", "../x", "a/..", "a/b@", "a/b@../x", "a/b@x y", "a--b/c", "-a/b", "a/b@-x"])
def test_names_that_are_none(place: Place, hub: FakeHub, name: str) -> None:
    result = place.run("pull", "--", name)
    assert result.returncode == 2 and "OWNER/NAME" in result.stderr
    assert hub.requests == []


def test_offline(place: Place, hub: FakeHub) -> None:
    hub.add(REPO, model())
    result = place.pull(HF_HUB_OFFLINE="1")
    assert result.returncode == 1 and "HF_HUB_OFFLINE" in result.stderr and hub.requests == []
    snapshot = place.pulled()
    hub.forget()
    assert place.pulled(HF_HUB_OFFLINE="1") == snapshot and hub.requests == []
    (snapshot / "model-00002-of-00002.safetensors").unlink()
    result = place.pull(HF_HUB_OFFLINE="1")
    assert result.returncode == 1 and "model-00002-of-00002.safetensors" in result.stderr


def test_a_hub_that_is_busy_or_gone_does_not_take_the_cache_away(place: Place, hub: FakeHub) -> None:
    hub.add(REPO, model())
    snapshot = place.pulled()
    hub.fault("api", status(429, times=float("inf"), Retry_After="1"))
    result = place.pull("--retries", "1")
    assert result.returncode == 0 and result.stdout.strip() == str(snapshot) and "429" in result.stderr
    result = place.pull("--retries", "0", HF_ENDPOINT="http://127.0.0.1:9")
    assert result.returncode == 0 and result.stdout.strip() == str(snapshot)
    assert place.pull("--retries", "0", repo="not/here", HF_ENDPOINT="http://127.0.0.1:9").returncode == 1


def test_pulled_model_is_found(place: Place, hub: FakeHub) -> None:
    """`run` finds it under its name, at a revision too, and refuses it for what it is."""
    commit = hub.add(REPO, model())
    place.pulled()
    for name in (REPO, f"{REPO}@main", f"{REPO}@{commit}"):
        result = place.run("run", name, "text")
        assert result.returncode == 3 and commit in result.stderr, result.stderr
    assert place.run("run", f"{REPO}@other", "text").returncode == 2


def test_other_tools_find_it(place: Place, hub: FakeHub) -> None:
    library = pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")
    commit = hub.add(REPO, model())
    snapshot = place.pulled()
    for revision in ("main", commit):
        found = library.snapshot_download(REPO, revision=revision, cache_dir=place.cache, local_files_only=True)
        assert Path(found) == snapshot
    path = library.hf_hub_download(REPO, "encoding/encoding_dsv4.py", cache_dir=place.cache, local_files_only=True)
    assert Path(path) == snapshot / "encoding/encoding_dsv4.py"
    assert library.try_to_load_from_cache(REPO, "pytorch_model.bin", cache_dir=place.cache) is None
    report = library.scan_cache_dir(place.cache)
    assert report.warnings == []
    repository, = report.repos
    assert repository.repo_id == REPO and repository.repo_type == "model"
    revision, = repository.revisions
    assert revision.commit_hash == commit and revision.refs == {"main"}
    assert {str(file.file_path.relative_to(snapshot)) for file in revision.files} == SELECTED | {"nibble.lock.json"}


def test_what_other_tools_fetched_is_not_fetched_again(place: Place, hub: FakeHub) -> None:
    library = pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")
    del library
    files = model()
    commit = hub.add(REPO, files)
    # As that library lays it out, without our lock file.
    for name, content in files.items():
        file = hub.file(name)
        blob = place.repository / "blobs" / (file.sha256 if file.lfs else file.git_blob)
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(content)
    snapshot = place.pulled()
    assert snapshot.name == commit and hub.data_requests() == []


def test_two_pulls_at_once(place: Place, hub: FakeHub) -> None:
    hub.add(REPO, model())
    go = threading.Event()
    hub.fault("model-00001-of-00002.safetensors", hold(go))
    first, second = place.start("pull", REPO), place.start("pull", REPO)
    errors = {first.pid: "", second.pid: ""}

    def read(process: subprocess.Popen[str]) -> None:
        for line in process.stderr:
            errors[process.pid] += line
            if "another pull" in line:
                go.set()

    readers = [threading.Thread(target=read, args=(one,)) for one in (first, second)]
    for reader in readers:
        reader.start()
    outputs = [one.stdout.read() for one in (first, second)]
    for one, reader in zip((first, second), readers):
        reader.join()
        assert one.wait() == 0, errors
    assert sum("another pull" in text for text in errors.values()) == 1
    assert outputs[0] == outputs[1] != ""
    assert sum(request.role == "cdn" for request in hub.requests) == 2


def test_blobs_have_their_hash(place: Place, hub: FakeHub) -> None:
    hub.add(REPO, model(shards=12, shard_bytes=50_000))
    place.pulled("--connections", "3")
    for blob in (place.repository / "blobs").iterdir():
        content = blob.read_bytes()
        names = {hashlib.sha256(content).hexdigest(), hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()}
        assert blob.name in names


def test_help() -> None:
    text = subprocess.run([binary(), "pull", "--help"], capture_output=True, text=True, check=True).stdout
    for word in ("--include", "--all", "--dry-run", "--connections", "--retries", "--timeout", "HF_TOKEN", "HF_ENDPOINT"):
        assert word in text


def test_no_libcurl_no_network() -> None:
    """Commands that need no network do not load it."""
    trace = subprocess.run([binary(), "--version"], capture_output=True, text=True, env={"LD_DEBUG": "files"}).stderr
    assert "libcurl" not in trace and "libc.so" in trace


def test_progress_on_a_terminal(place: Place, hub: FakeHub) -> None:
    hub.add(REPO, {"config.json": b"{}", "model.safetensors": bytes_of(2_000_000)})
    hub.fault("model.safetensors", slow(1_500_000))
    master, terminal = pty.openpty()
    with subprocess.Popen([binary(), "pull", REPO], stdout=subprocess.PIPE, stderr=terminal, env=place.env) as process:
        os.close(terminal)
        text = b""
        try:
            while piece := os.read(master, 65536):
                text += piece
        except OSError:
            pass  # the terminal is gone with the process
        os.close(master)
    assert process.returncode == 0
    assert re.search(rb"\r\x1b\[Kpull \[#+\.+\] +\d+ %, \d\.\d\d of 2\.00 MB, \d\.\d MB/s, \d+ s left", text), text


def test_https(tmp_path: Path) -> None:
    """A certificate that nobody vouches for is refused, and the token with it."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl program")
    subprocess.run([openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1", "-addext",
                    "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate], check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    with contextlib.closing(FakeHub(tls)) as hub:
        files = model()
        hub.add(REPO, files)
        place = Place(tmp_path, hub)
        result = place.pull(HF_TOKEN="hf_secret")
        assert result.returncode == 1 and "not trusted" in result.stderr and hub.requests == []
        snapshot = place.pulled(HF_TOKEN="hf_secret", SSL_CERT_FILE=str(certificate))
        assert (snapshot / "model-00001-of-00002.safetensors").read_bytes() == files["model-00001-of-00002.safetensors"]
        # Never down to http, where the token and the bytes could be read.
        with contextlib.closing(FakeHub()) as plain:
            hub.fault("redirect model-00001-of-00002.safetensors",
                      lambda handler, _: handler.reply(302, Location=plain.url + "/x") or True)
            (snapshot / "model-00001-of-00002.safetensors").resolve().unlink()
            result = place.pull(SSL_CERT_FILE=str(certificate))
            assert result.returncode == 1 and "from https to" in result.stderr and plain.requests == []


def test_many_small_files_over_many_connections(place: Place, hub: FakeHub) -> None:
    """Each is over in a moment: who claims, who finishes and who is finished already meet all the time."""
    files = {f"{number}.json": b"%d" % number for number in range(400)}
    hub.add(REPO, files)
    snapshot = place.pulled("--connections", "32")
    assert all((snapshot / name).read_bytes() == content for name, content in files.items())
    assert len(hub.data_requests()) == len(files)
