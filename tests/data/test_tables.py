"""Data files from tables: every format gives back its numbers in little memory; errors name their place."""

from __future__ import annotations

import builtins
import tracemalloc
from pathlib import Path

import h5py
import numpy as np
import pytest

from mpigp.cli import Parser
from mpigp.commands import convert as command
from mpigp.commands import in_options
from mpigp.data import tables
from mpigp.errors import InputError

ROWS = 23


def run(*words: object) -> dict:
    """Run the command; an error reads as the command line shows it."""
    parser = Parser()
    command.add_arguments(parser)
    try:
        return command.run(parser.parse_args([str(word) for word in words]), None)
    except InputError as error:
        raise InputError(in_options(str(error), parser.options())) from error


def read(path: Path) -> dict[str, np.ndarray]:
    with h5py.File(path) as file:
        return {name: dataset[()] for name, dataset in file.items()}


def attribute(path: Path, dataset: str, name: str) -> list:
    with h5py.File(path) as file:
        return file[dataset].attrs[name].tolist()


def refused(*words: object) -> str:
    with pytest.raises(InputError) as caught:
        run(*words)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.fixture(params=[5, tables.BLOCK_ROWS], ids=["many-blocks", "one-block"], autouse=True)
def block_rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "BLOCK_ROWS", request.param)


@pytest.fixture
def values() -> np.ndarray:
    values = np.random.default_rng(0).standard_normal((ROWS, 4))
    values[3, 1] = values[20, 0] = np.nan
    return values


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out.h5"


def save(values: np.ndarray, path: Path) -> None:
    """Write the columns a, b, c, d in the format that the path's name says."""
    names = list("abcd")
    if path.suffix == ".csv":
        lines = [",".join("" if np.isnan(v) else repr(float(v)) for v in row) for row in values]
        path.write_text("\n".join([",".join(names), *lines]) + "\n")
    elif path.suffix == ".npy":
        np.save(path, np.asfortranarray(values) if path.stem == "fortran" else values)
    elif path.suffix == ".npz":
        (np.savez_compressed if path.stem == "compressed" else np.savez)(path, table=values)
    else:
        arrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        columns = [arrow.array(column, mask=np.isnan(column)) for column in values.T]
        parquet.write_table(arrow.table(columns, names=names), path, row_group_size=7)


FILES = ["t.csv", "t.npy", "fortran.npy", "t.npz", "compressed.npz", "t.parquet"]


@pytest.mark.parametrize("name", FILES)
def test_everything_goes_to_y(name: str, values: np.ndarray, tmp_path: Path, out: Path, capsys) -> None:
    save(values, tmp_path / name)
    figures = run(tmp_path / name, "-o", out)
    assert figures == {"file": str(out), "rows": ROWS, "missing": 2, "datasets": {"Y": (ROWS, 4)}}
    assert capsys.readouterr().out == f"{out}: {ROWS} rows of Y (4), 2 values missing\n"
    written = read(out)
    assert list(written) == ["Y"]
    np.testing.assert_array_equal(written["Y"], values)
    if name in ("t.csv", "t.parquet"):
        assert attribute(out, "Y", "columns") == list("abcd")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    ("options", "x", "y"),
    [
        (["--x-columns", "2,0"], [2, 0], [1, 3]),
        (["--y-columns", "3"], [0, 1, 2], [3]),
        (["--x-columns", "1", "--y-columns", "3,2"], [1], [3, 2]),
        (["--x-columns", "", "--y-columns", "3"], [], [3]),
        (["--x-columns", "0,1,2,3"], [0, 1, 2, 3], []),
    ],
)
def test_columns_by_number(name, options, x, y, values: np.ndarray, tmp_path: Path, out: Path) -> None:
    save(values, tmp_path / name)
    run(tmp_path / name, "-o", out, *options)
    written = read(out)
    assert set(written) == {key for key, columns in (("X", x), ("Y", y)) if columns}
    for key, columns in (("X", x), ("Y", y)):
        if columns:
            np.testing.assert_array_equal(written[key], values[:, columns])


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_columns_by_name(name: str, values: np.ndarray, tmp_path: Path, out: Path) -> None:
    save(values, tmp_path / name)
    run(tmp_path / name, "-o", out, "--x-columns", "d, a")
    np.testing.assert_array_equal(read(out)["X"], values[:, [3, 0]])
    assert attribute(out, "X", "columns") == ["d", "a"]
    assert attribute(out, "Y", "columns") == ["b", "c"]


# CSV


def csv(folder: Path, text: str, name: str = "t.csv", encoding: str = "utf-8") -> Path:
    (folder / name).write_bytes(text.encode(encoding))
    return folder / name


@pytest.mark.parametrize(
    ("text", "header", "expected"),
    [
        ("1,2\n3,4\n", "auto", [[1, 2], [3, 4]]),
        ("a,b\n3,4\n", "auto", [[3, 4]]),
        ("1,2\n3,4\n", "yes", [[3, 4]]),
        ("NA,nan\n3,4\n", "auto", [[np.nan, np.nan], [3, 4]]),
        (",b\n3,4\n", "auto", [[3, 4]]),
        ("\ufeffa,b\r\n\r\n3,4\r\n\r\n", "auto", [[3, 4]]),
        ('"a","b, c"\n"3","4"', "auto", [[3, 4]]),
        (" NaN , N/A\n, na\n-1e3, +.5\n", "no", [[np.nan] * 2, [np.nan] * 2, [-1e3, 0.5]]),
    ],
)
def test_csv_dialects(text: str, header: str, expected: list, tmp_path: Path, out: Path) -> None:
    run(csv(tmp_path, text), "-o", out, "--header", header)
    np.testing.assert_array_equal(read(out)["Y"], expected)


@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        ("t.csv", "1;2\n", ["--delimiter", ";"]),
        ("t.csv", "1\t2\n", ["--delimiter", "tab"]),
        ("t.tsv", "1\t2\n", []),
        ("t.dat", "1,2\n", ["--format", "csv"]),
    ],
)
def test_csv_delimiters_and_names(name: str, text: str, options: list, tmp_path: Path, out: Path) -> None:
    run(csv(tmp_path, text, name), "-o", out, *options)
    np.testing.assert_array_equal(read(out)["Y"], [[1.0, 2.0]])


@pytest.mark.parametrize("word", ["abc", "1_000", "1,5"])
def test_bad_text_is_named_by_row_and_column(word: str, tmp_path: Path, out: Path) -> None:
    rows = "".join(f"{i};{i}\n" for i in range(11))
    path = csv(tmp_path, f"a;b\n{rows}7;{word}\n{rows}")
    message = refused(path, "-o", out, "--delimiter", ";")
    assert f"{path}, row 12, column b: '{word}' is no number" in message
    assert not out.exists()


@pytest.mark.parametrize(
    ("text", "options", "named"),
    [
        ("", [], "is empty"),
        ("\n\n", [], "is empty"),
        ("a,b\n", [], "holds no rows"),
        ("a,b\n1,2\n1,2,3\n", [], "row 2: has 3 fields"),
        ("a,b\n1,2\n", ["--x-columns", "c"], "--x-columns: no column 'c'"),
        ("a,b\n1,2\n", ["--y-columns", "2"], "--y-columns: no column '2'"),
        ("a,b\n1,2\n", ["--labels", "c"], "--labels: no column 'c'"),
        ("a,a\n1,2\n", ["--x-columns", "a"], "several columns are named a"),
        ("a,b\n1,2\n", ["--x-columns", "a", "--y-columns", "0"], "column a is chosen twice"),
        ("a\n1\n", ["--labels", "a"], "no column is left"),
        ("a,b\n1,2\n", ["--delimiter", "ab"], "--delimiter 'ab'"),
        ("a,b\n1,x\n1,\n", ["--labels", "b"], "row 2, column b: the label is missing"),
    ],
)
def test_bad_tables_and_options_are_named(text: str, options: list, named: str, tmp_path: Path, out: Path) -> None:
    assert named in refused(csv(tmp_path, text), "-o", out, *options)
    assert not out.exists()


def test_text_that_is_not_utf8(tmp_path: Path, out: Path) -> None:
    assert "cannot be read as CSV" in refused(csv(tmp_path, "1,é\n", encoding="latin-1"), "-o", out)


def test_thousands_of_columns_keep_their_names(tmp_path: Path, out: Path) -> None:
    names = [f"column {i}" for i in range(6000)]
    run(csv(tmp_path, ",".join(names) + "\n" + ",".join(["1"] * 6000) + "\n"), "-o", out)
    assert attribute(out, "Y", "columns") == names


# labels


@pytest.mark.parametrize(
    ("labels", "expected", "classes"),
    [
        (["2", "0", "-1"], [2, 0, -1], None),
        (["2.0", "0.0", "2.0"], [2, 0, 2], None),
        (["oil", " gas", "oil "], [1, 0, 1], ["gas", "oil"]),
        (["1", "2", "x"], [0, 1, 2], ["1", "2", "x"]),
        (["0.5", "1", "NA"], [0, 1, 2], ["0.5", "1", "NA"]),
        (["99999999999", "5", "5"], [1, 0, 0], ["5", "99999999999"]),
    ],
)
def test_labels(labels: list, expected: list, classes: list | None, tmp_path: Path, out: Path) -> None:
    text = "y,kind\n" + "".join(f"{i},{label}\n" for i, label in enumerate(labels * 4))
    figures = run(csv(tmp_path, text), "-o", out, "--labels", "kind")
    written = read(out)
    assert figures["datasets"] == {"Y": (12, 1), "labels": (12,)}
    assert written["labels"].dtype == np.int32
    np.testing.assert_array_equal(written["labels"], expected * 4)
    np.testing.assert_array_equal(written["Y"][:, 0], np.arange(12))
    with h5py.File(out) as file:
        assert file["labels"].attrs.get("classes", np.array(None)).tolist() == classes


def test_too_many_classes(tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpigp.data.convert.MAX_CLASSES", 10)
    text = "".join(f"1,name{i}\n" for i in range(20))
    assert "more than 10 different labels" in refused(csv(tmp_path, text), "-o", out, "--labels", 1)


# NumPy's files


@pytest.mark.parametrize("savez", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npz_arrays_by_name(savez, order: str, values: np.ndarray, tmp_path: Path, out: Path) -> None:
    kinds = np.array(["gas", "oil"])[np.arange(ROWS) % 2]
    arrays = {
        "inputs": np.asarray(values, order=order),
        "targets": values[:, 0] + 1.0,
        "kind": kinds,
        "other": np.eye(2),
    }
    savez(tmp_path / "t.npz", **arrays)
    options = ["--x-columns", "inputs", "--y-columns", "targets", "--labels", "kind"]
    run(tmp_path / "t.npz", "-o", out, *options)
    written = read(out)
    np.testing.assert_array_equal(written["X"], values)
    np.testing.assert_array_equal(written["Y"][:, 0], values[:, 0] + 1.0)
    np.testing.assert_array_equal(written["labels"], np.arange(ROWS) % 2)
    assert attribute(out, "labels", "classes") == ["gas", "oil"]
    assert "other has 2" in refused(tmp_path / "t.npz", "-o", out, "--x-columns", "inputs", "--labels", "kind")


def test_npz_names_that_say_what_they_are(values: np.ndarray, tmp_path: Path, out: Path) -> None:
    np.savez(tmp_path / "t.npz", X=values, Y=values[:, :2], labels=np.arange(ROWS), scale=np.ones(3))
    run(tmp_path / "t.npz", "-o", out)
    written = read(out)
    np.testing.assert_array_equal(written["X"], values)
    np.testing.assert_array_equal(written["Y"], values[:, :2])
    np.testing.assert_array_equal(written["labels"], np.arange(ROWS))


@pytest.mark.parametrize(
    ("dtype", "options", "expected"),
    [
        ("f4", [], "f4"),
        (">f4", [], "f4"),
        ("u1", [], "f4"),
        ("i8", [], "f8"),
        ("?", [], "f4"),
        ("f4", ["--dtype", "float64"], "f8"),
        ("f8", ["--dtype", "float32"], "f4"),
    ],
)
@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_numbers_keep_their_precision(suffix, dtype, options, expected, tmp_path: Path, out: Path) -> None:
    array = (np.arange(12).reshape(6, 2) % 5).astype(dtype)
    (np.save if suffix == "npy" else np.savez)(tmp_path / f"t.{suffix}", array)
    run(tmp_path / f"t.{suffix}", "-o", out, *options)
    written = read(out)["Y"]
    assert written.dtype == np.dtype(expected)
    np.testing.assert_array_equal(written, array)


def test_one_dimension_is_one_column(tmp_path: Path, out: Path) -> None:
    np.save(tmp_path / "t.npy", np.arange(9.0))
    run(tmp_path / "t.npy", "-o", out)
    np.testing.assert_array_equal(read(out)["Y"], np.arange(9.0)[:, None])


@pytest.mark.parametrize("array", [np.zeros((2, 2, 2)), np.array(1.0), np.array(["a"]), np.array([1j])])
def test_arrays_that_are_no_tables(array: np.ndarray, tmp_path: Path, out: Path) -> None:
    np.save(tmp_path / "t.npy", array)
    assert "holds no array" in refused(tmp_path / "t.npy", "-o", out)
    if array.ndim != 1:
        np.savez(tmp_path / "t.npz", array)
        assert "holds no array" in refused(tmp_path / "t.npz", "-o", out)


def test_text_in_an_npz_array(tmp_path: Path, out: Path) -> None:
    np.savez(tmp_path / "t.npz", Y=np.array([["1", "2"], ["3", "oil"]]))
    assert "row 2, column Y[1]: 'oil' is no number" in refused(tmp_path / "t.npz", "-o", out)


# Parquet


def test_parquet_types(tmp_path: Path, out: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {
        "whole": arrow.array([1, None, 3]),
        "single": arrow.array([0.5, None, 2.5], arrow.float32()),
        "flag": arrow.array([True, False, None]),
        "text": arrow.array(["1", None, "1e3"]),
        "kind": arrow.array(["oil", "gas", "oil"]).dictionary_encode(),
        "when": arrow.array([0, 1, 2], arrow.timestamp("s")),
    }
    path = tmp_path / "t.parquet"
    parquet.write_table(arrow.table(columns), path)
    run(path, "-o", out, "--x-columns", "single", "--y-columns", "whole,flag,text", "--labels", "kind")
    written = read(out)
    assert written["X"].dtype == np.float32
    np.testing.assert_array_equal(written["X"][:, 0], [0.5, np.nan, 2.5])
    np.testing.assert_array_equal(written["Y"], [[1, 1, 1], [np.nan, 0, np.nan], [3, np.nan, 1000]])
    np.testing.assert_array_equal(written["labels"], [1, 0, 1])
    message = refused(path, "-o", out, "--y-columns", "when", "--x-columns", "whole")
    assert "column when: holds timestamp[" in message
    message = refused(path, "-o", out, "--y-columns", "kind", "--x-columns", "whole")
    assert "row 1, column kind: 'oil' is no number" in message


def test_parquet_without_pyarrow(tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: object, **more: object) -> object:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *rest, **more)  # type: ignore[arg-type]

    (tmp_path / "t.parquet").touch()
    monkeypatch.setattr(builtins, "__import__", without)
    assert "pip install 'mpigp[parquet]'" in refused(tmp_path / "t.parquet", "-o", out)


# files


@pytest.mark.parametrize("name", ["t.npy", "t.npz", "t.parquet"])
def test_damaged_files(name: str, values: np.ndarray, tmp_path: Path, out: Path) -> None:
    path = tmp_path / name
    save(values, path)
    path.write_bytes(path.read_bytes()[:300])
    assert f"{path}: cannot be read as" in refused(path, "-o", out)
    path.write_bytes(b"nonsense")
    assert f"{path}: cannot be read as" in refused(path, "-o", out)


def test_a_member_with_wrong_bytes(tmp_path: Path, out: Path) -> None:
    path = tmp_path / "t.npz"
    np.savez(path, Y=np.zeros((1000, 3)))
    data = bytearray(path.read_bytes())
    data[5000] ^= 255
    path.write_bytes(data)
    assert "CRC" in refused(path, "-o", out)
    assert not out.exists()


def test_paths(tmp_path: Path, out: Path) -> None:
    assert "does not exist" in refused(tmp_path / "none.csv", "-o", out)
    assert "is not a file" in refused(tmp_path, "-o", out)
    assert "--format" in refused(csv(tmp_path, "1,2\n", "t.dat"), "-o", out)
    assert "does not exist" in refused(csv(tmp_path, "1,2\n"), "-o", tmp_path / "none" / "out.h5")


def test_a_failure_leaves_the_old_file(tmp_path: Path, out: Path) -> None:
    out.write_bytes(b"precious")
    path = csv(tmp_path, "1\n" * 20 + "x\n")
    refused(path, "-o", out)
    assert out.read_bytes() == b"precious"
    assert set(tmp_path.iterdir()) == {out, path}


@pytest.mark.parametrize("name", ["t.csv", "t.npy", "compressed.npz"])
def test_memory_does_not_grow_with_the_rows(name, tmp_path: Path, out: Path, monkeypatch) -> None:
    monkeypatch.setattr(tables, "BLOCK_ROWS", 500)
    peaks, lengths = [], (2000, 16000)
    for rows in lengths:
        save(np.random.default_rng(0).standard_normal((rows, 4)), tmp_path / name)
        tracemalloc.start()
        run(tmp_path / name, "-o", out)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    added = (lengths[1] - lengths[0]) * 4 * 8  # bytes of numbers
    assert peaks[1] - peaks[0] < 0.1 * added
