"""What a report is made from: models, audits or a comparison, with the rows they were checked on, in one form."""

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
    >>> gather(audit([1.0, 2.0], [[0, 2], [0, 1]], coverage=0.5)).main
    'intervals'
    """
    if isinstance(subject, Audit | Comparison):
        return _gather_audited(subject, X, y, methods)
    if methods is not None:
        raise ValueError("methods goes with an audit or a comparison; a model speaks for itself, leave it out")

    each = list(subject.values()) if isinstance(subject, Mapping) else subject if isinstance(subject, list) else []
    several = bool(each) and all(isinstance(model, IntervalRegressor) for model in each)
    if several:
        if X is None or y is None:
            raise ValueError("X and y must be given with several models, got None; give rows that no model has seen")
        models = named_methods(subject)
    elif isinstance(subject, IntervalRegressor):
        check_is_fitted(subject)
        models = {type(subject).__name__: subject}
        if X is None and y is None:
            return Evidence(float(subject.coverage), models=models)
        if X is None or y is None:
            missing = "X" if X is None else "y"
            hint = "give both, or neither for a report of the model alone"
            raise ValueError(f"X and y go together, got no {missing}; {hint}")
    else:
        kinds = sorted({type(item).__name__ for item in each})
        raise TypeError(
            "the first argument must be a fitted icqr model, a dict or list of such models, or what audit(…) or "
            f"compare(…) gives, got {type(subject).__name__}{' of ' * bool(kinds)}{', '.join(kinds)}; for intervals of "
            "other libraries pass audit(y, intervals, X, coverage=0.9)"
        )

    rows = {name: prepare(y, model, X, None, None) for name, model in models.items()}
    if several:
        comparison = compare_rows(rows, next(iter(rows)), 0, with_excess_risk=True)
        return Evidence(comparison.coverage, comparison.audits, comparison, models, rows, X, _target_name(y))
    audits = {name: audit_rows(audited, 0, with_excess_risk=True) for name, audited in rows.items()}
    return Evidence(next(iter(audits.values())).coverage, audits, None, models, rows, X, _target_name(y))


def _gather_audited(subject: Audit | Comparison, X: Any, y: Any, methods: Any) -> Evidence:
    """Join an audit or a comparison with the methods that it is of, if they are given."""
    comparison = subject if isinstance(subject, Comparison) else None
    named = {} if methods is None else _named_as_audited(comparison, methods)
    audits = subject.audits if isinstance(subject, Comparison) else {next(iter(named), "intervals"): subject}
    models = {name: method for name, method in named.items() if isinstance(method, IntervalRegressor)}
    if y is not None and not named:
        raise ValueError("methods must be given with y, got None; give the model or intervals that were audited")
    if y is None and len(models) < len(named):
        raise ValueError("y must be given with intervals in methods, got None; give the rows that were audited")

    rows = {} if y is None else {name: prepare(y, each, X, None, subject.coverage) for name, each in named.items()}
    for name, audited in rows.items():
        numbers = audits[name].numbers
        n, share = len(audited.rows.y), float(np.mean(audited.rows.covered))
        if n != numbers["n"] or not math.isclose(share, numbers["coverage"]):
            raise ValueError(
                f"X, y and methods must be what was audited: {numbers['n']:.0f} rows of which {name} covers "
                f"{numbers['coverage']:.4f}, got {n} rows of which it covers {share:.4f}"
            )
    return Evidence(subject.coverage, dict(audits), comparison, models, rows, X, _target_name(y))


def _named_as_audited(comparison: Comparison | None, methods: Any) -> dict[str, Any]:
    """Return methods by name, with the names and in the order of a comparison."""
    if comparison is None:
        return {type(methods).__name__ if hasattr(methods, "predict_interval") else "intervals": methods}
    names = list(comparison.audits)
    by_name = {str(key): method for key, method in methods.items()} if isinstance(methods, Mapping) else {}
    if set(by_name) != set(names):
        got = list(methods) if isinstance(methods, Mapping) else type(methods).__name__
        raise ValueError(f"methods must be a dict with the names that were compared, {names}, got {got}")
    return {name: by_name[name] for name in names}


def _target_name(y: Any) -> str | None:
    name = getattr(y, "name", None)
    return None if name is None else str(name)
