"""Checkpoints that must pass, with the notes they get."""
from __future__ import annotations

import json
import os
from pathlib import Path

import payloads as p
from mini import CONFIG, ONE, SHARDS, Case, Codes, Files, base, git_blob, index, lock, safetensors, sha256, spoiled
from templates import HARMLESS


def official() -> Files:
    """The layout of deepseek-ai/DeepSeek-V4-Flash: 46 shards, an encoder and an inference example in Python, pictures, a PDF."""
    shards = [f"model-{n:05}-of-00046.safetensors" for n in range(1, 47)]
    files = {shard: safetensors({f"layers.{n}.x": ONE}) for n, shard in enumerate(shards)}
    config = {**CONFIG, "expert_dtype": "fp4", "num_nextn_predict_layers": 1, "rope_scaling": {"type": "yarn", "factor": 16},
              "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}}
    chat = json.dumps([{"role": "user", "content": "What is __class__ in Python? Show import os."}]).encode()
    return files | {
        "config.json": json.dumps(config, indent=2).encode(),
        "generation_config.json": b'{"do_sample": true, "temperature": 1.0, "top_p": 1.0, "transformers_version": "4.57.1"}',
        "tokenizer.json": base()["tokenizer.json"],
        "tokenizer_config.json": b'{"add_bos_token": false, "model_max_length": 1048576, "tokenizer_class": "PreTrainedTokenizerFast"}',
        "model.safetensors.index.json": index({f"layers.{n}.x": shard for n, shard in enumerate(shards)}, 46 * 16),
        "LICENSE": b"MIT License\n",
        "README.md": b"---\nlicense: mit\nlibrary_name: transformers\n---\n# Model\n```python\nimport os\n```\n",
        ".gitattributes": b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n",
        "DeepSeek_V4.pdf": p.PDF,
        "assets/benchmark.png": p.PNG,
        "assets/logo.svg": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        "encoding/README.md": b"# Encoding\n",
        "encoding/encoding_dsv4.py": b"bos_token = '<bos>'\n\ndef encode_messages(messages):\n    return ''\n",
        "encoding/test_encoding_dsv4.py": b"#!/usr/bin/env python3\nimport encoding_dsv4\n",
        "encoding/tests/test_input_1.json": chat,
        "encoding/tests/test_output_1.txt": b"out\n",
        "inference/README.md": b"# Inference\n",
        "inference/config.json": b'{"dim": 4096, "n_layers": 43}',
        "inference/convert.py": b"import os\n",
        "inference/generate.py": b"#!/usr/bin/env python\nimport torch\n",
        "inference/kernel.py": b"import tilelang\n",
        "inference/model.py": b"import torch\n",
        "inference/requirements.txt": b"torch\n",
    }


OFFICIAL_NOTES: Codes = {
    "encoding/encoding_dsv4.py": ["encoder_data"], "encoding/test_encoding_dsv4.py": ["encoder_data"],
    **{f"inference/{name}.py": ["python_code"] for name in ("convert", "generate", "kernel", "model")}}


def noted(name: str, case: str, data: bytes, *codes: str) -> Case:
    return Case(case, spoiled({name: data}), {name: list(codes)})


def cases() -> list[Case]:
    files = base()
    first, second = SHARDS
    single = spoiled({first: None, second: None, "model.safetensors.index.json": None, "model.safetensors": safetensors({"a": ONE})})
    no_index = spoiled({"model.safetensors.index.json": None})

    def hub_notes() -> Files:
        notes = {}
        for name, data in files.items():
            etag = sha256(data) if name.endswith(".safetensors") else git_blob(data)
            notes[f".cache/huggingface/download/{name}.metadata"] = f"{'0' * 40}\n{etag}\n1764500000.5\n".encode()
            notes[f".cache/huggingface/download/{name}.lock"] = b""
        return files | notes | {".cache/huggingface/.gitignore": b"*", ".cache/huggingface/CACHEDIR.TAG": b"Signature: 8a477f597d28d172789f06886806bc55"}

    def hard_link(folder: Path) -> None:
        os.link(folder / first, folder.parent / "another-name")

    def inner_link(folder: Path) -> None:
        (folder / "LICENSE.txt").symlink_to("LICENSE")

    def deep_folder(folder: Path) -> None:
        (folder / "a" / "b" / "c").mkdir(parents=True)

    result = [
        Case("official_v4_flash", official(), OFFICIAL_NOTES),
        Case("official_v4_flash_in_hub_cache", official(), OFFICIAL_NOTES, snapshot=True, no_hashes=False),
        Case("official_v4_flash_locked", official() | {"nibble.lock.json": lock(official())}, OFFICIAL_NOTES, no_hashes=False),
        Case("miniature", files, {}),
        Case("hub_cache", files, {}, snapshot=True, no_hashes=False),
        Case("hub_download", hub_notes(), {}, no_hashes=False),
        Case("locked", files | {"nibble.lock.json": lock(files)}, {}, no_hashes=False),
        Case("locked_with_more", files | {"nibble.lock.json": lock(files), "notes.txt": b"mine"}, {"notes.txt": ["not_in_lock"]}, no_hashes=False),
        Case("single_file", single, {}),
        Case("single_file_and_another", single | {"other.safetensors": safetensors({"a": ONE})}, {"other.safetensors": ["extra_shard"]}),
        Case("shards_without_index", no_index, {}),
        Case("empty_folders", files, {}, deep_folder),
        Case("hard_link", files, {first: ["hard_link"]}, hard_link),
        Case("link_inside", files, {}, inner_link),
        Case("git_clone", files | {".git/config": b"[core]\n", ".git/hooks/post-checkout": b"#!/bin/sh\n"}, {"": ["git_folder"]}),
        # Lengths whose bytes look like the beginnings of a pickle and of a gzip file.
        Case("header_length_like_pickle", spoiled({first: safetensors({"a": ONE}, pad_to=0x280)}), {}),
        Case("header_length_like_gzip", spoiled({first: safetensors({"a": ONE}, pad_to=0x8B1F)}), {}),
        Case("header_length_like_script", spoiled({first: safetensors({"a": ONE}, pad_to=0x2123)}), {}),
        noted(first, "trailing_bytes", safetensors({"a": ONE}, tail=b"\0" * 7), "trailing_bytes"),
        noted("extra.safetensors", "extra_shard", safetensors({"a": ONE}), "extra_shard"),
        noted("draft/model.safetensors", "draft_in_subfolder", safetensors({"a": ONE}), "extra_shard"),
        noted("model.safetensors.index.json", "total_size", index({"a": first, "b": second, "c": second}, 1), "total_size"),
        noted("model-Q4.gguf", "gguf_beside", p.GGUF, "other_format"),
        noted("model.onnx", "onnx_beside", b"\x08\x08\x12\x07", "other_format"),
        noted("bias.npy", "numpy_floats", p.NUMPY_FLOATS, "other_format"),
        noted("config.json", "exl3", json.dumps({**CONFIG, "quantization_config": {"quant_method": "exl3"}}).encode(), "other_format"),
        noted("run.sh", "shell_script", b"#!/bin/sh\necho x\n", "script"),
        noted("example.ipynb", "notebook", b'{"cells": []}', "python_code"),
        noted("inference/__init__.py", "empty_python", b"", "python_code"),
        noted("notes.xyz", "unknown_file", b"hello", "unknown_file"),
        noted("weights.part", "partial_download", b"\0" * 100, "partial_download"),
        noted("assets/架构.png", "name_beyond_ascii", p.PNG, "non_ascii_name"),
        noted("assets/logo.png", "picture_as_lfs_pointer", p.LFS_POINTER, "lfs_pointer"),
        noted("encoding/tests/broken.json", "broken_test_data", b'{"messages": [', "json_broken"),
        noted("chat_template.jinja", "template_without_end", b"{{ messages[0].content", "template_broken"),
        Case("templates_by_name", spoiled({"tokenizer_config.json": json.dumps({"chat_template": [
            {"name": name, "template": text} for name, text in HARMLESS.items()]}).encode()}), {}),
    ]
    result += [Case(f"template_{name}", spoiled({"chat_template.jinja": text.encode()}), {}) for name, text in HARMLESS.items()]
    return result
