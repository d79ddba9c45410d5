"""Output files: inputs, devices and links are not harmed, permissions are kept, and nothing else is deleted."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from mpigp.errors import InputError
from mpigp.files.atomic import check_writable, discard_parts, replacing, stamp
from tests.support.inputs import write_inputs

TABLE = "a,b\n1,2\n3,4\n"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def replace(path: Path, content: str = "new") -> None:
    with replacing(path) as temporary:
        temporary.write_text(content)


@pytest.mark.parametrize("name", ["t.csv", "symbolic.csv", "hard.csv", "loop/../t.csv"])
def test_a_table_is_not_converted_onto_itself(name: str, tmp_path: Path, refused) -> None:
    table = tmp_path / "t.csv"
    table.write_text(TABLE)
    (tmp_path / "symbolic.csv").symlink_to(table)
    (tmp_path / "hard.csv").hardlink_to(table)
    (tmp_path / "loop").mkdir()
    assert "is an input" in refused("convert", table, "-o", tmp_path / name)
    assert table.read_text() == TABLE and (tmp_path / "symbolic.csv").is_symlink()


def test_a_device_and_a_pipe_are_no_outputs(tmp_path: Path, refused) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(os.devnull)
    table = tmp_path / "t.csv"
    table.write_text(TABLE)
    for path in (tmp_path / "pipe", tmp_path / "link"):
        assert "is a device or a pipe: name a file as the output" in refused("convert", table, "-o", path)
        with pytest.raises(InputError, match="is a device or a pipe"):
            replace(path)
    with pytest.raises(InputError, match="is a device or a pipe"):
        check_writable(os.devnull)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode) and stat.S_ISCHR(os.stat(os.devnull).st_mode)
    inputs = write_inputs(tmp_path, "regression", 20, 3, 1, 1)
    fit = ["fit", inputs.data, "--model", "regression", "--inducing", 3, "-o"]
    assert "is a device or a pipe" in refused(*fit, tmp_path / "pipe")  # and does not wait for its writer
    assert stamp(tmp_path / "pipe") is None


def test_a_pipe_is_no_input(tmp_path: Path, refused) -> None:
    os.mkfifo(tmp_path / "pipe.h5")
    pipe = tmp_path / "pipe.h5"
    inputs = write_inputs(tmp_path, "regression", 20, 3, 1, 1)
    fit = ["fit", "--model", "regression", "--inducing", 3, "-o", tmp_path / "model.h5"]
    for words in (["info", pipe], [*fit, pipe], ["evaluate", inputs.data, "--params", pipe],
                  ["convert", pipe, "-o", tmp_path / "out.h5", "--format", "csv"]):  # fmt: skip
        assert "is not a file" in refused(*words)


def test_the_permissions_of_a_file_stay(tmp_path: Path) -> None:
    path = tmp_path / "private"
    path.write_text("old")
    for wanted in (0o600, 0o640, 0o444):
        path.chmod(wanted)
        replace(path)
        assert mode(path) == wanted and path.read_text() == "new"
    before = os.umask(0o027)
    try:
        replace(tmp_path / "new")
    finally:
        os.umask(before)
    assert mode(tmp_path / "new") == 0o640


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser may give files away")
def test_the_owner_of_a_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "theirs"
    path.write_text("old")
    os.chown(path, 1234, 2345)
    replace(path)
    assert (path.stat().st_uid, path.stat().st_gid, path.read_text()) == (1234, 2345, "new")


def test_a_link_is_written_through(tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    target, link, dangling = folder / "target", tmp_path / "link", tmp_path / "dangling"
    target.write_text("old")
    target.chmod(0o600)
    link.symlink_to(target)
    dangling.symlink_to(Path("elsewhere") / "made")
    for path in (link, dangling):
        check_writable(path)
        replace(path)
        assert path.is_symlink() and path.read_text() == "new"
    assert sorted(each.name for each in folder.iterdir()) == ["made", "target"] and mode(target) == 0o600
    (tmp_path / "nowhere").symlink_to(tmp_path / "missing" / "file")
    with pytest.raises(InputError, match=r"the folder .*missing does not exist"):
        check_writable(tmp_path / "nowhere")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    with pytest.raises(InputError, match="a loop of links"):
        check_writable(tmp_path / "circle")


def test_only_the_parts_of_a_file_itself_are_discarded(tmp_path: Path) -> None:
    parts = [".model.h5.abcd_123.part", ".model.abcd_123.part", ".model.h5", ".other.abcd_123.part", ".model.part"]
    for name in parts:
        (tmp_path / name).touch()
    discard_parts(tmp_path / "model")
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(set(parts) - {".model.abcd_123.part"})
    with replacing(tmp_path / "model") as temporary:  # its names are those that are looked for
        discard_parts(tmp_path / "model.h5")
        assert temporary.exists()
        discard_parts(tmp_path / "model")
        assert not temporary.exists()
        temporary.touch()


def test_outputs_and_the_configuration_are_three_files(tmp_path: Path, refused) -> None:
    inputs = write_inputs(tmp_path, "regression", 20, 3, 1, 1)
    config = tmp_path / "run.toml"
    config.write_text('model = "regression"\ninducing = 3\n')
    fit = ["fit", inputs.data, "--config", config, "-o"]
    assert "is the file of --config" in refused(*fit, config)
    assert "is the file of --config" in refused(*fit, tmp_path / "model.h5", "--metrics", config)
    both = refused(*fit, tmp_path / "model.h5", "--metrics", tmp_path / "." / "model.h5")
    assert "model.h5: is an input or another output of this command" in both
    assert config.read_text().startswith("model") and not (tmp_path / "model.h5").exists()
