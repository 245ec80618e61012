"""Damaged GGUF files as tables: a name, the file, the message that follows the path."""

from __future__ import annotations

import struct
from typing import TypeAlias

from tiny import ARCHITECTURE, Raw, array, entry, info, string

CUT = " (hint: the file is truncated or damaged: download it again)"
BIG = 1 << 63
MOST = (1 << 64) - 1
Case: TypeAlias = tuple[str, Raw, str]


def keys(*entries: bytes) -> Raw:
    return Raw(keys=[ARCHITECTURE, *entries])


def one(**fields: object) -> Raw:
    """A file with one tensor info of the given fields, named "w" unless told otherwise."""
    return Raw(infos=[info(**{"name": "w", **fields})])  # type: ignore[arg-type]


def alignment(kind: int, payload: bytes) -> Raw:
    return keys(entry("general.alignment", kind, payload))


def nested(depth: int) -> bytes:
    return array(9, 1) * (depth - 1) + array(4, 0)


def u32(number: int) -> bytes:
    return struct.pack("<I", number)


def u64(number: int) -> bytes:
    return struct.pack("<Q", number)


COUNT_ERRORS: list[Case] = [
    ("version 0", Raw(version=0), "header: GGUF version 0 is not supported, only 2 and 3"),
    ("version 1", Raw(version=1), "header: GGUF version 1 is not supported, only 2 and 3"),
    ("version 4", Raw(version=4), "header: GGUF version 4 is not supported, only 2 and 3"),
    ("version -1", Raw(version=0xFFFFFFFF), "header: GGUF version 4294967295 is not supported, only 2 and 3"),
    (
        "big-endian",
        Raw(version=3 << 24),
        "header: big-endian GGUF (version 3 byte-swapped), but only little-endian files are read"
        " (hint: convert it with gguf-convert-endian)",
    ),
    ("tensors 2^64-1", Raw(n_tensors=MOST), f"header: tensor count {MOST} cannot fit in a file of 224 bytes"),
    ("keys 2^64-1", Raw(n_keys=MOST), f"header: key count {MOST} cannot fit in a file of 224 bytes"),
    ("keys 29", Raw(n_keys=29), "header: key count 29 cannot fit in a file of 224 bytes"),
    (
        "tensors 32769",
        Raw(n_tensors=32769, data=bytes(1 << 20)),
        "header: tensor count 32769 exceeds the limit of 32768",
    ),
    ("keys 16385", Raw(n_keys=16385, data=bytes(1 << 20)), "header: key count 16385 exceeds the limit of 16384"),
    ("one key too many", Raw(n_keys=2), "metadata entry 1: name is 0 bytes long, but must have 1..65535"),
    ("one tensor too many", Raw(n_tensors=1), "tensor 0: name is 0 bytes long, but must have 1..64"),
]


NUMBER = entry("n", 4, u32(1))
KEY_ERRORS: list[Case] = [
    ("key of 2^63", keys(u64(BIG) + b"n"), f"metadata entry 1: name is {BIG} bytes long, but must have 1..65535"),
    (
        "key of 65536",
        keys(entry("n" * 65536, 4, u32(1))),
        "metadata entry 1: name is 65536 bytes long, but must have 1..65535",
    ),
    (
        "key past the end",
        keys(u64(60000) + b"n"),
        f"metadata entry 1: needs 60000 bytes at byte 77, but the file ends at byte 224{CUT}",
    ),
    ("key empty", keys(entry("", 4, u32(1))), "metadata entry 1: name is 0 bytes long, but must have 1..65535"),
    ("key twice", keys(NUMBER, NUMBER), "key 'n': appears twice"),
    (
        "key not UTF-8",
        keys(entry(b"n\xff", 4, u32(1))),
        "metadata entry 1: name b'n\\xff' is not valid UTF-8",
    ),
    (
        "key with escape codes",
        keys(entry("\x1b[2J", 4, u32(1))),
        "metadata entry 1: name '\\x1b[2J' holds control characters",
    ),
    (
        "key long and twice",
        keys(entry("k" * 300, 4, u32(1)), entry("k" * 300, 4, u32(1))),
        f"key '{'k' * 59}...': appears twice",
    ),
    ("architecture missing", Raw(keys=[]), "key 'general.architecture': is missing: no graph can be chosen"),
    (
        "architecture misspelt",
        Raw(keys=[entry("general.architectur", 8, string("llama"))]),
        "key 'general.architecture': is missing: no graph can be chosen (hint: did you mean 'general.architectur'?)",
    ),
    (
        "architecture a number",
        Raw(keys=[entry("general.architecture", 4, u32(7))]),
        "key 'general.architecture': must be a string that is not empty",
    ),
    (
        "architecture empty",
        Raw(keys=[entry("general.architecture", 8, string(""))]),
        "key 'general.architecture': must be a string that is not empty",
    ),
]


LIMITS = "exceeds the limits: 2097152 each, 3145728 together"
WORDS = string("a") + string("bc") + u64(BIG)
VALUE_ERRORS: list[Case] = [
    ("value type 13", keys(entry("n", 13, u64(0))), "key 'n': value type 13 is not one of 0..12"),
    ("value type -1", keys(entry("n", 2**32 - 1, u64(0))), "key 'n': value type 4294967295 is not one of 0..12"),
    (
        "string of 2^63",
        keys(entry("s", 8, u64(BIG))),
        f"key 's': needs {BIG} bytes at byte 90, but the file ends at byte 224{CUT}",
    ),
    (
        "string of 2^64-1",
        keys(entry("s", 8, u64(2**64 - 1))),
        f"key 's': needs {2**64 - 1} bytes at byte 90, but the file ends at byte 224{CUT}",
    ),
    ("bool of 2", keys(entry("b", 7, b"\2")), "key 'b': bool has the value 2, but must be 0 or 1"),
    (
        "bool of 255 in an array",
        keys(entry("b", 9, array(7, 3, b"\0\xff\1"))),
        "key 'b': bool has the value 255, but must be 0 or 1",
    ),
    ("array of type 13", keys(entry("a", 9, array(13, 1))), "key 'a': value type 13 is not one of 0..12"),
    (
        "array of 2^64-1",
        keys(entry("a", 9, array(0, 2**64 - 1))),
        f"key 'a': array of {2**64 - 1} elements {LIMITS}",
    ),
    (
        "array over the limit",
        keys(entry("a", 9, array(8, 2097153))),
        f"key 'a': array of 2097153 elements {LIMITS}",
    ),
    (
        "array past the end",
        keys(entry("a", 9, array(10, 1000))),
        f"key 'a': needs 8000 bytes at byte 94, but the file ends at byte 224{CUT}",
    ),
    (
        "strings past the end",
        keys(entry("a", 9, array(8, 1000))),
        f"key 'a': needs 8000 bytes at byte 94, but the file ends at byte 224{CUT}",
    ),
    (
        "string of an array too long",
        keys(entry("a", 9, array(8, 3, WORDS))),
        f"key 'a'[2]: needs {BIG} bytes at byte 121, but the file ends at byte 256{CUT}",
    ),
    (
        "strings of an array run out",
        Raw(keys=[ARCHITECTURE, entry("a", 9, array(8, 3, string("x" * 30)))], data=b"", alignment=1),
        f"key 'a'[1]: needs 8 bytes at byte 132, but the file ends at byte 132{CUT}",
    ),
    ("arrays 5 deep", keys(entry("a", 9, nested(5))), "key 'a': arrays are nested deeper than 4"),
    ("arrays 10,000 deep", keys(entry("a", 9, nested(10_000))), "key 'a': arrays are nested deeper than 4"),
]


ALIGNMENT, RULE = "key 'general.alignment':", "is not a power of two in 1..1048576"
ALIGNMENT_ERRORS: list[Case] = [
    ("alignment 0", alignment(4, u32(0)), f"{ALIGNMENT} alignment 0 {RULE}"),
    ("alignment 3", alignment(4, u32(3)), f"{ALIGNMENT} alignment 3 {RULE}"),
    ("alignment 2^31", alignment(4, u32(1 << 31)), f"{ALIGNMENT} alignment 2147483648 {RULE}"),
    ("alignment u64", alignment(10, u64(32)), f"{ALIGNMENT} is of type u64, but must be u32"),
    ("alignment i32", alignment(5, u32(32)), f"{ALIGNMENT} is of type i32, but must be u32"),
    ("alignment f32", alignment(6, u32(0)), f"{ALIGNMENT} is of type f32, but must be u32"),
    ("alignment text", alignment(8, string("32")), f"{ALIGNMENT} is of type string, but must be u32"),
    ("alignment list", alignment(9, array(4, 1, u32(32))), f"{ALIGNMENT} is of type array, but must be u32"),
]


TENSOR_ERRORS: list[Case] = [
    ("name empty", one(name=""), "tensor 0: name is 0 bytes long, but must have 1..64"),
    ("name of 65", one(name="w" * 65), "tensor 0: name is 65 bytes long, but must have 1..64"),
    ("name not UTF-8", one(name=b"\xc3("), "tensor 0: name b'\\xc3(' is not valid UTF-8"),
    ("name with a newline", one(name="a\nb"), "tensor 0: name 'a\\nb' holds control characters"),
    ("tensor twice", Raw(infos=[info("w"), info("w", offset=128)]), "tensor 'w': appears twice"),
    ("0 dimensions", one(ne=(), ndim=0), "tensor 'w': has 0 dimensions, but must have 1..4"),
    ("5 dimensions", one(ne=(1, 1, 1, 1, 1)), "tensor 'w': has 5 dimensions, but must have 1..4"),
    ("2^32-1 dimensions", one(ndim=2**32 - 1), "tensor 'w': has 4294967295 dimensions, but must have 1..4"),
    ("dimension 0", one(ne=(32, 0)), "tensor 'w': shape [0, 32] has a zero dimension"),
    (
        "elements overflow",
        one(ne=(1 << 32, 1 << 32)),
        "tensor 'w': shape [4294967296, 4294967296] has 2^63 elements or more",
    ),
    (
        "elements overflow to 0",
        one(ne=(1 << 32, 1 << 32, 1)),
        "tensor 'w': shape [1, 4294967296, 4294967296] has 2^63 elements or more",
    ),
    (
        "bytes overflow",
        one(ne=(1 << 62,)),
        f"tensor 'w': data ends at byte {1 << 64} of the data section, which has only 128 bytes{CUT}",
    ),
    ("q4_0 of 33", one(ne=(33,), kind=2), "tensor 'w': has 33 columns, but q4_0 needs a multiple of 32"),
    ("q6_k of 32", one(ne=(32, 8), kind=14), "tensor 'w': has 32 columns, but q6_k needs a multiple of 256"),
    ("offset unaligned", one(offset=8), "tensor 'w': offset 8 is not a multiple of the alignment 32"),
    (
        "offset unaligned to 64",
        Raw(keys=[ARCHITECTURE, entry("general.alignment", 4, u32(64))], infos=[info("w", offset=32)]),
        "tensor 'w': offset 32 is not a multiple of the alignment 64",
    ),
    (
        "offset outside",
        one(offset=4096),
        f"tensor 'w': data ends at byte 4224 of the data section, which has only 128 bytes{CUT}",
    ),
    (
        "offset 2^64-32",
        one(offset=2**64 - 32),
        f"tensor 'w': data ends at byte {2**64 + 96} of the data section, which has only 128 bytes{CUT}",
    ),
    (
        "end outside",
        one(ne=(33,)),
        f"tensor 'w': data ends at byte 132 of the data section, which has only 128 bytes{CUT}",
    ),
    (
        "no data",
        Raw(infos=[info("w")], data=b""),
        f"tensor 'w': data ends at byte 128 of the data section, which has only 0 bytes{CUT}",
    ),
    (
        "unknown type outside",
        one(kind=99, offset=4096),
        f"tensor 'w': data ends at byte 4096 of the data section, which has only 128 bytes{CUT}",
    ),
    ("overlap", Raw(infos=[info("a"), info("b", (8,), offset=96)]), "tensor 'b': data overlaps tensor 'a'"),
    ("same place", Raw(infos=[info("b"), info("a")]), "tensor 'a': data overlaps tensor 'b'"),
    (
        "unknown type inside another",
        Raw(infos=[info("a"), info("b", kind=99, offset=32)]),
        "tensor 'b': data overlaps tensor 'a'",
    ),
]
