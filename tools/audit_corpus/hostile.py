"""Checkpoints that must be refused, and with which codes."""
from __future__ import annotations

import json
import os
import socket
import struct
from pathlib import Path

import payloads as p
from mini import CONFIG, ONE, SHARDS, Case, Codes, base, git_blob, index, lock, safetensors, sha256, spoiled
from templates import IMPORTS, WALKS

INDEX = "model.safetensors.index.json"
NEITHER: Codes = {"": ["no_weights"]}


def one_file(case: str, name: str, data: bytes, *codes: str) -> Case:
    """base() with one file more, or another in its place."""
    return Case(case, spoiled({name: data}), {name: list(codes)})


def code_cases() -> list[Case]:
    only_pickle = spoiled({name: None for name in [*SHARDS, INDEX]} | {"pytorch_model.bin": p.pickled(2)})
    broken_zip = p.torch_zip()[:-10]
    cases = [Case("pickle_alone", only_pickle, {"pytorch_model.bin": ["pickle"], "": ["no_weights"]})]
    cases += [one_file(f"pickle_{name.replace('.', '_').lower()}", name, p.pickled(2), "pickle")
              for name in ["extra.pt", "extra.pth", "extra.ckpt", "extra.pkl", "MODEL.BIN", "optimizer/state.pt"]]
    cases += [
        one_file("pickle_by_name_only", "training_args.bin", b"nothing of the kind", "pickle"),
        one_file("pickle_empty", "rng_state.pth", b"", "empty_file", "pickle"),
        *[one_file(f"pickle_protocol_{n}_unnamed", "weights.dat", p.pickled(n), "pickle") for n in range(6)],
        one_file("pickle_as_text", "notes.txt", p.TEXT_PICKLE, "pickle"),
        one_file("pickle_inst_as_license", "LICENSE", p.INST_PICKLE, "pickle"),
        one_file("pickle_broken_after_call", "vocab.model", p.BROKEN_AFTER_CALL, "pickle"),
        one_file("pickle_as_config", "config.json", p.pickled(4), "pickle"),
        one_file("pickle_as_shard", SHARDS[0], p.pickled(4), "pickle"),
        one_file("pickle_torch_zip", "weights.dat", p.torch_zip(), "pickle"),
        one_file("pickle_torch_zip_as_shard", SHARDS[1], p.torch_zip(), "pickle"),
        one_file("pickle_numpy_objects", "bias.npy", p.NUMPY_OBJECTS, "pickle"),
        one_file("archive_tar", "weights.dat", p.torch_tar(), "archive"),
        one_file("archive_tar_pth", "weights.pth", p.torch_tar(), "archive", "pickle"),
        one_file("archive_7z", "weights.dat", p.SEVEN_ZIP, "archive"),
        one_file("archive_rar", "assets/pictures.rar", p.RAR, "archive"),
        one_file("archive_gzip_pickle", "weights.dat", b"\x1f\x8b\x08\0\0\0\0\0\0\x03" + b"\0" * 20, "archive"),
        one_file("archive_xz_as_readme", "README.md", p.XZ, "archive"),
        one_file("archive_zip", "data.zip", p.harmless_zip(), "archive"),
        one_file("archive_zip_broken", "weights.dat", broken_zip, "archive"),
        one_file("archive_behind_picture", "assets/logo.png", p.PNG + p.torch_zip(), "archive"),
        one_file("archive_behind_weights", SHARDS[0], safetensors({"a": ONE}, tail=p.torch_zip()), "archive"),
        one_file("binary_elf", "libops.so", p.ELF, "binary"),
        one_file("binary_elf_as_vocabulary", "tokenizer.model", p.ELF, "binary"),
        one_file("binary_elf_as_bin", "kernel.bin", p.ELF, "binary"),
        one_file("binary_windows", "setup.exe", p.PE, "binary"),
        one_file("binary_mach_o", "run", p.MACH_O, "binary"),
        one_file("binary_wasm", "plugin.dat", p.WASM, "binary"),
        one_file("binary_java", "README.md", p.JAVA_CLASS, "binary"),
        one_file("binary_pyc", "inference/__pycache__/model.cpython-311.pyc", p.PYC, "binary"),
        one_file("binary_object_archive", "libx.a", p.OBJECT_ARCHIVE, "binary"),
        one_file("script_as_license", "LICENSE", b"#!/bin/sh\ntouch x\n", "disguised_script"),
        one_file("script_as_config", "config.json", b"#!/usr/bin/env python3\n", "disguised_script"),
        one_file("script_without_ending", "install", b"#!/bin/bash\n", "disguised_script"),
        one_file("keras", "model.h5", p.HDF5, "code_format"),
        one_file("keras_unnamed", "weights.dat", p.HDF5, "code_format"),
        one_file("saved_model", "saved_model.pb", b"\x08\x01\x12\x02", "code_format"),
        one_file("engine", "rank0.engine", b"ftrt" + b"\0" * 32, "code_format"),
    ]
    return cases


def loader_cases() -> list[Case]:
    def config(**more: object) -> bytes:
        return json.dumps({**CONFIG, **more}).encode()

    with_file = spoiled({"config.json": config(auto_map={"AutoModel": "modeling_x.Model", "AutoConfig": "configuration_x.C"}),
                         "modeling_x.py": b"open('MARKER', 'w')\n", "other.py": b"pass\n"})
    return [
        Case("auto_map", with_file, {"config.json": ["auto_map"], "modeling_x.py": ["auto_map", "python_code"],
                                     "other.py": ["python_code"]}),
        one_file("auto_map_of_tokenizer", "tokenizer_config.json",
                 b'{"auto_map": {"AutoTokenizer": [null, "tokenization_x.Tokenizer"]}}', "auto_map"),
        one_file("auto_map_elsewhere", "config.json", config(auto_map={"AutoModel": "other/repository--modeling.Model"}), "auto_map"),
        one_file("auto_map_nested", "config.json", config(text_config={"deep": [{"auto_map": {"AutoModel": "m.M"}}]}), "auto_map"),
        one_file("auto_map_spelled", "config.json", config()[:-1] + b', "auto\\u005fmap": {"AutoModel": "m.M"}}', "auto_map"),
        one_file("auto_map_twice", "config.json", b'{"auto_map": {}, "a": 1, "auto_map": {"AutoModel": "m.M"}}', "auto_map"),
        one_file("custom_pipelines", "config.json", config(custom_pipelines={"x": {"impl": "pipeline.X", "pt": ["AutoModel"]}}), "code_reference"),
        one_file("hydra_target", "config.json", config(model={"_target_": "os.system", "command": "id"}), "code_reference"),
        one_file("hub_kernel", "config.json", config(_attn_implementation="someone/attention-kernel"), "code_reference"),
    ]


def template_cases() -> list[Case]:
    def in_config(template: object) -> bytes:
        return json.dumps({"chat_template": template}).encode()

    walk, name = "template_attribute_walk", "tokenizer_config.json"
    cases = [one_file(f"template_{case}", name, in_config(text), walk) for case, text in WALKS.items()]
    cases += [one_file(f"template_{case}", name, in_config(text), "template_import") for case, text in IMPORTS.items()]
    attack = WALKS["attribute"]
    return cases + [
        one_file("template_in_a_list", name, in_config([{"name": "default", "template": "x"}, {"name": "tool_use", "template": attack}]), walk),
        one_file("template_by_name", name, in_config({"default": attack}), walk),
        one_file("template_spelled_in_json", name, b'{"chat_template": "{{ x.\\u005f\\u005fclass__ }}"}', walk),
        one_file("template_file", "chat_template.jinja", attack.encode(), walk),
        one_file("template_json_file", "chat_template.json", in_config(attack), walk),
        one_file("template_in_tokenizer", "tokenizer.json", json.dumps({"chat_template": attack}).encode(), walk),
        one_file("template_additional", "additional_chat_templates/tools.jinja", attack.encode(), walk),
        one_file("template_not_utf8", "chat_template.jinja", b"{{ 'x\xff' }}", "invalid_utf8"),
        one_file("template_huge", "chat_template.jinja", b" " * (3 << 20), "too_large"),
    ]


def path_cases() -> list[Case]:
    def shard_name(case: str, name: str) -> Case:
        return one_file(f"index_{case}", INDEX, index({"a": name, "b": SHARDS[1], "c": SHARDS[1]}), "path_traversal")

    def link(case: str, name: str, target: str, code: str, replaces: bool = False) -> Case:
        def after(folder: Path) -> None:
            (folder.parent / "outside.json").write_bytes(b"{}")
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to(target)

        assert not replaces or name in base()
        return Case(f"link_{case}", base(), {name: [code]}, after)

    def special(case: str, name: str, make: object) -> Case:
        def after(folder: Path) -> None:
            (folder / name).unlink(missing_ok=True)
            make(folder / name)  # type: ignore[operator]

        return Case(f"special_{case}", base(), {name: ["special_file"]}, after)

    def make_socket(path: Path) -> None:
        here = os.getcwd()
        os.chdir(path.parent)  # a socket's path has at most 107 bytes
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
        os.chdir(here)

    def blob_of_another(folder: Path) -> None:
        other = folder.parents[2] / "other-repository" / "blobs"
        other.mkdir(parents=True)
        (other / "x").write_bytes(b"{}")
        (folder / "config.json").unlink()
        (folder / "config.json").symlink_to("../../../other-repository/blobs/x")

    def blob_missing(folder: Path) -> None:
        (folder / SHARDS[0]).resolve().unlink()

    def folder_link(folder: Path) -> None:
        (folder / "encoding").symlink_to("/etc")

    def inner_link(folder: Path) -> None:
        (folder / "sub").mkdir()
        (folder / "sub" / "real.json").write_bytes(b"{}")
        (folder / "extra.json").symlink_to("sub/real.json")

    def loop(folder: Path) -> None:
        (folder / "again").symlink_to(".")

    return [
        shard_name("parent", "../../other/model-00001.safetensors"),
        shard_name("absolute", "/etc/model.safetensors"),
        shard_name("subfolder", "sub/dir.safetensors"),
        shard_name("backslash", "..\\model.safetensors"),
        shard_name("nul", SHARDS[0] + "\0"),
        shard_name("dots", ".."),
        link("to_parent", "extra.json", "../outside.json", "link_escapes"),
        link("config_to_parent", "config.json", "../outside.json", "link_escapes", replaces=True),
        link("to_etc", "extra.txt", "/etc/passwd", "link_escapes"),
        link("shard_to_device", SHARDS[0], "/dev/zero", "link_escapes"),
        link("broken", "extra.json", "nowhere.json", "link_broken"),
        link("to_itself", "extra.json", "extra.json", "link_broken"),
        Case("link_folder_to_etc", base(), {"encoding": ["link_escapes"]}, folder_link),
        Case("link_into_subfolder", base(), {"extra.json": ["link_refused"]}, inner_link),
        Case("link_folder_loop", base(), {"again": ["link_refused"]}, loop),
        Case("hub_link_to_other_repository", base(), {"config.json": ["link_escapes"]}, blob_of_another, snapshot=True, no_hashes=False),
        Case("hub_blob_missing", base(), {SHARDS[0]: ["link_broken"]}, blob_missing, snapshot=True, no_hashes=False),
        special("pipe", "extra.json", os.mkfifo),
        special("pipe_as_config", "config.json", os.mkfifo),
        special("pipe_as_shard", SHARDS[0], os.mkfifo),
        special("pipe_as_index", INDEX, os.mkfifo),
        special("socket", "server.sock", make_socket),
        one_file("name_terminal_escape", "\x1b[2J\x1b[31mREADME.md", b"x", "bad_name"),
        one_file("name_newline", "a\nok  1  b.txt", b"x", "bad_name"),
        one_file("name_right_to_left", "photo\u202egnp.txt", b"x", "bad_name"),
        one_file("name_zero_width", "config\u200b.txt", b"x", "bad_name"),
        one_file("name_not_utf8", os.fsdecode(b"caf\xe9.txt"), b"x", "bad_name"),
        one_file("name_backslash", "..\\..\\x.txt", b"x", "bad_name"),
        one_file("name_trailing_blank", "config.txt ", b"x", "bad_name"),
        Case("name_case_collision", spoiled({"CONFIG.json": b"{}"}), {"config.json": ["case_collision"]}),
        Case("folders_too_deep", spoiled({"/".join("d" * 40) + "/x.txt": b""}), {"": ["too_many_files"]}),
    ]


def whole_cases() -> list[Case]:
    first, second = SHARDS
    entry = '{"%s":{"dtype":"%s","shape":[%d],"data_offsets":[%d,%d]}}'
    overlap = '{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},"z":{"dtype":"F32","shape":[4],"data_offsets":[8,24]}}'
    twice = '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}}'
    good = safetensors({"a": ONE})
    no_index = {INDEX: None}
    return [
        one_file("lfs_shard", first, p.LFS_POINTER, "lfs_pointer"),
        one_file("lfs_tokenizer", "tokenizer.json", p.LFS_POINTER, "lfs_pointer"),
        Case("lfs_everything", {name: p.LFS_POINTER for name in base()},
             {name: ["lfs_pointer"] for name in base()}),
        one_file("shard_empty", first, b"", "empty_file"),
        one_file("shard_cut_in_data", first, good[:-5], "truncated"),
        one_file("shard_cut_in_header", first, good[:30], "truncated"),
        one_file("shard_of_five_bytes", first, good[:5], "truncated"),
        one_file("shard_garbage", first, b"\xfe" * 200, "safetensors_broken"),
        one_file("shard_header_length", first, struct.pack("<Q", 1 << 62) + b"{}", "safetensors_broken"),
        one_file("shard_header_json", first, safetensors({}, header='{"a":'), "safetensors_broken"),
        one_file("shard_header_deep", first, safetensors({}, header='{"a":' + "[" * 100000), "safetensors_broken"),
        one_file("shard_overlap", first, safetensors({"a": ONE, "z": ONE[:8]}, header=overlap), "safetensors_broken"),
        one_file("shard_tensor_twice", first, safetensors({"a": ONE}, header=twice), "safetensors_broken"),
        one_file("shard_unknown_dtype", first, safetensors({"a": ONE}, header=entry % ("a", "F3_E9", 4, 0, 16)), "unknown_dtype"),
        Case("two_shards_damaged", spoiled({first: good[:-1], second: b"\xfe" * 50}),
             {first: ["truncated"], second: ["safetensors_broken"]}),
        Case("tensor_in_two_shards", spoiled({second: safetensors({"a": ONE, "b": ONE, "c": ONE})}),
             {second: ["index_mismatch", "duplicate_tensor"], INDEX: ["total_size"]}),
        Case("tensor_in_two_shards_without_index", spoiled({second: good, **no_index}), {second: ["duplicate_tensor"]}),
        Case("tensor_not_listed", spoiled({first: safetensors({"a": ONE, "d": ONE})}),
             {first: ["index_mismatch"], INDEX: ["total_size"]}),
        Case("tensor_listed_elsewhere", spoiled({INDEX: index({"a": second, "b": second, "c": second})}),
             {first: ["extra_shard"], INDEX: ["index_mismatch"]}),
        Case("tensor_absent", spoiled({INDEX: index({"a": first, "b": second, "c": second, "d": second})}),
             {INDEX: ["index_mismatch"]}),
        Case("shard_missing", spoiled({first: None}), {INDEX: ["missing_shard"]}),
        Case("shard_missing_without_index", spoiled({first: None, **no_index}), {"": ["missing_shard"]}),
        Case("shards_all_missing", spoiled({first: None, second: None}), {INDEX: ["missing_shard"], "": ["no_weights"]}),
        Case("shards_without_tensors", spoiled({first: None, second: None, **no_index, "model.safetensors": safetensors({}, header="{}")}), NEITHER),
        one_file("index_broken", INDEX, b'{"weight_map": {"a": ', "json_broken"),
        one_file("index_without_map", INDEX, b'{"metadata": {}}', "index_broken"),
        one_file("index_map_empty", INDEX, b'{"weight_map": {}}', "index_broken"),
        one_file("index_names_pickle", INDEX, index({"a": "pytorch_model.bin"}), "index_broken"),
        one_file("index_tensor_twice", INDEX, b'{"weight_map": {"a": "%s", "a": "%s"}}' % (first.encode(), second.encode()), "index_broken"),
        one_file("index_deep", INDEX, b'{"weight_map": ' + b"[" * 200000, "json_nested"),
        one_file("config_broken", "config.json", b'{"hidden_size": 64', "json_broken"),
        one_file("config_text_after", "config.json", b'{"hidden_size": 64} {"hidden_size": 65}', "json_broken"),
        one_file("config_no_object", "config.json", b'"config"', "json_broken"),
        one_file("config_lone_surrogate", "config.json", b'{"a": "\\ud83d"}', "json_broken"),
        one_file("config_empty", "config.json", b"", "empty_file"),
        one_file("config_deep", "config.json", b'{"a":' * 100000, "json_nested"),
        one_file("config_closes_too_often", "config.json", b"]" * 1000000, "json_nested"),
        one_file("config_not_utf8", "config.json", b'{"model_type": "\xff\xfe"}', "invalid_utf8"),
        one_file("config_huge", "config.json", b'{"a": "' + b"x" * (17 << 20) + b'"}', "too_large"),
        Case("config_missing", spoiled({"config.json": None}), {"": ["missing_file"]}),
        Case("tokenizer_missing", spoiled({"tokenizer.json": None}), {"": ["missing_file"]}),
        Case("nothing", {}, {"": ["missing_file", "no_weights"]}),
    ]


def hash_cases() -> list[Case]:
    first = SHARDS[0]
    files = base()
    flipped = bytearray(files[first])
    flipped[-1] ^= 1

    def locked(case: str, codes: Codes, lock_file: bytes, changes: dict[str, bytes | None] | None = None) -> Case:
        return Case(case, spoiled({"nibble.lock.json": lock_file, **(changes or {})}), codes, no_hashes=False)

    def noted(case: str, name: str, etag: str) -> Case:
        note = f"{'0' * 40}\n{etag}\n1764500000.5\n".encode()
        return Case(case, spoiled({f".cache/huggingface/download/{name}.metadata": note}), {name: ["hash_mismatch"]}, no_hashes=False)

    def spoil_blob(folder: Path) -> None:
        (folder / first).resolve().write_bytes(bytes(flipped))

    def spoil_small_blob(folder: Path) -> None:
        (folder / "README.md").resolve().write_bytes(b"# Another\n")

    return [
        locked("lock_sha256_differs", {first: ["hash_mismatch"]}, lock(files), {first: bytes(flipped)}),
        locked("lock_git_blob_differs", {"README.md": ["hash_mismatch"]}, lock(files), {"README.md": b"# A miniaturE\n"}),
        locked("lock_size_differs", {"README.md": ["size_mismatch"]}, lock(files), {"README.md": b"# Longer than before\n"}),
        locked("lock_file_gone", {"": ["missing_file"]}, lock(files), {"LICENSE": None}),
        locked("lock_traversal", {"nibble.lock.json": ["path_traversal"]}, lock(files, **{"../../x": {"size": 1}})),
        locked("lock_absolute", {"nibble.lock.json": ["path_traversal"]}, lock(files, **{"/etc/passwd": {"size": 1}})),
        locked("lock_bad_hex", {"nibble.lock.json": ["lock_broken"]}, lock(files, LICENSE={"size": 11, "sha256": "abc"})),
        locked("lock_bad_size", {"nibble.lock.json": ["lock_broken"]}, lock(files, LICENSE={"size": -1, "git_blob": git_blob(files["LICENSE"])})),
        locked("lock_other_version", {"nibble.lock.json": ["lock_broken"]}, lock(files).replace(b'"version": 1', b'"version": 9')),
        Case("lock_cut", spoiled({"nibble.lock.json": lock(files)[:60]}),
             {"nibble.lock.json": ["lock_broken"], **{name: ["not_in_lock"] for name in files}}, no_hashes=False),
        Case("lock_deep", spoiled({"nibble.lock.json": b"[" * 100000}),
             {"nibble.lock.json": ["lock_broken"], **{name: ["not_in_lock"] for name in files}}, no_hashes=False),
        Case("hub_blob_differs", files, {first: ["hash_mismatch"]}, spoil_blob, snapshot=True, no_hashes=False),
        Case("hub_small_blob_differs", files, {"README.md": ["hash_mismatch"]}, spoil_small_blob, snapshot=True, no_hashes=False),
        noted("hub_note_sha256_differs", first, sha256(b"other")),
        noted("hub_note_git_blob_differs", "config.json", git_blob(b"other")),
    ]


def cases() -> list[Case]:
    return code_cases() + loader_cases() + template_cases() + path_cases() + whole_cases() + hash_cases()
