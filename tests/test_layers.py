"""The layers: a package imports only those listed before it, and functions stay small."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import mpigp

PACKAGE = Path(mpigp.__file__).parent
LAYERS = ["native", "numerics", "kernels", "gp", "data", "mpi", "files", "fit", "launch", "estimators", "report",
          "scaling", "commands"]  # fmt: skip
ORDER = ["errors", "types", "chunks", *LAYERS, "cli", "__main__", "__init__"]
MATHEMATICS = LAYERS[: LAYERS.index("gp") + 1]
ESTIMATORS = ("SparseGPRegression", "BayesianGPLVM")  # their constructors have a parameter for each option
MOST_MODULES, MOST_LINES, MOST_PARAMETERS = 8, 60, 7

TREES = {path.relative_to(PACKAGE): ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}


def layer(module: Path) -> str:
    return module.parts[0].removesuffix(".py")


def imported(module: Path) -> list[list[str]]:
    """Return the names that a module imports, in functions and for type checking too, each in its parts."""
    names = []
    for node in ast.walk(TREES[module]):
        if isinstance(node, ast.Import):
            names += [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the layer"
            names += [f"{node.module}.{each.name}" for each in node.names]
    return [name.split(".") for name in names]


@pytest.mark.parametrize("module", TREES, ids=str)
def test_a_package_imports_only_those_before_it(module: Path) -> None:
    own = ORDER.index(layer(module))
    layers = {name[1] for name in imported(module) if name[0] == "mpigp"} - {"__version__"}
    assert not [each for each in layers if ORDER.index(each) > own]


@pytest.mark.parametrize("module", [path for path in TREES if layer(path) in MATHEMATICS], ids=str)
def test_the_mathematics_knows_nothing_of_mpi_files_and_printing(module: Path) -> None:
    used = {node.id for node in ast.walk(TREES[module]) if isinstance(node, ast.Name)}
    used |= {name[0] for name in imported(module)}
    assert not used & {"mpi4py", "h5py", "print"}


def test_few_modules_lie_beside_the_packages() -> None:
    assert len(list(PACKAGE.glob("*.py"))) <= MOST_MODULES


@pytest.mark.parametrize("module", TREES, ids=str)
def test_functions_are_short_and_take_few_parameters(module: Path) -> None:
    for owner in ast.walk(TREES[module]):
        for function in ast.iter_child_nodes(owner):
            if not isinstance(function, ast.FunctionDef):
                continue
            place = f"{module}:{function.lineno}: {function.name}"
            lines = (function.end_lineno or 0) - function.lineno + 1
            assert lines <= MOST_LINES, f"{place} has {lines} lines"
            if isinstance(owner, ast.ClassDef) and owner.name in ESTIMATORS and function.name == "__init__":
                continue
            parameters = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
            names = [each.arg for each in parameters if each.arg not in ("self", "cls")]
            assert len(names) <= MOST_PARAMETERS, f"{place} takes {len(names)} parameters"
