"""The model file: the one module that knows the paths in it, writes them, and checks what it reads.

A dataset's shape is written in symbols: n rows, q dimensions, m inducing points, d outputs; a parameters of the kernel,
k groups of outputs, i iterations, r ranks, p phases. A symbol has the size that the reader expects of it, or that of
the first dataset that was read with it; every other dataset must agree.
"""

import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import h5py
import numpy as np

from mpigp import __version__
from mpigp.data.hdf5 import check_storage, dataset, h5py_errors, plain, read_all, read_rows, reading, require_finite
from mpigp.errors import InputError
from mpigp.files.gather import Attributes
from mpigp.files.provenance import Timing
from mpigp.gp.bound import BOUNDS, Bound, Group, group_of_outputs
from mpigp.gp.embedding import Candidates, candidates
from mpigp.gp.parameters import Globals, Standardization
from mpigp.gp.posterior import Posterior
from mpigp.gp.statistics import MODELS, Model, model_of
from mpigp.kernels.registry import DEFAULT, backend_of, canonical, is_external, parameter_count
from mpigp.mpi.distributed_rows import DistributedRows
from mpigp.mpi.timers import PHASES
from mpigp.mpi.vectors import MultiVector
from mpigp.numerics.cholesky import Whitening
from mpigp.types import Floats

FORMAT = "mpigp-model"
VERSION = 1  # of the model files that are written, and the newest that is read
MU = "latent/mu"
PARAMETERS = {"Z": "mq", "kernel/variance": "", "kernel/alpha": "a", "beta": ""}  # in the order of Globals
LATENT = {MU: "nq", "latent/S": "nq"}
STANDARDIZE = {x: {f"standardize/{x}_mean": size, f"standardize/{x}_scale": size} for x, size in ("xq", "yd")}
POSTERIOR = {"posterior/order": "m", "posterior/L": "mm", "posterior/L_B": "mm", "posterior/g": "md"}
GROUPED = {"posterior/L_B": "kmm", "posterior/group": "d"}  # where outputs lack other rows than others
COLUMNS = {"x": ("columns/x", "q"), "y": ("columns/y", "d")}
TRACE = {f"trace/{name}": "i" for name in ("bound", "gradient_norm", "seconds", "evaluations")}
VALIDATION = {f"trace/validation_{name}": "i" for name in ("rmse", "nlpd")}  # of a fit with rows to validate by
TIMING = {"timing/phases": "rp", "timing/rows": "r"}
VECTORS = "checkpoint/vectors"
UNITS = {"m": "points", "a": "parameters", "q": "columns", "d": "columns", "i": "iterations", "r": "ranks"}
POSITIVE = {"kernel/variance", "beta", "latent/S", "standardize/x_scale", "standardize/y_scale"}
FITTED = "give a model file that `mpigp fit` wrote"
BOTH = "write both mean and scale, or neither"
REMEDIES = {"standardize": BOTH, "posterior": FITTED, "trace": FITTED, "timing": FITTED}
KERNEL = "the model's kernel, package.module:Name, where it is not built in: the module is imported"  # of an option
REMEDY = ("a parameter file has /Z (m, q), /beta, /kernel/variance, /kernel/alpha (q,), "
          "and for a GPLVM /latent/mu and /latent/S (n, q)")  # fmt: skip


class ModelFile:
    """A model file, or a file of parameters, that is open for reading; `sizes` of symbols may be known beforehand."""

    def __init__(self, file: h5py.File, **sizes: int) -> None:
        self.file, self.name = file, file.filename
        self.checkpoint = f"{self.name}: /checkpoint"  # its place, as messages name it
        self.sizes = {"p": len(PHASES)} | sizes
        version = self.attribute("version", VERSION)
        if not isinstance(version, int) or version > VERSION:
            readable = f"this mpigp reads files up to version {VERSION}"
            raise InputError(f"{self.name}: attribute version: is {version!s}: {readable}: install a newer mpigp")

    @property
    def kind(self) -> str:
        """The name of the model: one of MODELS."""
        name = str(self.attribute("model", ""))
        if name not in MODELS:
            raise InputError(f"{self.name}: attribute model: is {name!r}: set it to one of {', '.join(MODELS)}")
        return name

    def kernel(self, named: str | None = None) -> str:
        """Return the name of the kernel. A file is data: one that is not built in is imported only if the user has
        `named` it himself."""
        name = self.kernel_name()
        if named is not None and self._given_kernel(named) != name:
            raise InputError(f"`kernel`: is {named!r}, and that of {self.name} is {name!r}: give this, or leave it out")
        if named is None and is_external(name):
            remedy = "if you trust that module, name it by `kernel`"
            raise InputError(f"{self.name}: attribute kernel: is {name!r}, which is not built in: {remedy}")
        return name

    def kernel_name(self) -> str:
        """Return the name of the file's kernel, with its columns as numbers; nothing is imported."""
        name, q, names = str(self.attribute("kernel", DEFAULT)), *self._inputs()
        try:
            name = canonical(name, q, names)
            self.sizes.setdefault("a", parameter_count(name, q))
        except InputError as error:
            raise InputError(f"{self.name}: attribute kernel: {first_line(error)}") from error
        return name

    def is_kernel(self, kernel: str) -> bool:
        """Return whether a name is that of the file's kernel."""
        try:
            return self._given_kernel(kernel) == self.kernel_name()
        except InputError:
            return False

    def _given_kernel(self, kernel: str) -> str:
        """Return the name of a kernel that the user has given, with its columns as numbers."""
        try:
            return canonical(kernel, *self._inputs())
        except InputError as error:
            raise InputError(f"`kernel`: {error}") from error

    def _inputs(self) -> tuple[int, list[str] | None]:
        """Return the number of inputs, and their names if they have some."""
        q = self._dataset("Z", PARAMETERS["Z"]).shape[1]
        return q, self.columns().get("x") if self.has(COLUMNS["x"][0]) else None

    @property
    def bound(self) -> str:
        """The name of the bound: one of BOUNDS."""
        name = str(self.attribute("bound", BOUNDS[0]))
        if name not in BOUNDS:
            raise InputError(f"{self.name}: attribute bound: is {name!r}: set it to one of {', '.join(BOUNDS)}")
        return name

    def model(self, kernel: str | None = None, bound: str | None = None) -> Model:
        """Return the model with its kernel, which must be built in, and its bound, or with others that are given."""
        kind, name = self.kind, self.kernel() if kernel is None else self._given_kernel(kernel)
        try:
            model = model_of(kind, name, self.bound if bound is None else bound)
        except InputError as error:
            if kernel is not None:
                raise InputError(f"`kernel`: {error}") from error
            raise InputError(f"{self.name}: attribute kernel: {first_line(error)}") from error
        self.sizes["a"] = model.backend.parameters(self._inputs()[0])
        return model

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute of the file as a plain value, or the default."""
        with h5py_errors(f"{self.name}: attribute {name}"):
            return plain(self.file.attrs[name]) if name in self.file.attrs else default

    def has(self, name: str) -> bool:
        """Return whether the file has a dataset or group."""
        with h5py_errors(f"{self.name}: /{name}"):
            return name in self.file

    def rows(self) -> int:
        """Return the number of rows that the model was learned from."""
        n = self.attribute("n")
        if not isinstance(n, int) or n < 1:
            raise InputError(f"{self.name}: attribute n: is {n!r}: it must be the number of rows: {FITTED}")
        return n

    def jitter(self, default: float) -> float:
        """Return the jitter that the file's attribute holds, or the default."""
        value = self.attribute("jitter", default)
        if not isinstance(value, (int, float)) or not 0 <= value < np.inf:
            raise InputError(f"{self.name}: attribute jitter: is {value!r}: make it one number ≥ 0")
        return float(value)

    @property
    def learned(self) -> bool:
        """Whether a fit has written the file."""
        return self.has("posterior") and self.has("trace")

    def parameters(self) -> Globals:
        """Return the global parameters."""
        self.kernel_name()
        Z, variance, alpha, beta = self._section(PARAMETERS)
        self._check_positive(alpha)
        if not Z.size:
            least = "there must be at least one inducing point and one dimension"
            raise InputError(f"{self.name}: /Z: has shape {Z.shape}: {least}")
        return Globals(Z, float(variance), alpha, float(beta))

    def _check_positive(self, alpha: Floats) -> None:
        """Refuse a period or a shape of zero; the weights of a kernel may be zero."""
        name, q = self.kernel_name(), self._inputs()[0]
        named = [] if is_external(name) else backend_of(name).named_parameters(q)
        for each, value in zip(named, alpha, strict=False):
            if each.name in ("period", "shape") and not value > 0:
                raise InputError(f"{self.name}: /kernel/alpha: {each.text()} is {value:g}: make it > 0")

    def latent(self, start: int, stop: int) -> tuple[Floats, Floats]:
        """Return rows [start, stop) of mu and S."""
        mu, S = (self._in_range(name, read_rows(self._dataset(name, shape), start, stop), start)
                 for name, shape in LATENT.items())  # fmt: skip
        return mu, S

    def candidates(self) -> Candidates:
        """Return some of the latent points, evenly spaced."""
        with h5py_errors(f"{self.name}: /latent"):
            found = candidates(*(self._dataset(name, shape) for name, shape in LATENT.items()))
        for name, values in zip(LATENT, found, strict=True):
            self._in_range(name, require_finite(f"{self.name}: /{name}", values))
        return found

    def standardization(self, column: str) -> Standardization | None:
        """Return how the columns `x` or `y` were standardized; None where they were not."""
        names = STANDARDIZE[column]
        return Standardization(*self._section(names)) if any(self.has(name) for name in names) else None

    def posterior(self, kernel: str | None = None) -> Posterior:
        """Return all that predictions need; a kernel that is not built in must be named by the user."""
        name = self.kernel(kernel)
        model, parameters = self.model(name if is_external(name) else None), self.parameters()
        grouped = self.has("posterior/group")
        shapes = POSTERIOR | (GROUPED if grouped else {})
        order, L, L_B, g, *group = self._section(shapes)
        m, d = g.shape
        with np.errstate(invalid="ignore"):  # of numbers that are no groups
            groups = group[0].astype(np.intp) if grouped else np.zeros(d, np.intp)
        L_B = L_B.reshape(-1, m, m)
        if sorted(order) != list(range(m)) or not np.isin(groups, np.arange(len(L_B))).all():
            raise InputError(f"{self.name}: /posterior: does not fit /Z, which has {m} points: {FITTED}")
        Z = np.ascontiguousarray(parameters.Z[order.astype(np.intp)])
        units = self.standardization("x"), self.standardization("y")
        posterior = Posterior(model.name, *parameters._replace(Z=Z), L, L_B, g, groups, *units, model.backend.name)
        if not posterior.usable:
            raise InputError(f"{self.name}: /posterior: no prediction comes of these numbers: {FITTED}")
        return posterior

    def columns(self) -> dict[str, list[str]]:
        """Return by "x" and "y" the names of the columns, where the data of the fit had some."""
        result = {}
        for column, (path, symbol) in COLUMNS.items():
            names: list[str] = []
            with h5py_errors(f"{self.name}: /{path}"):
                if path not in self.file:
                    continue
                item = self.file.get(path)
                if isinstance(item, h5py.Dataset) and item.ndim == 1 and h5py.check_string_dtype(item.dtype):
                    check_storage(item)
                    names = item.asstr(errors="replace")[()].tolist()
            size = self.sizes.setdefault(symbol, len(names))
            if not names or len(names) != size:
                raise InputError(f"{self.name}: /{path}: must hold the names of {size} {UNITS[symbol]}: {FITTED}")
            result[column] = names
        return result

    def outputs(self) -> int | None:
        """Return the number of outputs, as far as the file tells it."""
        for name, shape in (*POSTERIOR.items(), *STANDARDIZE["y"].items()):
            if "d" in shape and self.has(name):
                self._dataset(name, shape)
        return self.sizes.get("d")

    def trace(self) -> dict[str, list[Any]]:
        """Return by name the entries of every iteration; nothing in a file without a trace."""
        if not self.has("trace"):
            return {}
        shapes = TRACE | (VALIDATION if any(self.has(name) for name in VALIDATION) else {})
        with h5py_errors(f"{self.name}: /trace"):
            series = {name: self._dataset(name, shape)[()].tolist() for name, shape in shapes.items()}
        return {name.removeprefix("trace/"): values for name, values in series.items()}

    def timing(self) -> Timing | None:
        """Return the seconds and rows of the ranks; None in a file without."""
        if not self.has("timing/phases"):
            return None
        seconds, rows = self._section(TIMING)
        with h5py_errors(f"{self.name}: /timing/phases"):
            names = plain(self.file["timing/phases"].attrs.get("names"))
        if names != list(PHASES) or not len(rows) or not (np.abs(rows) < 2**53).all():
            raise InputError(f"{self.name}: /timing: must be of ranks × {', '.join(PHASES)}: {FITTED}")
        return Timing(seconds, rows.astype(np.int64))

    def provenance(self) -> dict[str, Any]:
        """Return the command, the versions and the machine that made the file, as far as it has them."""
        texts = {key: self.attribute(key) for key in ("command", "versions", "machine") if key in self.file.attrs}
        for key in texts.keys() - {"command"}:
            try:
                texts[key] = dict(json.loads(texts[key]))
            except (TypeError, ValueError, RecursionError) as error:
                raise InputError(f"{self.name}: attribute {key}: is not a JSON object: {FITTED}") from error
        return texts

    def identity(self) -> dict[str, Any] | None:
        """Return what the checkpoint was made with; None in a file without a checkpoint."""
        if not self.has("checkpoint/options"):
            return None
        with h5py_errors(self.checkpoint):
            written = dict(json.loads(self.file["checkpoint/options"].asstr()[()]))
            return {"kernel": DEFAULT, "bound": BOUNDS[0]} | written  # older versions did not write these

    def restore(self, vectors: Mapping[str, MultiVector], start: int, stop: int) -> dict[str, Any]:
        """Fill vectors with the checkpoint's, rows [start, stop) of their local parts; return its numbers by name."""
        with h5py_errors(self.checkpoint):
            for name, block in vectors.items():
                shared = read_all(dataset(self.file, f"{VECTORS}/{name}/shared", 2, FITTED))
                for path, segment in _segments(name, block):
                    rows = dataset(self.file, path, 2, FITTED)[start:stop].ravel()
                    np.copyto(segment, require_finite(f"{self.name}: /{path}", rows).reshape(segment.shape))
                np.copyto(block.shared, shared.reshape(block.shared.shape))
            numbers = self.file["checkpoint/numbers"]
            for name, item in numbers.items():
                check_storage(item)
                if item.dtype.kind not in "biuf":
                    raise ValueError(f"{name} holds {item.dtype}, not real numbers")
            return {name: item[()] for name, item in numbers.items()}

    def image(self) -> bytes:
        """Return the bytes of a file with all but the latent points and the checkpoint."""
        memory = io.BytesIO()
        with h5py_errors(self.name), h5py.File(memory, "w") as copy:
            self.file.visititems(lambda _, item: check_storage(item) if isinstance(item, h5py.Dataset) else None)
            copy.attrs.update(self.file.attrs)
            for name in self.file.keys() - {"latent", "checkpoint"}:
                self.file.copy(name, copy)
        return memory.getvalue()

    def bits(self) -> dict[str, bytes]:
        """Return the bits of what was learned, by path; the same for two fits that went the same way."""
        names = [*PARAMETERS, *LATENT, "trace/bound", *VALIDATION]
        return {name: self.file[name][()].tobytes() for name in names if self.has(name)}

    def _dataset(self, name: str, shape: str) -> h5py.Dataset:
        """Return a dataset of real numbers whose shape, in symbols, agrees with those that are known."""
        item = dataset(self.file, name, len(shape), REMEDIES.get(name.partition("/")[0], REMEDY))
        wanted = tuple(self.sizes.setdefault(symbol, size) for symbol, size in zip(shape, item.shape, strict=True))
        if item.shape != wanted:
            vector = len(wanted) == 1
            has = f"{len(item)} entries" if vector else f"shape {item.shape}"
            fits = f"they have {wanted[0]} {UNITS[shape]}" if vector else f"it must be {wanted}"
            others = "does not fit /Z, the data or the rest of the file, with which it must agree"
            raise InputError(f"{self.name}: /{name}: has {has}: {others}: {fits}")
        return item

    def _section(self, shapes: Mapping[str, str]) -> Iterator[Floats]:
        """Yield small datasets as finite numbers."""
        return (self._in_range(name, read_all(self._dataset(name, shape))) for name, shape in shapes.items())

    def _in_range(self, name: str, values: Floats, first: int = 0) -> Floats:
        """Return values, of rows from the first on, that are positive where they must be, and ≥ 0 where they may."""
        wrong = values <= 0 if name in POSITIVE else values < 0 if name == "kernel/alpha" else np.False_
        if wrong.any():
            entry = np.argwhere(wrong)[0]
            where = f"{('entry', 'row')[values.ndim - 1]} {first + entry[0]} (counted from 0) " if values.ndim else ""
            least = "≥ 0" if name == "kernel/alpha" else "> 0"
            raise InputError(f"{self.name}: /{name}: {where}is {values[tuple(entry)]:g}: make it {least}")
        return values


def first_line(error: InputError) -> str:
    """Return the line of an error without the text that it points to: that of a file is not the user's."""
    return str(error).splitlines()[0]


@contextmanager
def open_model(path: str | os.PathLike[str], **sizes: int) -> Iterator[ModelFile]:
    """Open a model file for reading; `sizes` of symbols may be known beforehand."""
    with reading(path) as file:
        yield ModelFile(file, **sizes)


def summary(file: h5py.File) -> dict[str, Any]:
    """Return what a model has learned, as far as the file has it."""
    result = {"model": plain(file.attrs["model"])} if "model" in file.attrs else {}
    known = ("Z", "beta", "kernel/variance", "kernel/alpha", *(path for path, _ in COLUMNS.values()), "trace/bound")
    items = {name: item for name in known if isinstance(item := file.get(name), h5py.Dataset)}
    for item in items.values():
        check_storage(item)
    Z, bound = items.pop("Z", None), items.pop("trace/bound", None)
    if Z is not None and Z.ndim == 2:
        result["m"], result["q"] = Z.shape
    titles = {path: f"{column}_columns" for column, (path, _) in COLUMNS.items()}
    for name, item in items.items():
        value = plain(item[()])
        if name == "kernel/alpha" and "names" in item.attrs:  # of a composed kernel
            names = plain(item.attrs["names"])
            value = (
                dict(zip(names, value, strict=True)) if isinstance(value, list) and len(names) == len(value) else value
            )
        result[titles.get(name, name.removeprefix("kernel/"))] = value
    if bound is not None and bound.ndim == 1 and len(bound):
        result["bound"], result["iterations"] = plain(bound[-1]), len(bound)
    return result


# Writing: what a section holds, by path, as mpigp.files.gather takes it.


def attributes(model: Model, others: Mapping[str, Any]) -> Attributes:
    """Return the attributes of a fitted model, the others among them: of its fit, and its provenance."""
    kernel = {} if model.backend.name == DEFAULT else {"kernel": model.backend.name}
    own = {"format": FORMAT, "version": VERSION, "model": model.name, "bound": model.bound, "mpigp": __version__}
    own |= {**kernel, **others}
    return {"/": own, "timing/phases": {"names": PHASES}}


def parameter_attributes(model: Model, q: int, columns: Mapping[str, list[str]]) -> Attributes:
    """Return the attributes of /kernel/alpha: the names of a composed kernel's parameters, with those of columns."""
    names = [each.text(columns.get("x")) for each in model.backend.named_parameters(q)]
    return {"kernel/alpha": {"names": names}} if names else {}


def section(names: Iterable[str], values: Iterable[Any]) -> dict[str, Any]:
    """Return values by the paths of a section: of PARAMETERS in the order of Globals, of LATENT mu and S (n, q)."""
    return dict(zip(names, values, strict=True))


def fitted_sections(
    parameters: Globals,
    standardized: Mapping[str, Standardization],
    posterior: tuple[Whitening, Bound, Sequence[Group]],
    trace: Mapping[str, Sequence[float]],
    timing: Timing,
) -> dict[str, Any]:
    """Return the sections of a fitted model that do not grow with the rows.

    The posterior is for the inducing points in its order and the kernel k of unit variance. With s = β σ_f²:
    mean = s kᵀ L⁻ᵀ g and variance = σ_f² (1 − ‖L⁻¹k‖² + ‖L_B⁻¹ L⁻¹k‖²) of the function.
    """
    whitening, bound, groups = posterior
    grouped = len(groups) > 1
    L_B = bound.L_B if grouped else bound.L_B[0]
    sections = section(PARAMETERS, parameters) | section(TIMING, timing)
    sections |= section(POSTERIOR, (whitening.order, whitening.L, L_B, np.ascontiguousarray(bound.g)))
    if grouped:
        sections["posterior/group"] = group_of_outputs(groups)
    for column, units in standardized.items():
        sections |= section(STANDARDIZE[column], units)
    for name, each in trace.items():
        sections[f"trace/{name}"] = np.array(each, int if name == "evaluations" else float)
    return sections


def column_section(columns: Mapping[str, list[str]]) -> dict[str, Any]:
    """Return the names of columns, by "x" and "y", of a model file or a result."""
    return {COLUMNS[column][0]: names for column, names in columns.items()}


def checkpoint_section(
    identity: Mapping[str, Any],
    numbers: Mapping[str, Any],
    vectors: Mapping[str, MultiVector],
    distributed: Callable[[Floats], DistributedRows],
) -> dict[str, Any]:
    """Return the section that a fit continues from; the vectors' segments are made rows by `distributed`."""
    datasets: dict[str, Any] = {"checkpoint/options": json.dumps(identity, sort_keys=True)}
    datasets |= {f"checkpoint/numbers/{name}": value for name, value in numbers.items()}
    for name, block in vectors.items():
        datasets[f"{VECTORS}/{name}/shared"] = block.shared
        datasets |= {path: distributed(segment) for path, segment in _segments(name, block)}
    return datasets


def _segments(vectors: str, block: MultiVector) -> Iterator[tuple[str, Floats]]:
    """Yield the paths of the segments of the local parts of vectors in a checkpoint, and this rank's numbers."""
    for index, vector in enumerate(block.local):
        for place, segment in enumerate(vector):
            yield f"{VECTORS}/{vectors}/local/{index}/{place}", segment
