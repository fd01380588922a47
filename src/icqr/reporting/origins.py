"""How a report's numbers came about: data, sizes of the splits, models, seeds, versions, and which guarantee holds."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from icqr._libraries import core_of
from icqr._predicting import APPROXIMATE, GROUPWISE, MARGINAL, NOT_CALIBRATED, IntervalRegressor
from icqr._tables import as_table
from icqr.auditing.findings import listed, percent, promise
from icqr.reporting.choices import chosen_words, two_stages
from icqr.reporting.evidence import Evidence

GUARANTEES = {
    GROUPWISE: (
        "In each group at least the promised share of new rows is covered, whatever the quantile model is worth: on "
        "average over calibration sets, and if new rows are like the calibration rows."
    ),
    MARGINAL: (
        "Over all rows together at least the promised share of new rows is covered, whatever the model is worth: on "
        "average over calibration sets, and if new rows are like the calibration rows. Nothing is promised for a part "
        "of the rows."
    ),
    APPROXIMATE: (
        "Approximate: the groups were learned from the calibration rows themselves. Calibrating with fresh rows makes "
        "the promise exact in each group."
    ),
    NOT_CALIBRATED: "None: the quantile model's own bounds, not calibrated.",
}
OTHER_LIBRARY = (
    "Not known here: the intervals came as numbers. This report only says whether they kept the promise on these rows."
)
CORE = ("icqr", "numpy", "pandas", "scipy", "scikit-learn")


def how_computed(evidence: Evidence, about: Mapping[str, Any]) -> dict[str, Any]:
    """Give `about` (as given), `data`, `models` with their guarantees, how verdicts were reached, and `versions`."""
    return {
        "about": {str(key): value if isinstance(value, int | float) else str(value) for key, value in about.items()},
        "data": _data(evidence),
        "models": [_method(name, evidence.models.get(name)) for name in evidence.audits or evidence.models],
        "audit": next((one.method for one in evidence.audits.values()), None),
        "versions": _versions(evidence.models.values()),
    }


def _data(evidence: Evidence) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if evidence.y_name:
        found["target"] = evidence.y_name
    if evidence.X is not None:
        found["columns"] = int(as_table(evidence.X).shape[1])
    elif evidence.model is not None:
        found["columns"] = int(evidence.model.n_features_in_)
    for one in evidence.audits.values():
        found["rows checked"] = int(one.numbers["n"])
    return found


def _method(name: str, model: IntervalRegressor | None) -> dict[str, Any]:
    if model is None:
        return {"method": name, "guarantee": OTHER_LIBRARY}
    certificate = model.certificate()
    found: dict[str, Any] = {
        "method": name,
        "model": _written(model._inner()),
        "bounds": _bounds(model),
        "settings": repr(type(model)(**{**model.get_params(deep=False), "estimator": None})),
        "training rows": model.n_train_ or None,
        "calibration rows": int(model.calibration_.sizes.sum()) or None,
        "groups": model.n_groups_,
        "seed": repr(model.random_state),
        "rows with crossed quantiles": _crossed(model),
        "guarantee": _guarantee(model, certificate.guarantee),
    }
    if certificate.unpromised and certificate.guarantee != NOT_CALIBRATED:
        found["exception"] = (
            f"{percent(certificate.unpromised)} of the calibration rows are in groups too small for a promise; over "
            f"all rows at least {promise(certificate.marginal)} is promised, if such rows stay as frequent."
        )
    return {key: value for key, value in found.items() if value is not None}


def _written(estimator: Any) -> str:
    """Give an estimator as it would be written; XGBoost names all its parameters, also those that are not set."""
    text = repr(estimator)
    return re.sub(r"\w+=None,\s+", "", text) if "XGB" in text else text


def _bounds(model: IntervalRegressor) -> str | None:
    residual = two_stages(model)
    if residual is None:
        return None
    return (
        "in two stages: models of the median, then models of the quantiles of what it leaves, each fitted without one "
        f"of {len(residual.medians_)} folds of the training rows, and the mean of what they predict"
    )


def _guarantee(model: IntervalRegressor, kind: str) -> str:
    """Say what is promised; if all rows are one group, that is for all rows together."""
    return GUARANTEES.get(MARGINAL if kind == GROUPWISE and model.n_groups_ == 1 else kind, kind)


def remarks(models: Mapping[str, IntervalRegressor]) -> list[str]:
    """Say which methods have bounds or groups that come about in a way of their own, and what these promise."""
    said = []
    for name, model in models.items():
        ways = []
        if two_stages(model) is not None:
            ways.append("fits a quantile model of its own in two stages (ResidualQuantiles)")
        if hasattr(model, "selection_"):
            ways.append(f'chooses its groups from training rows (partition="auto"), here {chosen_words(model)}')
        if ways:
            said.append(f"{name} {listed(ways)}{_promised_where(model)}.")
    return said


def _promised_where(model: IntervalRegressor) -> str:
    if model.certificate().guarantee != GROUPWISE:
        return ""
    return f": coverage is promised {'in each group' if model.n_groups_ > 1 else 'over all rows together'}"


def _crossed(model: IntervalRegressor) -> str | None:
    names = {"train": "training", "calibration": "calibration"}
    return ", ".join(f"{n:,} in {names[where]}" for where, n in model.n_crossed_.items() if n) or None


def _versions(models: Any) -> dict[str, str]:
    found = {"python": platform.python_version()}
    own = [type(_core(model)).__module__.partition(".")[0] for model in models]
    for name in dict.fromkeys([*CORE, *own]):
        version = _version(name)
        if version is not None:
            found[name] = version
    return found


def _core(model: IntervalRegressor) -> Any:
    """Give what was fitted: a model of another library, or of the user's own."""
    residual = two_stages(model)
    return core_of(model._inner() if residual is None else residual.medians_[0].models_[0])[1]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None  # a module of the user's own, or a distribution of another name
