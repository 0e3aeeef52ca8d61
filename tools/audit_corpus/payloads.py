"""Bytes that would run code, were they loaded: all they would do is make a file called MARKER."""
from __future__ import annotations

import io
import pickle
import tarfile
import zipfile

MARKER = "nibble-audit-was-here"


class _Payload:
    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return (open, (MARKER, "w"))


def pickled(protocol: int) -> bytes:
    return pickle.dumps({"weights": [_Payload(), 1.5, "text"]}, protocol=protocol)


def torch_zip(inner: str = "archive/data.pkl") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(inner, pickled(2))
        archive.writestr("archive/data/0", b"\0" * 16)
    return out.getvalue()


def harmless_zip() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("notes.txt", "nothing")
    return out.getvalue()


def torch_tar() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        data = pickled(2)
        member = tarfile.TarInfo("pickle")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


# By hand, in the text form of protocol 0: GLOBAL, MARK, STRING, TUPLE, REDUCE, STOP.
TEXT_PICKLE = b"cio\nopen\n(S'" + MARKER.encode() + b"'\nS'w'\ntR."
# INST instead: the module and the name are the instruction's own.
INST_PICKLE = b"(S'" + MARKER.encode() + b"'\nS'w'\niio\nopen\n."
# Calls first and breaks afterwards: the file is made before anybody complains.
BROKEN_AFTER_CALL = TEXT_PICKLE[:-1] + b"0\xff\xff\xff"

NUMPY_OBJECTS = b"\x93NUMPY\x01\x00" + b"v\x00" + b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }".ljust(117) + b"\n" + pickled(3)
NUMPY_FLOATS = b"\x93NUMPY\x01\x00" + b"v\x00" + b"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }".ljust(117) + b"\n" + b"\0" * 4

ELF = b"\x7fELF\x02\x01\x01" + b"\0" * 9 + b"\x03\0>\0" + b"\0" * 44
PE = b"MZ" + b"\0" * 58 + b"\x40\0\0\0" + b"PE\0\0" + b"\0" * 60
MACH_O = b"\xcf\xfa\xed\xfe\x07\0\0\x01" + b"\0" * 24
WASM = b"\0asm\x01\0\0\0"
JAVA_CLASS = b"\xca\xfe\xba\xbe\0\0\0\x3d" + b"\0" * 16
PYC = (3531).to_bytes(2, "little") + b"\r\n" + b"\0" * 12 + b"\xe3" + b"\0" * 20
OBJECT_ARCHIVE = b"!<arch>\n" + b"x.o/".ljust(58) + b"`\n"
SEVEN_ZIP = b"7z\xbc\xaf\x27\x1c\x00\x04" + b"\0" * 24
RAR = b"Rar!\x1a\x07\x01\x00" + b"\0" * 16
XZ = b"\xfd7zXZ\0" + b"\0" * 24
HDF5 = b"\x89HDF\r\n\x1a\n" + b"\0" * 24
GGUF = b"GGUF\x03\0\0\0" + b"\0" * 16
PNG = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + b"\0" * 17
PDF = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n<<>>\nendobj\n"
LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 4999999\n"
