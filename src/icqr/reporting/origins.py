"""How a report's numbers came about: data, models, guarantees and versions, and how groups were chosen."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Mapping
from importlib import metadata
from typing import Any

from icqr._libraries import core_of
from icqr._predicting import APPROXIMATE, GROUPWISE, MARGINAL, NOT_CALIBRATED, IntervalRegressor
from icqr.auditing.findings import listed, percent, promise
from icqr.calibration import Certificate
from icqr.cross import CROSS, CROSS_APPROXIMATE, CrossCertificate, models_of
from icqr.importance import ALL_ZERO
from icqr.partition import KMeansPartition
from icqr.quantiles import bare
from icqr.residual_quantiles import ResidualQuantiles
from icqr.selection import ROWS

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
    CROSS: (
        "About the coverage asked for in practice, and at least the promised share, which is less: in each group, on "
        "average over such sets of rows, and if new rows are like them. All rows train and calibrate, each scored by a "
        "model that has not seen it (CV+)."
    ),
    CROSS_APPROXIMATE: (
        "Approximate: about the coverage asked for in practice. All rows train and calibrate, each scored by a model "
        "that has not seen it (CV+), but the groups were learned from the same rows. Calibrating with fresh rows makes "
        "the promise exact in each group."
    ),
    NOT_CALIBRATED: "None: the quantile model's own bounds, not calibrated.",
}
OTHER_LIBRARY = (
    "Not known here: the intervals came as numbers. This report only says whether they kept the promise on these rows."
)
TWO_STAGES = (
    "in two stages: a centre ({}), then the quantiles of the residuals of training rows that its models were fitted "
    "without, a fold at a time"
)


def model_facts(name: str, model: IntervalRegressor | None) -> dict[str, Any]:
    """Return how a method was fitted and what it promises."""
    if model is None:
        return {"method": name, "guarantee": OTHER_LIBRARY}
    written, residual, certificate = repr(bare(model.estimator)), two_stages(model), model.certificate()
    if residual is not None and not isinstance(bare(model.estimator), ResidualQuantiles):
        written = f"ResidualQuantiles({written})"  # AutoICQR, or a method whose default model has collapsed
    if "XGB" in written:  # which names all its parameters, also those that are not set
        written = re.sub(r"\w+=None,\s+", "", written)
    crossed = [f"{n:,} in {'training' if where == 'train' else where}" for where, n in model.n_crossed_.items() if n]
    # If all rows are one group, what is promised in each group is promised for all rows together.
    kind = MARGINAL if certificate.guarantee == GROUPWISE and model.n_groups_ == 1 else certificate.guarantee
    facts: dict[str, Any] = {
        "method": name,
        "model": written,
        "constant quantiles": model.collapse_,
        "bounds": None if residual is None else TWO_STAGES.format(_shares_of_centre(model)),
        "settings": repr(type(model)(**{**model.get_params(deep=False), "estimator": None})),
        "training rows": model.n_train_ or None,
        "calibration rows": int(model.calibration_.sizes.sum()) or None,
        "groups": model.n_groups_,
        "seed": repr(model.random_state),
        "rows with crossed quantiles": ", ".join(crossed) or None,
        "guarantee": GUARANTEES.get(kind, kind),
    }
    if certificate.unpromised and certificate.guarantee != NOT_CALIBRATED:
        is_cross = isinstance(certificate, CrossCertificate)
        least = percent(certificate.marginal) if is_cross else promise(certificate.marginal)
        over_all = f"at least {least} is promised, if such rows stay as frequent"
        facts["exception"] = (
            f"{percent(certificate.unpromised)} of the calibration rows are in groups too small for a promise; over "
            f"all rows {over_all if certificate.marginal > 0 else 'nothing is promised'}."
        )
    return {key: value for key, value in facts.items() if value is not None}


def library_versions(models: Iterable[IntervalRegressor]) -> dict[str, str]:
    """Return the versions of Python, of what icqr builds on, and of the libraries of the models."""
    names = ["icqr", "numpy", "pandas", "scipy", "scikit-learn"]
    for model in models:
        residual = two_stages(model)
        fitted = bare(model.estimator if residual is None else residual.estimator)
        names.append(type(core_of(fitted)[1]).__module__.partition(".")[0])
    versions = {"python": platform.python_version()}
    for name in dict.fromkeys(names):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # a module of the user's own, or a distribution of another name
    return versions


def promised_words(certificate: Certificate) -> str:
    """Return what is promised: "90 % promised", or "about 90 % in practice, at least 73 % promised".

    Examples
    --------
    >>> from icqr import CQR
    >>> from icqr.datasets import make_heteroscedastic
    >>> X, y = make_heteroscedastic(200, random_state=0, return_X_y=True)
    >>> promised_words(CQR(calibration="cross", random_state=0).fit(X, y).certificate())
    'about 90 % in practice, at least 71.4 % promised'
    """
    if not isinstance(certificate, CrossCertificate):
        return f"{promise(certificate.coverage)} promised"
    roughly = " (approximate)" if certificate.guarantee == CROSS_APPROXIMATE else ""
    least = f"at least {percent(certificate.marginal)} promised" if certificate.marginal > 0 else "in theory no promise"
    return f"about {promise(certificate.coverage)} in practice, {least}{roughly}"


def _shares_of_centre(model: IntervalRegressor) -> str:
    """Return the classes of a centre's models with their weights: "LGBMRegressor 75 %, SmoothRidge 25 %"."""
    shares: dict[str, float] = {}
    parts = [part.models_[0].centre_ for part in models_of(model.model_)]
    for centre in parts:  # after cross-calibration one for each fold: the mean of their weights
        for member, weight in zip(centre.members_, centre.weights_, strict=True):
            name = type(core_of(bare(member.model_.estimator)).model).__name__
            shares[name] = shares.get(name, 0.0) + weight / len(parts)
    return ", ".join(f"{name} {percent(share, 0)}" for name, share in shares.items())


def two_stages(model: IntervalRegressor) -> ResidualQuantiles | None:
    """Return a model's fitted `ResidualQuantiles`, if its bounds come from one (of several folds, the first)."""
    fitted = getattr(models_of(model.model_)[0], "models_", [None])[0]
    return fitted if isinstance(fitted, ResidualQuantiles) else None


# -- How groups were chosen ------------------------------------------------------------------------------


def importance_sentence(model: IntervalRegressor) -> str | None:
    """Say what the columns' importance measures, and whether the groups follow it."""
    if not hasattr(model, "importances_"):
        return None
    if not model.importances_["share"].any():
        return f"{ALL_ZERO} So groups don't follow them."
    follow = not hasattr(model, "selection_") or isinstance(model.partition_, KMeansPartition)
    groups = f"groups {'' if follow else 'do not '}follow them."
    if two_stages(model) is None:
        return f"The columns that move the prediction most; {groups}"
    return f"The columns that move the centre most; {groups} What a column does to the spread alone is not counted."


def selections(models: Mapping[str, IntervalRegressor]) -> list[dict[str, Any]]:
    """Return an entry per model that chose its partition: `method`, `sentence`, and `candidates` with their losses.

    Examples
    --------
    >>> from icqr import ICQR
    >>> from icqr.datasets import make_heteroscedastic
    >>> X, y = make_heteroscedastic(100, random_state=0, return_X_y=True)
    >>> selections({"small": ICQR(partition="auto", random_state=0).fit(X, y)})[0]["sentence"]
    'All rows are one group: no other partition would leave about 100 calibration rows for each of its groups.'
    """
    entries = []
    for name, model in models.items():
        if not hasattr(model, "selection_"):
            continue
        tried, were = len(model.selection_), "were" if model.n_groups_ > 1 else "was"
        if tried == 1:
            rows = f"about {ROWS} calibration rows for each of its groups"
            sentence = f"All rows are one group: no other partition would leave {rows}."
        else:
            chosen = f"{_chosen_groups(model)} {were} chosen"
            sentence = f"Of {tried} partitions that were tried on the training rows, {chosen}."
        entries.append({"method": name, "sentence": sentence, "candidates": model.selection_})
    return entries


def _chosen_groups(model: IntervalRegressor) -> str:
    """Say which partition was chosen, with the groups that the model has of it.

    These may be fewer than in the table of candidates: there, labels are those of models that have not seen the row.
    """
    if model.n_groups_ == 1:
        return "one group for all rows"
    kind = model.selection_.loc[model.selection_["chosen"], "partition"].iloc[0]
    return f"{model.n_groups_} {'K-means clusters' if kind == 'K-means' else 'groups by predicted difficulty'}"


def remarks(models: Mapping[str, IntervalRegressor]) -> list[str]:
    """Say which methods have bounds or groups that come about in a way of their own, and what these promise."""
    sentences = []
    for name, model in models.items():
        ways = []
        if two_stages(model) is not None:
            ways.append("fits bounds of its own in two stages (a centre, then the quantiles of the residuals)")
        if hasattr(model, "selection_"):
            ways.append(f"chooses its groups from training rows, here {_chosen_groups(model)}")
        if ways:
            where = "in each group" if model.n_groups_ > 1 else "over all rows together"
            certificate = model.certificate()
            promised = f": coverage is promised {where}" if certificate.guarantee == GROUPWISE else ""
            if isinstance(certificate, CrossCertificate):
                promised = f": {promised_words(certificate)}"
            sentences.append(f"{name} {listed(ways)}{promised}.")
    return sentences


def choice_of_k(model: IntervalRegressor) -> dict[str, Any] | None:
    """Return how the number of K-means clusters was chosen, in numbers and in a sentence."""
    partition = model.partition_
    path = getattr(partition, "path_", None)
    if path is None:
        return None
    k, n_groups, needed = int(partition.k_), int(partition.n_groups_), partition.explained_variance
    explained = float(path.loc[path["k"] == k, "explained_variance"].iloc[0])
    reason = {
        "explained_variance": f"the smallest number that explains more than {promise(needed)}",
        "silhouette": "the number with the largest silhouette",
        "elbow": "where the curve bends most",
    }.get(str(partition.choose), "the number that was asked for")
    if partition.choose == "explained_variance" and explained <= needed:
        reason = f"the largest number allowed; {promise(needed)} was asked for"
    clusters = "1 cluster explains" if k == 1 else f"{k} clusters explain"
    sentence = f"{clusters} {percent(explained)} of the weighted variance: {reason}."
    if n_groups < k:
        auto = hasattr(model, "selection_")
        rows = f"fewer than about {ROWS} calibration rows" if auto else "too few rows to be calibrated"
        groups = "1 group" if n_groups == 1 else f"{n_groups} groups"
        sentence += f" Clusters with {rows} were merged, which leaves {groups}."
    return {
        "k": k,
        "n_groups": n_groups,
        "chosen_by": partition.choose,
        "explained_variance": explained,
        "path": path,
        "sentence": sentence,
    }
