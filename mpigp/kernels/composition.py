"""The parameters of a composed kernel: their order and names, and how they enter the compiled loops.

A term has a variance, unless one of its parts is linear, whose weights are variances themselves. It is followed by the
parameters of the term's parts:

    rbf, matern12, matern32, matern52    alpha of each column
    rq                                   alpha of each column, and its shape c
    periodic                             alpha of each column, and the period of each column
    linear                               alpha of each column
    bias                                 none

One stationary part of all columns (`rbf`, `matern32`) is no composition: its only parameters are alpha, and the
variance is that of the model.

The loops take kernels of scale one, k / Σ v with v the variances and, in terms with a linear part, that part's alpha.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpigp import native
from mpigp.errors import InputError
from mpigp.kernels.expression import Expression, Part
from mpigp.types import Floats

PROFILES = {"rbf": 0, "matern12": 1, "matern32": 2, "matern52": 3, "rq": 4, "linear": 5, "bias": 6, "periodic": 0}
STATIONARY = ("rbf", "matern12", "matern32", "matern52")  # without other parameters than alpha
NEAREST = 2.0**-20  # of the extent of the rows: a lengthscale is not taken to be more than one over this times as long


class Parameter(NamedTuple):
    """A parameter of a composed kernel: of which term and part, of which kind that is, which one, and of which column,
    if it is one of several; and where a fit starts, in the data's units, if the user has said it."""

    term: int
    part: str
    kind: str
    name: str
    column: int | None
    start: float | None = None

    def text(self, columns: list[str] | None = None) -> str:
        """Return its name, as in `rbf.alpha[0]`, or with the name of the column, where no other column has it too."""
        if self.column is None:
            return f"{self.part}.{self.name}"
        named = columns is not None and columns.count(columns[self.column]) == 1
        return f"{self.part}.{self.name}[{columns[self.column] if columns and named else self.column}]"

    def is_among(self, names: Collection[str]) -> bool:
        """Return whether one of the names is that of the parameter, of its part, or of its sort in all parts."""
        return any(name in names for name in (self.part, self.name, f"{self.part}.{self.name}"))


class Feature(NamedTuple):
    """A feature of a point, and the places of its parameters; a place is −1 where there is none."""

    column: int
    weight: int  # its weight is `share` of this parameter
    share: float
    period: int
    turn: int  # 0 for the input itself, 1 for its cosine, −1 for its sine
    shifted: bool  # whether the kernel depends on differences of inputs alone, so that a center may be subtracted


class Factor(NamedTuple):
    """A factor of a term: its profile, term, features [first, last), and the place of its shape."""

    profile: int
    term: int
    first: int
    last: int
    shape: int


@dataclass(frozen=True)
class Composition:
    """An expression for inputs of q columns, as parameters, features and factors.

    terms : the place of each term's variance, −1 where it has none
    scales : the places of the parameters that add up to the kernel's scale; none where it is one
    single : whether it is one stationary part of all columns
    """

    parameters: list[Parameter]
    features: list[Feature]
    factors: list[Factor]
    terms: list[int]
    scales: list[int]
    single: bool

    @cached_property
    def unit(self) -> bool:
        """Whether k(x, x) is one at scale one."""
        return all(factor.profile != PROFILES["linear"] for factor in self.factors)

    @property
    def loop_parameters(self) -> int:
        """How many numbers the loops have gradients of: weights; if composed, frequencies, shapes and terms too."""
        F = len(self.features)
        return F if self.single else 2 * F + len(self.factors) + len(self.terms)

    @cached_property
    def _arrays(self) -> dict[str, NDArray]:
        """Features and factors as arrays."""
        columns = zip(*self.features, strict=True) if self.features else ((),) * len(Feature._fields)
        arrays = {name: np.array(values) for name, values in zip(Feature._fields, columns, strict=True)}
        arrays["column"] = arrays["column"].astype(np.int64)
        arrays["factors"] = np.array([factor[:4] for factor in self.factors], np.int64)
        return arrays

    @cached_property
    def factor_of_feature(self) -> NDArray[np.intp]:
        """The factor (features,) of each feature."""
        return np.repeat(np.arange(len(self.factors)), [factor.last - factor.first for factor in self.factors])

    def scale(self, alpha: Floats) -> float:
        """Return the kernel's scale."""
        return float(alpha[self.scales].sum()) if self.scales else 1.0

    def relative(self, alpha: Floats) -> Floats:
        """Return the parameters of the kernel of scale one."""
        if not self.scales:
            return alpha
        relative = alpha.copy()
        relative[self.scales] /= self.scale(alpha)
        return relative

    def native(self, alpha: Floats, center: Floats, terms: Floats | None = None) -> native.Terms:
        """Return the kernel of scale one as the loops take it; `terms` multiply the weights of its terms, if given."""
        arrays, values = self._arrays, self.relative(alpha)
        if not self.features:
            frequencies = weights = shifts = np.empty(0)
        else:
            with np.errstate(all="ignore"):
                frequencies = np.where(arrays["turn"] != 0, arrays["turn"] * 2 * np.pi / values[arrays["period"]], 0.0)
            weights = arrays["share"] * values[arrays["weight"]]
            shifts = np.where(arrays["shifted"], center[arrays["column"]], 0.0)
        shapes = np.array([1.0 if factor.shape < 0 else values[factor.shape] for factor in self.factors])
        term_weights = np.array([1.0 if place < 0 else values[place] for place in self.terms])
        if terms is not None:
            term_weights *= terms
        return native.Terms(arrays["column"], shifts, frequencies, weights, arrays["factors"], shapes, term_weights,
                            not self.single or terms is not None, self.unit and terms is None)  # fmt: skip

    def gradient(self, alpha: Floats, raw: Floats, by_scale: float) -> Floats:
        """Return the gradient (p,) by the parameters: from `raw`, that by the numbers that the loops have of the kernel
        of scale one (native/covariance.h), and by the scale."""
        if self.single:
            return raw
        return self.natural_gradient(alpha, self._by_relative(alpha, raw), by_scale)

    def natural_gradient(self, alpha: Floats, by: Floats, by_scale: float) -> Floats:
        """Return the gradient (p,) by the parameters, from those by the parameters at scale one and by the scale."""
        scale, scales, by = self.scale(alpha), self.scales, by.copy()
        common = float((by[scales] * alpha[scales]).sum()) / scale**2  # each is divided by all of them
        by[scales] = by[scales] / scale - common + by_scale
        return by

    def _by_relative(self, alpha: Floats, raw: Floats) -> Floats:
        """Return the gradient (p,) by the parameters of the kernel of scale one, from that by the loops' numbers."""
        F, J = len(self.features), len(self.factors)
        by_weights, by_frequencies, by_shapes, by_terms = np.split(raw, [F, 2 * F, 2 * F + J])
        arrays, by = self._arrays, np.zeros(len(self.parameters))
        if self.features:
            np.add.at(by, arrays["weight"], arrays["share"] * by_weights)
            cosines = arrays["turn"] > 0
            periods = arrays["period"][cosines]
            np.add.at(by, periods, by_frequencies[cosines] * -2 * np.pi / alpha[periods] ** 2)
        for factor, by_shape in zip(self.factors, by_shapes, strict=True):
            if factor.shape >= 0:
                by[factor.shape] += by_shape
        for place, by_term in zip(self.terms, by_terms, strict=True):
            if place >= 0:
                by[place] += by_term
        return by

    def largest_factors(self, values: Floats, reach: Floats) -> Floats:
        """Return the largest value (factors,) of each factor, where no input exceeds `reach` (q,)."""
        largest = np.ones(len(self.factors))
        for number, factor in enumerate(self.factors):
            if factor.profile == PROFILES["linear"]:
                inside = self.features[factor.first : factor.last]
                largest[number] = sum(values[each.weight] * reach[each.column] ** 2 for each in inside)
        return largest

    def largest(self, alpha: Floats, reach: Floats) -> float:
        """Return what no covariance exceeds at scale one, where no input exceeds `reach` (q,); at least one."""
        if self.unit:
            return 1.0
        values = self.relative(alpha)
        return max(1.0, float(self._term_limits(values, self.largest_factors(values, reach)).sum()))

    def _term_limits(self, values: Floats, largest: Floats, without: int = -1) -> Floats:
        """Return the largest value (terms,) of each term, from those of its factors (factors,) but for one of them."""
        limits = np.array([1.0 if place < 0 else values[place] for place in self.terms])
        for place, (factor, each) in enumerate(zip(self.factors, largest, strict=True)):
            limits[factor.term] *= 1.0 if place == without else each
        return limits

    def gradient_limits(self, alpha: Floats, low: Floats, high: Floats, weight: float) -> Floats:
        """Return limits (q + numbers of the loops) of the gradients of any Z_m and of the loops' numbers, for a total
        `weight` of |∂F/∂K|, and inputs and inducing points between `low` and `high` (q,).

        With t = w u² no profile moves faster than 4 √w with u, nor than 4/w with w (mpigp.kernels.rbf has the reasons);
        a cosine and a sine move by ω, and are never more than 2 apart.
        """
        values, terms = self.relative(alpha), self.native(alpha, np.zeros(len(low)))
        reach, extent = np.maximum(-low, high), np.maximum(high - low, 1.0)
        largest = self.largest_factors(values, reach)
        others = np.array([weight * self._term_limits(values, largest, place)[factor.term]
                           for place, factor in enumerate(self.factors)])  # fmt: skip
        by_Z, by_weight = np.zeros(len(low)), np.zeros(len(self.features))
        by_frequency, by_shape = np.zeros(len(self.features)), others * (1 + 1 / terms.shapes)
        for f, (feature, number) in enumerate(zip(self.features, self.factor_of_feature, strict=True)):
            q, w, most, omega = feature.column, terms.weights[f], others[number], abs(terms.frequencies[f])
            if self.factors[number].profile == PROFILES["linear"]:
                by_Z[q] += most * w * reach[q]
                by_weight[f] = most * reach[q] ** 2
            elif feature.turn:
                by_Z[q] += most * 4 * math.sqrt(w) * omega
                by_weight[f], by_frequency[f] = 2 * most, most * w * extent[q]
            else:
                by_Z[q] += most * 4 * math.sqrt(w)
                by_weight[f] = 4 * most / max(w, (NEAREST / extent[q]) ** 2)
        parts = [by_Z, by_weight]
        if not self.single:
            parts += [by_frequency, by_shape, weight * self._term_limits(np.ones_like(values), largest)]
        return np.concatenate(parts)

    def diagonal(self, X: Floats, alpha: Floats) -> Floats:
        """Return k(x, x) (n,) of rows X (n, q), at scale one."""
        return self.diagonals(X, alpha).sum(axis=0)

    def diagonals(self, X: Floats, alpha: Floats) -> Floats:
        """Return what each term (terms, n) contributes to k(x, x) of rows X (n, q), at scale one."""
        values = self.relative(alpha)
        of_terms = np.array([1.0 if place < 0 else values[place] for place in self.terms])[:, None] * np.ones(len(X))
        for factor in self.factors:
            if factor.profile == PROFILES["linear"]:
                inside = self.features[factor.first : factor.last]
                of_terms[factor.term] *= sum(values[each.weight] * X[:, each.column] ** 2 for each in inside)
        return of_terms


def named_values(parameters: list[Parameter], alpha: Floats, columns: list[str] | None) -> dict[str, float]:
    """Return the values of a composed kernel's parameters by name; none of other kernels, which have no such names."""
    return {each.text(columns): float(value) for each, value in zip(parameters, alpha, strict=bool(parameters))}


def check_size(expression: Expression) -> None:
    """Refuse an expression of more parts than the loops take."""
    count = sum(map(len, expression.terms))
    if count > native.MAX_FACTORS:
        raise InputError(f"has {count} parts: give at most {native.MAX_FACTORS}")


def is_single(expression: Expression) -> bool:
    """Return whether an expression is one stationary part of all columns."""
    (first, *other_terms) = expression.terms
    return not other_terms and len(first) == 1 and first[0].kind in STATIONARY and first[0].columns is None


def parameter_names(expression: Expression) -> list[str]:
    """Return the names by which parameters of a composed kernel can be held: its parts, and the parameters of each."""
    if is_single(expression):
        return []
    numbered = [[part if part.columns is None else replace(part, columns=tuple(range(len(part.columns))))
                 for part in term] for term in expression.terms]  # fmt: skip
    most = max(len(part.columns or ()) for term in numbered for part in term)
    parameters = compose(Expression(tuple(map(tuple, numbered))), max(most, 1)).parameters
    names = [name for each in parameters for name in (each.part, f"{each.part}.{each.name}")]
    return list(dict.fromkeys([*names, *(each.name for each in parameters if each.name in ("period", "shape"))]))


def compose(expression: Expression, q: int) -> Composition:
    """Return the composition of an expression whose columns are numbers, for inputs of q columns."""
    parameters: list[Parameter] = []
    features: list[Feature] = []
    factors: list[Factor] = []
    terms: list[int] = []
    scales: list[int] = []
    single = is_single(expression)

    def add(label: str, part: Part, name: str, column: int | None = None) -> int:
        parameters.append(
            Parameter(len(terms) - 1, label, part.kind, name, column, part.period if name == "period" else None)
        )
        return len(parameters) - 1

    for number, (term, labels) in enumerate(zip(expression.terms, expression.labels(), strict=True)):
        linear = next((place for place, part in enumerate(term) if part.kind == "linear"), None)
        terms.append(-1)
        if linear is None and not single:
            terms[-1] = add(labels[0], term[0], "variance")
            scales.append(terms[-1])
        for place, (part, label) in enumerate(zip(term, labels, strict=True)):
            first, columns = len(features), columns_of(part, q)
            weights = [add(label, part, "alpha", column) for column in columns]
            if place == linear:
                scales += weights
            if part.kind == "periodic":
                periods = [add(label, part, "period", column) for column in columns]
                for column, weight, period in zip(columns, weights, periods, strict=True):
                    features += [Feature(column, weight, 0.25, period, turn, True) for turn in (1, -1)]
            else:
                shifted = part.kind != "linear"
                features += [Feature(*each, 1.0, -1, 0, shifted) for each in zip(columns, weights, strict=True)]
            shape = add(label, part, "shape") if part.kind == "rq" else -1
            factors.append(Factor(PROFILES[part.kind], number, first, len(features), shape))
    return Composition(parameters, features, factors, terms, scales, single)


def columns_of(part: Part, q: int) -> list[int]:
    """Return the columns of a part, as numbers."""
    if part.kind == "bias":
        return []
    if part.columns is None:
        return list(range(q))
    if any(isinstance(column, str) for column in part.columns):
        raise InputError(f"{part} names columns, and these have no names: use numbers from 0")
    return [int(column) for column in part.columns]
