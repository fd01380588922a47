"""What a report is made from: a model, an audit or a comparison, with the rows they were checked on, in one form."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from icqr._predicting import IntervalRegressor
from icqr._tables import IntArray
from icqr.auditing import Audit, Comparison
from icqr.auditing.audits import audit_rows
from icqr.auditing.comparison import compare_rows, named_methods
from icqr.auditing.inputs import Audited, prepare


@dataclass(frozen=True, eq=False)
class Evidence:
    """All that a report can draw on; what was not given is empty.

    Attributes
    ----------
    coverage : float
        What is promised.
    audits : dict
        By method; empty for a model without rows to check it on.
    comparison : Comparison or None
        If there are several methods.
    models : dict
        The methods that are icqr models.
    rows : dict
        By method: the rows with their intervals.
    X : table or None
        Features, as given.
    y_name : str or None
        Name of the target.
    """

    coverage: float
    audits: dict[str, Audit] = field(default_factory=dict)
    comparison: Comparison | None = None
    models: dict[str, IntervalRegressor] = field(default_factory=dict)
    rows: dict[str, Audited] = field(default_factory=dict)
    X: Any = None
    y_name: str | None = None

    @property
    def main(self) -> str:
        """The method that is shown in detail: the first model with several groups, or else the first method."""
        grouped = (name for name, model in self.models.items() if model.n_groups_ > 1)
        return next(grouped, next(iter(self.models or self.audits)))

    @property
    def model(self) -> IntervalRegressor | None:
        """The model that is shown in detail, if it is one."""
        return self.models.get(self.main)

    @property
    def labels(self) -> IntArray | None:
        """Each row's group in the model that is shown in detail (-1: none known), if it has several."""
        rows = self.rows.get(self.main)
        if rows is None or not rows.groupings:
            return None
        (grouping,) = rows.groupings
        return grouping.table["group"].to_numpy()[grouping.codes]


def gather(subject: Any, X: Any = None, y: Any = None, methods: Any = None) -> Evidence:
    """Bring what was given to a report into one form, or say what is missing.

    Parameters
    ----------
    subject, X, y, methods
        As in :func:`icqr.reporting.report`.

    Examples
    --------
    >>> from icqr.auditing import audit
    >>> found = audit([1.0, 2.0], [[0, 2], [0, 1]], coverage=0.5)
    >>> gather(found).main
    'intervals'
    """
    if isinstance(subject, Audit | Comparison):
        return _checked(subject, X, y, methods)
    if methods is not None:
        raise ValueError("methods goes with an audit or a comparison; a model speaks for itself, leave it out")
    if isinstance(subject, IntervalRegressor):
        return _of_model(subject, X, y)
    if (
        isinstance(subject, Mapping | list)
        and subject
        and all(isinstance(m, IntervalRegressor) for m in _each(subject))
    ):
        return _of_models(subject, X, y)
    raise TypeError(
        "the first argument must be a fitted icqr model, a dict or list of such models, or what audit(…) or "
        f"compare(…) gives, got {_kind(subject)}; for intervals of other libraries pass "
        "audit(y, intervals, X, coverage=0.9)"
    )


def _each(methods: Any) -> list[Any]:
    return list(methods.values()) if isinstance(methods, Mapping) else list(methods)


def _kind(given: Any) -> str:
    kinds = sorted({type(one).__name__ for one in _each(given)}) if isinstance(given, Mapping | list) else []
    return type(given).__name__ + (f" of {', '.join(kinds)}" if kinds else "")


def _of_model(model: IntervalRegressor, X: Any, y: Any) -> Evidence:
    check_is_fitted(model)
    name = type(model).__name__
    if X is None and y is None:
        return Evidence(float(model.coverage), models={name: model})
    _check_both(X, y)
    audited = prepare(y, model, X, None, None)
    found = audit_rows(audited, 0, with_excess_risk=True)
    return Evidence(found.coverage, {name: found}, None, {name: model}, {name: audited}, X, _name_of(y))


def _of_models(methods: Any, X: Any, y: Any) -> Evidence:
    if X is None or y is None:
        raise ValueError("X and y must be given with several models, got None; give rows that no model has seen")
    models = named_methods(methods)
    rows = {name: prepare(y, model, X, None, None) for name, model in models.items()}
    found = compare_rows(rows, next(iter(rows)), 0, with_excess_risk=True)
    return Evidence(found.coverage, found.audits, found, models, rows, X, _name_of(y))


def _check_both(X: Any, y: Any) -> None:
    if X is None or y is None:
        missing = "X" if X is None else "y"
        raise ValueError(
            f"X and y go together, got no {missing}; give both, or neither for a report of the model alone"
        )


def _checked(found: Audit | Comparison, X: Any, y: Any, methods: Any) -> Evidence:
    """Join an audit or a comparison with the methods that it is of, if they are given."""
    comparison = found if isinstance(found, Comparison) else None
    named = _named_methods(comparison, methods)
    audits = found.audits if isinstance(found, Comparison) else {next(iter(named), "intervals"): found}
    if y is not None and not named:
        raise ValueError("methods must be given with y, got None; give the model or intervals that were audited")
    models = {name: method for name, method in named.items() if isinstance(method, IntervalRegressor)}
    if y is None and len(models) < len(named):
        raise ValueError("y must be given with intervals in methods, got None; give the rows that were audited")
    rows = {} if y is None else {name: prepare(y, each, X, None, found.coverage) for name, each in named.items()}
    for name, audited in rows.items():
        _check_same(name, audited, audits[name])
    return Evidence(found.coverage, dict(audits), comparison, models, rows, X, _name_of(y))


def _named_methods(comparison: Comparison | None, methods: Any) -> dict[str, Any]:
    if methods is None:
        return {}
    if comparison is None:
        return {type(methods).__name__ if hasattr(methods, "predict_interval") else "intervals": methods}
    names = list(comparison.audits)
    if not isinstance(methods, Mapping) or set(map(str, methods)) != set(names):
        got = list(methods) if isinstance(methods, Mapping) else type(methods).__name__
        raise ValueError(f"methods must be a dict with the names that were compared, {names}, got {got}")
    return {name: {str(key): method for key, method in methods.items()}[name] for name in names}


def _check_same(name: str, audited: Audited, found: Audit) -> None:
    n, share = len(audited.rows.y), float(np.mean(audited.rows.covered))
    if n != found.numbers["n"] or not math.isclose(share, found.numbers["coverage"]):
        raise ValueError(
            f"X, y and methods must be what was audited: {found.numbers['n']:.0f} rows of which {name} covers "
            f"{found.numbers['coverage']:.4f}, got {n} rows of which it covers {share:.4f}"
        )


def _name_of(y: Any) -> str | None:
    name = getattr(y, "name", None)
    return None if name is None else str(name)
