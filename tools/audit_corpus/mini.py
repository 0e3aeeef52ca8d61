"""A miniature checkpoint as a dictionary of files, to be spoiled and written."""
from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

Files = dict[str, bytes]
Codes = dict[str, list[str]]  # file name ("" is the checkpoint as a whole) -> codes, in any order


def safetensors(tensors: dict[str, bytes], pad_to: int = 8, tail: bytes = b"", header: str | None = None) -> bytes:
    """F32 vectors, one a tensor. `pad_to` is the header's length, or what it is a multiple of."""
    if header is None:
        entries, offset = {}, 0
        for name, data in tensors.items():
            entries[name] = {"dtype": "F32", "shape": [len(data) // 4], "data_offsets": [offset, offset + len(data)]}
            offset += len(data)
        header = json.dumps(entries)
    text = header.encode()
    length = pad_to if pad_to > 8 else -(-len(text) // pad_to) * pad_to
    assert len(text) <= length
    return struct.pack("<Q", length) + text.ljust(length) + b"".join(tensors.values()) + tail


def index(weight_map: dict[str, str], total: int | None = None) -> bytes:
    metadata = {} if total is None else {"total_size": total}
    return json.dumps({"metadata": metadata, "weight_map": weight_map}).encode()


def git_blob(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


CONFIG = {"architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4", "hidden_size": 64}
TOKENIZER = {"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": {"a": 0, "auto_map": 1, "__class__": 2}, "merges": []}}
SHARDS = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
ONE = struct.pack("<4f", 1, 2, 3, 4)


def base() -> Files:
    """What every case begins with: nothing to complain of."""
    return {
        "config.json": json.dumps(CONFIG).encode(),
        "generation_config.json": b'{"do_sample": true, "temperature": 1.0}',
        "tokenizer.json": json.dumps(TOKENIZER).encode(),
        "tokenizer_config.json": b'{"tokenizer_class": "PreTrainedTokenizerFast"}',
        SHARDS[0]: safetensors({"a": ONE}),
        SHARDS[1]: safetensors({"b": ONE, "c": ONE}),
        "model.safetensors.index.json": index({"a": SHARDS[0], "b": SHARDS[1], "c": SHARDS[1]}, 48),
        "README.md": b"# A miniature\n",
        "LICENSE": b"Apache-2.0\n",
    }


def lock(files: Files, **changes: object) -> bytes:
    """nibble.lock.json for `files`: SHA-256 for weights, Git blobs for the rest."""
    entries: dict[str, object] = {}
    for name, data in files.items():
        large = name.endswith(".safetensors")
        entries[name] = {"size": len(data), **({"sha256": sha256(data)} if large else {"git_blob": git_blob(data)})}
    entries.update(changes)
    return json.dumps({"version": 1, "repo": "owner/name", "revision": "0" * 40, "files": entries}).encode()


class Case:
    """One checkpoint: its files, what is done to the folder after they are written, and what the audit must say."""

    def __init__(self, name: str, files: Files, codes: Codes, after: Callable[[Path], None] | None = None,
                 snapshot: bool = False, no_hashes: bool = True):
        self.name, self.files, self.after, self.snapshot = name, files, after, snapshot
        self.codes = {file: sorted(set(found)) for file, found in codes.items()}
        if no_hashes:
            self.codes[""] = sorted({*self.codes.get("", []), "no_hashes"})

    def write(self, root: Path) -> Path:
        """Writes below `root`; returns the folder to audit."""
        folder = root / self.name
        if self.snapshot:
            return self._write_snapshot(folder)
        for name, data in self.files.items():
            path = os.fsencode(folder) + b"/" + os.fsencode(name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(data)
        folder.mkdir(parents=True, exist_ok=True)
        if self.after:
            self.after(folder)
        return folder

    def _write_snapshot(self, repository: Path) -> Path:
        """The hub cache: snapshots/REV/NAME is a link to blobs/HASH."""
        folder = repository / "snapshots" / ("5" * 40)
        (repository / "blobs").mkdir(parents=True)
        for name, data in self.files.items():
            blob = sha256(data) if name.endswith(".safetensors") else git_blob(data)
            (repository / "blobs" / blob).write_bytes(data)
            link = folder / name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(os.path.relpath(repository / "blobs" / blob, link.parent))
        if self.after:
            self.after(folder)
        return folder




def spoiled(changes: dict[str, bytes | None]) -> Files:
    """base() with files replaced, added, or (None) removed."""
    result = base()
    for name, data in changes.items():
        if data is None:
            del result[name]
        else:
            result[name] = data
    return result
