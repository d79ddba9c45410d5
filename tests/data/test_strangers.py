"""Files of strangers: what would open other files, take more memory than the file is long, or end in a traceback."""

from __future__ import annotations

import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import mpigp
from mpigp.cli import execute
from mpigp.errors import InputError
from mpigp.gp.posterior import _root
from tests.support.calling import command
from tests.support.inputs import Inputs, replace, write_inputs
from tests.support.launching import run


def learn(data: Path, output: Path, *options: object, model: str = "regression") -> list[object]:
    latent = ["--latent", 2] if model == "gplvm" else []
    return [
        "fit",
        data,
        "-o",
        output,
        "--model",
        model,
        *latent,
        "--inducing",
        3,
        "--max-iter",
        2,
        "--overwrite",
        *options,
    ]


@pytest.fixture
def inputs(tmp_path: Path) -> Inputs:
    return write_inputs(tmp_path, "regression", 40, 3, 2, 2)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return the model of a GPLVM of data.h5 beside it."""
    command(*learn(write_inputs(tmp_path, "gplvm", 40, 3, 2, 2).data, tmp_path / "model.h5", model="gplvm"))
    return tmp_path / "model.h5"


@pytest.mark.parametrize("target", ["other.h5", "pipe", "/dev/zero", "data.h5"])
def test_links_to_other_files_are_refused(target: str, inputs: Inputs, tmp_path: Path, refused) -> None:
    os.mkfifo(tmp_path / "pipe")
    with h5py.File(inputs.data, "r+") as file, h5py.File(tmp_path / "other.h5", "w") as other:
        other["Y"] = file["Y"][()]
        file.create_group("deep")["Y"] = h5py.ExternalLink(target, "Y")
    for words in (learn(inputs.data, tmp_path / "model.h5", "--y", "deep/Y"), ["info", inputs.data]):
        assert "data.h5: /deep/Y: is a link to another file: copy the dataset here" in refused(*words)


def test_links_within_a_file_are_followed(inputs: Inputs, tmp_path: Path) -> None:
    with h5py.File(inputs.data, "r+") as file:
        file.move("Y", "kept/values")
        file["Y"], file["again"] = h5py.SoftLink("/kept/values"), h5py.SoftLink("/kept")
    command(*learn(inputs.data, tmp_path / "model.h5"))
    command("info", inputs.data)


def test_numbers_in_another_file_are_refused(inputs: Inputs, tmp_path: Path, refused) -> None:
    (tmp_path / "numbers").write_bytes(bytes(40 * 2 * 8))
    with h5py.File(inputs.data, "r+") as file:
        del file["Y"]
        file.create_dataset("Y", (40, 2), "f8", external=[(str(tmp_path / "numbers"), 0, 640)])
    for words in (learn(inputs.data, tmp_path / "model.h5"), ["info", inputs.data]):
        assert "data.h5: /Y: its numbers lie in another file" in refused(*words)


@pytest.mark.parametrize("layout", [{}, {"chunks": (1000, 2)}, {"chunks": (1000, 2), "compression": "gzip"}], ids=str)
def test_a_declared_size_is_compared_with_the_file(
    layout: dict[str, Any], inputs: Inputs, tmp_path: Path, refused
) -> None:
    with h5py.File(inputs.data, "r+") as file:
        for name in ("X", "Y"):
            del file[name]
            file.create_dataset(name, (10**12, 2), "f8", **layout)
    for words in (learn(inputs.data, tmp_path / "model.h5"), ["info", inputs.data],
                  ["evaluate", inputs.data, "--params", inputs.params]):  # fmt: skip
        assert "declares 1.6e+13 bytes in a file of" in refused(*words)


def test_data_may_be_compressed_well(inputs: Inputs, tmp_path: Path) -> None:
    X = np.repeat(np.arange(4.0), 50_000)[:, None]
    replace(inputs.data, "X", X, compression="gzip", chunks=(50_000, 1))
    replace(inputs.data, "Y", X, compression="gzip", chunks=(50_000, 1))
    assert inputs.data.stat().st_size < X.nbytes / 50
    command(*learn(inputs.data, tmp_path / "model.h5", "--max-iter", 0))


@pytest.mark.parametrize("shape", [(10**12, 2), (2, 10**12), (2**62, 2**62), (-2, 2)], ids=str)
@pytest.mark.parametrize("name", ["table.npy", "table.npz"])
def test_a_declared_shape_of_an_array_is_compared_with_the_file(
    name: str, shape: tuple[int, int], tmp_path: Path, refused
) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": shape})
    table = tmp_path / name
    if name.endswith("npz"):
        with zipfile.ZipFile(table, "w") as archive:
            archive.writestr("Y.npy", header.getvalue() + bytes(32))
    else:
        table.write_bytes(header.getvalue() + bytes(32))
    assert f"{table}: " in refused("convert", table, "-o", tmp_path / "out.h5")


@pytest.mark.parametrize("name", ["table.npy", "table.npz"])
def test_pickled_objects_are_refused(name: str, tmp_path: Path, refused) -> None:
    array = np.array([[1, None]], object)
    (np.save if name.endswith("npy") else np.savez)(tmp_path / name, array, allow_pickle=True)
    assert f"{name}: " in refused("convert", tmp_path / name, "-o", tmp_path / "out.h5")


def varint(value: int) -> bytes:
    """Return a number as Thrift's compact protocol writes it, by which Parquet declares sizes."""
    digits, value = [], 2 * value
    while value > 127:
        digits.append(value % 128 + 128)
        value //= 128
    return bytes([*digits, value])


def test_rows_that_a_parquet_file_declares(tmp_path: Path, refused) -> None:
    """Any number of equal rows takes few bytes; those that are declared and not there are refused."""
    import pyarrow
    import pyarrow.parquet

    from mpigp.data.tables import ParquetTable

    table, out, rows = tmp_path / "table.parquet", tmp_path / "out.h5", 1_000_003
    columns = {"a": np.zeros(rows), "b": np.repeat([0.0, 1.0], [600_000, rows - 600_000])}
    pyarrow.parquet.write_table(pyarrow.table(columns), table, row_group_size=rows)
    assert 16 * rows > 1032 * table.stat().st_size
    command("convert", table, "-o", out)
    with h5py.File(out) as file:
        assert np.array_equal(file["Y"][()], np.stack(list(columns.values()), axis=1))
    out.unlink()
    content = table.read_bytes()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    assert content.count(varint(rows), start) >= 2  # of the file, and of its row group
    for declared in (rows + 1, 10**12, 2**62):
        footer = content[start:-8].replace(varint(rows), varint(declared))
        table.write_bytes(content[:start] + footer + len(footer).to_bytes(4, "little") + b"PAR1")
        assert "table.parquet: " in refused("convert", table, "-o", out)
        assert not out.exists()
    table.write_bytes(content)
    opened = ParquetTable(table)
    opened.count -= 1
    with pytest.raises(InputError, match="declares 1000002 rows and holds 1000003"):
        list(opened.blocks([0], None))


def test_any_filter_of_hdf5_may_compress_well(tmp_path: Path, refused) -> None:
    path = tmp_path / "data.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("Y", data=np.ones((2_000_000, 1)), chunks=(1_000_000, 1), scaleoffset=3, compression="gzip")
    assert 1032 * path.stat().st_size < 16_000_000
    command("info", path)
    with h5py.File(path, "w") as file:
        file.create_dataset("Y", (10**12, 1), "f8", chunks=(1_000_000, 1), scaleoffset=3)[:10] = 1
    assert "declares 8e+12 bytes in a file of" in refused("info", path)


def test_labels_are_single_values(tmp_path: Path, refused) -> None:
    import pyarrow
    import pyarrow.parquet

    for values in ([{"a": 1}] * 3, [[1.0]] * 3):
        pyarrow.parquet.write_table(pyarrow.table({"y": [1.0, 2.0, 3.0], "kind": values}), tmp_path / "t.parquet")
        assert "--labels: is of type" in refused(
            "convert", tmp_path / "t.parquet", "-o", tmp_path / "o.h5", "--labels", 1
        )


@pytest.mark.parametrize("text", ["a\0b,c\n1,2\n", "a,c\n1,2\n" + "\0\n"])
def test_text_that_hdf5_cannot_store_is_refused(text: str, tmp_path: Path, refused) -> None:
    (tmp_path / "table.csv").write_text(text)
    assert "table.csv" in refused("convert", tmp_path / "table.csv", "-o", tmp_path / "out.h5")


@pytest.mark.parametrize("factor", [1e99, 1e-300])
@pytest.mark.parametrize("kind", ["regression", "gplvm"])
def test_columns_that_cannot_be_squared_are_refused_or_fitted(
    kind: str, factor: float, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = write_inputs(tmp_path, kind, 40, 3, 2, 2).data
    with h5py.File(data, "r+") as file:
        for name in file:
            file[name][...] *= factor
    words = learn(data, tmp_path / "model.h5", "--standardize", "none", model=kind)
    code = execute([str(word) for word in words])
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("mpigp: ")]
    assert (code, len(lines)) in ((0, 0), (2, 1))
    command(*learn(data, tmp_path / "model.h5", model=kind))


SPOILED: list[tuple[str, Any]] = [
    ("posterior/L", np.diag([1.0, 0.0, 1.0])),
    ("posterior/L", np.diag([1.0, 1e-300, 1.0])),
    ("posterior/L_B", np.zeros((3, 3))),
    ("posterior/g", np.full((3, 2), 1e300)),
    ("posterior/order", np.array([0.0, 1e99, 2.0])),
    ("posterior/group", np.array([0.0, 1e99])),
    ("latent/S", np.full((40, 2), np.nan)),
]


@pytest.mark.parametrize(("name", "value"), SPOILED, ids=[each[0] for each in SPOILED])
def test_a_model_that_predicts_nothing_is_refused(name: str, value: Any, model: Path, refused) -> None:
    replace(model, name, value)
    output = model.with_name("out.h5")
    for words in (["embed", model, model.with_name("data.h5"), "-o", output],
                  ["reconstruct", model, model.with_name("data.h5"), "-o", output]):  # fmt: skip
        assert str(model) in refused(*words)
        assert not output.exists()


@pytest.mark.parametrize(("name", "value"), [("standardize/y_scale", np.full(2, 1e300)), ("beta", 1e-320)])
def test_a_model_whose_predictions_are_not_finite_is_refused(name: str, value: Any, model: Path, refused) -> None:
    replace(model, name, value)
    line = refused("reconstruct", model, model.with_name("data.h5"), "-o", model.with_name("out.h5"))
    assert "model.h5: its predictions are not finite" in line


def test_draws_that_are_not_finite_are_refused() -> None:
    with pytest.raises(InputError, match="the covariance of these rows is not finite"):
        _root(np.full((2, 2), np.inf))


def change(file: h5py.File, name: str, value: Any) -> None:
    """Set an attribute (@name), an entry of the checkpoint's options (?name), or a dataset."""
    if name.startswith("@"):
        file.attrs[name[1:]] = value
    elif name.startswith("?"):
        options = json.loads(file["checkpoint/options"].asstr()[()]) | {name[1:]: value}
        del file["checkpoint/options"]
        file["checkpoint/options"] = json.dumps(options)
    else:
        del file[name]
        file[name] = value


FOREIGN: list[tuple[str, Any]] = [
    ("@n", "many"), ("@n", [1, 2]), ("@n", 2**62), ("@n", np.nan), ("@jitter", np.inf), ("@seed", [1]),
    ("@version", h5py.Empty("i8")),
    ("@versions", "[" * 10_000), ("@machine", "[1]"), ("trace/bound", 1.0), ("trace", 1.0), ("kernel", 1.0),
    ("timing/rows", 1e300), ("checkpoint/options", "[]"), ("checkpoint/options", 1.0), ("checkpoint/numbers", 1.0),
    ("checkpoint/numbers/pairs", [99]), ("checkpoint/numbers/gram", np.ones(3)), ("checkpoint/numbers/scalars", 1.0),
    ("checkpoint/numbers/scalars", [1.0, 1e99]), ("checkpoint/numbers/held", "x"), ("checkpoint/numbers/before", 1j),
    ("checkpoint/vectors/point/shared", np.full((1, 10), np.nan)), ("?rows", "x"), ("?data", []),
    ("checkpoint/vectors/point/local/0/0", np.ones((1, 1))), ("@estimator", "[1]"), ("@estimator", '{"fixed": 3}'),
    ("@kernel", "é\x1b[2J:x"), ("Z", 1.0), ("beta", "x"), ("latent", 1.0), ("posterior", 1.0),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), FOREIGN, ids=lambda value: str(value)[:20])
def test_values_of_another_kind_are_one_line(
    name: str, value: Any, model: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with h5py.File(model, "r+") as file:
        change(file, name, value)
    data, output, again = model.with_name("data.h5"), model.with_name("out.h5"), model.with_name("again.h5")
    again.write_bytes(model.read_bytes())
    readers: list[list[object]] = [
        ["info", model], ["report", model, "-o", output], ["embed", model, data, "-o", output],
        ["evaluate", data, "--params", model], learn(data, output, "--init", model, model="gplvm"),
        learn(data, again, "--max-iter", 4, "--resume", model="gplvm"),
    ]  # fmt: skip
    codes = []
    for words in readers:
        capfd.readouterr()
        codes.append(execute([str(word) for word in words]))
        said = capfd.readouterr().err
        assert codes[-1] in (0, 2) and (codes[-1] == 0 or said.count("\n") == 1) and "\x1b" not in said, words
    assert codes[-1] == 0 or again.read_bytes() == model.read_bytes()
    try:
        mpigp.load(model)
    except InputError:
        codes.append(2)
    assert 2 in codes


def test_a_checkpoint_without_a_bound_is_refused_by_its_name(model: Path, refused) -> None:
    with h5py.File(model, "r+") as file:
        file["checkpoint/vectors/point/shared"][...] = 1e90
    words = learn(model.with_name("data.h5"), model, "--max-iter", 4, "--resume", model="gplvm")
    assert refused(*words).startswith(f"mpigp: {model}: the checkpoint is damaged: start anew without --resume: ")


def test_a_reason_of_another_kind_is_shown(model: Path) -> None:
    with h5py.File(model, "r+") as file:
        file.attrs["stopped"] = [1.0, 2.0]
    command("report", model, "-o", model.with_name("page.html"))
    assert "[1.0, 2.0]" in model.with_name("page.html").read_text()


def test_names_that_cannot_be_printed_are_shown(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with h5py.File(tmp_path / "odd.h5", "w") as file:
        file[b"\xff\xfe"], file["two\nlines"] = 1.0, 2.0
        file.attrs["text"] = np.bytes_(b"\xff")
        file.attrs["unicode"] = "\x1b[2J"
        file.attrs["greek"] = "β"
    command("info", tmp_path / "odd.h5", "--json")
    shown = capfd.readouterr().out
    shown.encode("utf-8")
    assert "\x1b" not in shown and r"two\nlines" in shown
    outcome = run(None, "info", tmp_path / "odd.h5", environment={"PYTHONIOENCODING": "ascii"})
    assert outcome.code == 0 and r"greek = \u03b2" in outcome.stdout


def test_names_of_files_need_not_be_text(tmp_path: Path) -> None:
    table, data = (tmp_path / os.fsdecode(name) for name in (b"\xff.csv", b"\xff.h5"))
    table.write_text("a,b\n1,2\n3,4\n")
    outcome = run(None, "convert", table, "-o", data)
    assert outcome.code == 0, outcome.stderr
    with h5py.File(data) as file:
        assert file.attrs["source"] == r"\udcff.csv"


def test_a_heap_in_which_hdf5_would_read_for_ever_is_refused(inputs: Inputs, tmp_path: Path, refused) -> None:
    with h5py.File(inputs.data, "r+") as file:
        file["Y"].attrs["columns"] = ["first", "second"]
    command("info", inputs.data)
    content = bytearray(inputs.data.read_bytes())
    heap = content.find(b"GCOL")
    assert heap > 0
    content[heap + 16 : heap + 32] = bytes(16)  # the header of its first entry
    inputs.data.write_bytes(content)
    for words in (["info", inputs.data], learn(inputs.data, tmp_path / "model.h5")):
        assert f"data.h5: is damaged: HDF5 would not come to an end at byte {heap + 16}" in refused(*words)
