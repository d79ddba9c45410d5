"""Mutations of a file: of its bytes, of its text, and of what an HDF5 file, an NPY header or a table holds."""

from __future__ import annotations

import io
import json
import os
import re
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np

Random = np.random.Generator

NUMBERS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    np.nan,
    np.inf,
    -np.inf,
    1e99,
    -1e99,
    1e-99,
    1e-300,
    5e-324,
    1e154,
    1e300,
    -1e300,
    1e17,
]
COUNTS = [0, -1, 1, 2, 39, 41, 10**6, 2**31, 2**40, 2**63 - 1]
TEXTS = ["", "x", "rbf", "matern52", "os:getcwd", "mpigp.kernels:Kernel", "this:s", "gplvm", "regression", "nan", "{",
         "[]", "{}", "null",
         '"x"', "1e999", "[" * 5000, '{"fixed": 3}', "é\u202e\x1b[2J\n", "a" * 70000, "pca"]  # fmt: skip
HUGE = [10**6, 2**31, 10**12, 2**62]
DTYPES = ["i1", "u8", "f2", "f4", ">f8", "bool", "c16", "S8", h5py.string_dtype(), [("a", "f8"), ("b", "i4")], "V8",
          h5py.ref_dtype, h5py.enum_dtype({"A": 0}), h5py.vlen_dtype(np.float64), "longdouble"]  # fmt: skip


def choose(rng: Random, options: Any) -> Any:
    """Return one of the options."""
    return options[int(rng.integers(len(options)))]


def mutate(path: Path, rng: Random) -> list[str]:
    """Mutate a file in its place, once to three times; return the names of what was done."""
    special = {
        ".h5": HDF5,
        ".csv": [text],
        ".npy": [npy_header],
        ".npz": [npz_member],
        ".parquet": [parquet],
        ".jsonl": [text],
    }[path.suffix]
    done = []
    for _ in range(int(choose(rng, [1, 1, 1, 2, 3]))):
        mutation = choose(rng, special if rng.random() < 0.75 else BYTES)
        with suppress(Exception):  # what an earlier one has damaged may not open any more
            mutation(path, rng)
            done.append(mutation.__name__)
    return done


# Bytes


def flip(path: Path, rng: Random) -> None:
    """Change a few bytes, more often near the beginning, where most formats describe what they hold."""
    content = bytearray(path.read_bytes())
    end = len(content) if rng.random() < 0.5 else min(len(content), 4096)
    for place in rng.integers(max(end, 1), size=int(choose(rng, [1, 1, 2, 8]))) if content else ():
        content[place] = int(choose(rng, [0, 1, 0xFF, 0x7F, 0x80, int(rng.integers(256))]))
    path.write_bytes(content)


def truncate(path: Path, rng: Random) -> None:
    os.truncate(path, int(rng.integers(path.stat().st_size + 1)))


def overwrite(path: Path, rng: Random) -> None:
    """Put a run of one byte, or of a huge number, over some bytes."""
    content = bytearray(path.read_bytes())
    place, run = int(rng.integers(len(content) + 1)), choose(rng, [b"\0" * 16, b"\xff" * 8, b"\0" * 512, b"\x7f" * 4])
    content[place : place + len(run)] = run
    path.write_bytes(content)


def move(path: Path, rng: Random) -> None:
    """Copy, or insert, a stretch of the file elsewhere in it."""
    content = path.read_bytes()
    start, to = rng.integers(len(content) + 1, size=2)
    piece = content[start : start + int(rng.integers(1, 200))]
    path.write_bytes(content[:to] + piece + content[to + (len(piece) if rng.random() < 0.5 else 0) :])


BYTES: list[Callable[[Path, Random], None]] = [flip, flip, truncate, overwrite, move]


# HDF5


def items(file: h5py.File, kind: type = h5py.Dataset) -> list[str]:
    """Return the names of the datasets, or groups, of a file."""
    names: list[str] = []
    file.visititems(lambda name, item: names.append(name) if isinstance(item, kind) else None)
    return names


def number_in(path: Path, rng: Random) -> None:
    """Change an entry of a dataset, a row, or all entries."""
    with h5py.File(path, "r+") as file:
        item = file[choose(rng, items(file))]
        values = np.array(item[()], ndmin=1)
        where: Any = choose(
            rng, [..., int(rng.integers(len(values) or 1)), tuple(rng.integers(s or 1) for s in values.shape)]
        )
        with np.errstate(all="ignore"):
            values[where] = np.array(choose(rng, NUMBERS)).astype(values.dtype)
        item[...] = values.reshape(item.shape)


def scaled(path: Path, rng: Random) -> None:
    """Multiply a dataset by a large or small number."""
    with h5py.File(path, "r+") as file, np.errstate(all="ignore"):
        item = file[choose(rng, items(file))]
        item[...] = item[()] * choose(rng, [1e99, 1e-99, 1e-300, 1e50, -1.0, 0.0])


def other_dtype(path: Path, rng: Random) -> None:
    with h5py.File(path, "r+") as file:
        name, dtype = choose(rng, items(file)), np.dtype(choose(rng, DTYPES))
        shape, values = file[name].shape, file[name][()]
        del file[name]
        if dtype.kind in "iufbc":
            with np.errstate(all="ignore"):
                file[name] = np.asarray(values).astype(dtype)
        else:
            file.create_dataset(name, shape, dtype)


def other_shape(path: Path, rng: Random) -> None:
    with h5py.File(path, "r+") as file:
        name = choose(rng, items(file))
        values = np.atleast_1d(file[name][()])
        del file[name]
        changes: list[Any] = [values.T, values.ravel(), values[None], values[:0], values[:-1], h5py.Empty("f8")]
        changes += [np.concatenate([values, values]), np.zeros((0, 0)), values[..., :1], values.ravel()[0]]
        file[name] = changes[int(rng.integers(len(changes)))]


def huge(path: Path, rng: Random) -> None:
    """Declare many rows or columns, of which none is stored."""
    with h5py.File(path, "r+") as file:
        name = choose(rng, items(file))
        shape = [int(choose(rng, HUGE)) if rng.random() < 0.7 else size for size in file[name].shape] or [
            choose(rng, HUGE)
        ]
        del file[name]
        layout: dict[str, Any] = choose(rng, [{}, {"chunks": True}, {"chunks": True, "compression": "gzip"}])
        file.create_dataset(name, shape, choose(rng, ["f8", "f4", "i8"]), fillvalue=choose(rng, [None, 0, 1]), **layout)


def removed(path: Path, rng: Random) -> None:
    with h5py.File(path, "r+") as file:
        del file[choose(rng, items(file) + items(file, h5py.Group))]


def renamed(path: Path, rng: Random) -> None:
    """Move a dataset to another name, that of another one too."""
    with h5py.File(path, "r+") as file:
        names = items(file)
        name, to = (
            choose(rng, names),
            choose(rng, [*names, "x\ny", "é", b"\xff", "labels", "X_variance", "posterior/group"]),
        )
        if to in file:
            del file[to]
        file.move(name, to)


def group_instead(path: Path, rng: Random) -> None:
    with h5py.File(path, "r+") as file:
        name = choose(rng, items(file) + items(file, h5py.Group))
        was_group = isinstance(file[name], h5py.Group)
        del file[name]
        if was_group:
            file[name] = 1.0
        else:
            file.create_group(name)


def link(path: Path, rng: Random) -> None:
    """Put a link in the place of a dataset: to nothing, to itself, to another one, or out of the file."""
    fifo = path.with_name("fifo")
    if not fifo.exists():
        os.mkfifo(fifo)
    with h5py.File(path, "r+") as file:
        names = items(file)
        name = choose(rng, names)
        ends = [h5py.SoftLink("/nowhere"), h5py.SoftLink(f"/{name}"), h5py.SoftLink(f"/{choose(rng, names)}"),
                h5py.SoftLink("/"), file["/"]]  # fmt: skip
        ends += [h5py.ExternalLink(other, "Y") for other in ("missing.h5", path.name, "fifo", "/dev/zero")]
        end = choose(rng, ends)
        if rng.random() < 0.8:
            del file[name]
            file[name] = end
        else:
            file["further"] = end


def elsewhere(path: Path, rng: Random) -> None:
    """Let the numbers of a dataset lie in other files: as external storage, or as a virtual dataset."""
    with h5py.File(path, "r+") as file:
        name = choose(rng, items(file))
        shape = file[name].shape
        del file[name]
        source = choose(rng, ["missing.bin", "fifo", "/dev/zero", "regression.h5"])
        if rng.random() < 0.7:
            file.create_dataset(name, shape, "f8", external=[(source, 0, h5py.h5f.UNLIMITED)])
        else:
            layout = h5py.VirtualLayout(shape, "f8")
            layout[...] = h5py.VirtualSource("missing.h5", "Y", shape)
            file.create_virtual_dataset(name, layout)


def attribute(path: Path, rng: Random) -> None:
    """Change, add or remove an attribute."""
    with h5py.File(path, "r+") as file:
        owner = file if rng.random() < 0.7 else file[choose(rng, items(file))]
        names = [*owner.attrs, "n", "kernel", "columns", "classes", "estimator", "jitter", "seed", "version", "model"]
        name = choose(rng, names)
        if rng.random() < 0.15 and name in owner.attrs:
            del owner.attrs[name]
            return
        values: list[Any] = [choose(rng, NUMBERS), int(choose(rng, COUNTS)), choose(rng, TEXTS)[:60000], [1, 2], []]
        values += [h5py.Empty("f8"), ["a", "b"], np.float32(0.5), np.bytes_(b"\xff\xfe"), np.uint64(2**64 - 1)]
        values += [np.zeros((2, 2)), True]
        owner.attrs[name] = values[int(rng.integers(len(values)))]


def json_text(path: Path, rng: Random) -> None:
    """Change a JSON text of a model file: the options of its checkpoint, or an attribute."""
    with h5py.File(path, "r+") as file:
        if rng.random() < 0.6:
            old = json.loads(file["checkpoint/options"].asstr()[()])
            key = choose(rng, sorted(old))
            if rng.random() < 0.3:
                del old[key]
            else:
                old[key] = choose(rng, [None, 1, -1.5, [], {}, "x", 10**30, float("nan")])
            del file["checkpoint/options"]
            file["checkpoint/options"] = json.dumps(old) if rng.random() < 0.7 else choose(rng, TEXTS)
        else:
            file.attrs[choose(rng, ["versions", "machine", "command", "estimator"])] = choose(rng, TEXTS)[:60000]


HDF5: list[Callable[[Path, Random], None]] = [
    number_in, number_in, number_in, scaled, other_dtype, other_shape, other_shape, huge, removed, removed, renamed,
    group_instead, link, elsewhere, attribute, attribute, json_text,
]  # fmt: skip


# Tables

FIELDS = ["", "nan", "NA", "1e999", "-1e99", "1e-300", "1_0", "x", '"', '""', "0x10", "é", "\0", "1" * 400, " 2 ",
          "2,5", "a,b", "\n", "\r", ",", ";", "-", "inf", "2020-01-01", "\u202e", "#"]  # fmt: skip


def text(path: Path, rng: Random) -> None:
    """Change a field, a row or a delimiter of a CSV file, or of lines of JSON."""
    lines = path.read_text(errors="surrogateescape").split("\n")
    place = int(choose(rng, [0, 1, int(rng.integers(len(lines)))])) % len(lines)
    fields = lines[place].split(",")
    change = int(rng.integers(5))
    if change == 0:
        lines[place] = choose(rng, FIELDS)
    elif change == 1:
        lines.insert(place, lines[place])
    elif change == 2:
        del lines[place]
    else:
        for _ in range(change):
            fields[int(rng.integers(len(fields)))] = choose(rng, FIELDS)
        lines[place] = ",".join(fields)
    path.write_text("\n".join(lines), errors="surrogateescape")


SHAPES = ["()", "(40,)", "(40, 5)", "(1000000000000, 5)", "(40, 1000000000000)", "(-40, 5)", "(0, 5)", "(40, 0)", "40",
          "('a',)", "(40, 5, 1)", f"({2**63 - 1}, {2**63 - 1})", "(True, 5)", "[40, 5]", "(4.0, 5)"]  # fmt: skip
DESCRIPTIONS = ["'<f8'", "'|O'", "'<f4'", "'|S8'", "'<U4'", "'|V8'", "'<f16'", "'>i8'", "[('a', '<f8')]", "'|b1'",
                "'<c16'", "'x'", "None", "'|S0'", "'<M8[s]'"]  # fmt: skip


def other_header(content: bytes, rng: Random) -> bytes:
    """Return an NPY file with another shape, type or order in its header."""
    length = int.from_bytes(content[8:10], "little")
    header = content[10 : 10 + length].decode("latin1").rstrip()
    change = int(rng.integers(4))
    if change == 0:
        header = re.sub(r"'shape': \([^)]*\)", lambda _: f"'shape': {choose(rng, SHAPES)}", header)
    elif change == 1:
        header = re.sub(r"'descr': '[^']*'", lambda _: f"'descr': {choose(rng, DESCRIPTIONS)}", header)
    elif change == 2:
        header = header.replace("False", choose(rng, ["True", "None", "0"]))
    else:
        header = choose(rng, ["", "{}", "[", "{'shape': (1,)}", "__import__('os').abort()", "(" * 3000, "{" * 200])
    padded = header.encode("latin1") + b"\n"
    return content[:8] + len(padded).to_bytes(2, "little") + padded + content[10 + length :]


def npy_header(path: Path, rng: Random) -> None:
    path.write_bytes(other_header(path.read_bytes(), rng))


def npz_member(path: Path, rng: Random) -> None:
    """Change the header of an array of an NPZ file, its bytes, or the members."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = choose(rng, sorted(members))
    change = int(rng.integers(5))
    if change == 0:
        del members[name]
    elif change == 1:
        members[choose(rng, ["x.txt", "Y.npy", "../Y.npy", "sub/", "labels"])] = choose(
            rng, [b"", b"text", members[name]]
        )
    elif change == 2:
        members[name] = members[name][: int(rng.integers(len(members[name]) + 1))]
    else:
        members[name] = other_header(members[name], rng)
    kind = choose(rng, [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
    with zipfile.ZipFile(path, "w", kind) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def parquet(path: Path, rng: Random) -> None:
    """Put a column of another type, or of other values, in a Parquet file."""
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(io.BytesIO(path.read_bytes()))
    n, place = len(table), int(rng.integers(max(table.num_columns, 1)))
    columns: list[Any] = [[None] * n, [[1.0, 2.0]] * n, [b"\xff"] * n, [{"a": 1}] * n, [True] * n,
                          [choose(rng, NUMBERS)] * n, [choose(rng, FIELDS)] * n,
                          [2**63 - 1] * n, np.zeros(n, "M8[s]"), np.zeros(n, "f2"),
                          pyarrow.array(["a"] * n).dictionary_encode(), pyarrow.nulls(n)]  # fmt: skip
    name = choose(rng, [*table.column_names, "", "a\0b", "é"])
    column = columns[int(rng.integers(len(columns)))]
    if rng.random() < 0.2:
        table = choose(rng, [table.slice(0, 0), table.select([]), table.append_column(name, pyarrow.array(column))])
    else:
        table = table.set_column(place, name, pyarrow.array(column))
    compression = choose(rng, ["snappy", "gzip", "none", "zstd"])
    pyarrow.parquet.write_table(table, path, compression=compression)
