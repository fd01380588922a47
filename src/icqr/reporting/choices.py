"""How a model's groups came about: the partition, the number of clusters, and what the columns' importance does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from icqr._predicting import IntervalRegressor
from icqr.auditing.findings import percent, promise
from icqr.partition import KMeansPartition
from icqr.quantiles import ResidualQuantiles
from icqr.selection import ROWS

# -- partition="auto" ------------------------------------------------------------------------------------


def selections(models: Mapping[str, IntervalRegressor]) -> list[dict[str, Any]] | None:
    """Give an entry per model that chose its partition: `method`, `sentence`, and the `candidates` with their losses.

    Examples
    --------
    >>> from icqr import ICQR
    >>> from icqr.datasets import make_heteroscedastic
    >>> X, y = make_heteroscedastic(100, random_state=0, return_X_y=True)
    >>> selections({"small": ICQR(partition="auto", random_state=0).fit(X, y)})[0]["sentence"]
    'All rows are one group: no other partition would leave about 100 calibration rows for each of its groups.'
    """
    found = [
        {"method": name, "sentence": _selection_sentence(model), "candidates": model.selection_}
        for name, model in models.items()
        if hasattr(model, "selection_")
    ]
    return found or None


def _selection_sentence(model: Any) -> str:
    tried = len(model.selection_)
    if tried == 1:
        return (
            f"All rows are one group: no other partition would leave about {ROWS} calibration rows for each of its "
            "groups."
        )
    were = "were" if model.n_groups_ > 1 else "was"
    return f"Of {tried} partitions that were tried on the training rows, {chosen_words(model)} {were} chosen."


def chosen_words(model: Any) -> str:
    """Say which partition was chosen, with the groups that the model has of it.

    These may be fewer than in the table of candidates: there, labels are those of models that have not seen the row.
    """
    if model.n_groups_ == 1:
        return "one group for all rows"
    kind = model.selection_.loc[model.selection_["chosen"], "partition"].iloc[0]
    return f"{model.n_groups_} {'K-means clusters' if kind == 'K-means' else 'groups by predicted difficulty'}"


# -- The number of clusters ------------------------------------------------------------------------------


def choice_of_k(model: IntervalRegressor) -> dict[str, Any] | None:
    """Give how the number of K-means clusters was chosen, in numbers and in a sentence."""
    partition = model.partition_
    path = getattr(partition, "path_", None)
    if path is None:
        return None
    k, merged = int(partition.k_), int(partition.n_groups_)
    explained = float(path.loc[path["k"] == k, "explained_variance"].iloc[0])
    chosen = {"k": k, "n_groups": merged, "chosen_by": partition.choose, "explained_variance": explained, "path": path}
    said = _clusters_sentence(partition, k, explained)
    if merged < k:
        auto = hasattr(model, "selection_")
        rows = f"fewer than about {ROWS} calibration rows" if auto else "too few rows to be calibrated"
        groups = "1 group" if merged == 1 else f"{merged} groups"
        said += f" Clusters with {rows} were merged, which leaves {groups}."
    return {**chosen, "sentence": said}


def _clusters_sentence(partition: Any, k: int, explained: float) -> str:
    clusters = "1 cluster" if k == 1 else f"{k} clusters"
    why = {
        "explained_variance": f"the smallest number that explains more than {promise(partition.explained_variance)}",
        "silhouette": "the number with the largest silhouette",
        "elbow": "where the curve bends most",
    }.get(str(partition.choose), "the number that was asked for")
    if partition.choose == "explained_variance" and explained <= partition.explained_variance:
        why = f"the largest number allowed; {promise(partition.explained_variance)} was asked for"
    return f"{clusters} explain{'s' * (k == 1)} {percent(explained)} of the weighted variance: {why}."


# -- Importance ------------------------------------------------------------------------------------------


def two_stages(model: IntervalRegressor) -> ResidualQuantiles | None:
    """Give a model's fitted `ResidualQuantiles`, if its bounds come from one."""
    fitted = getattr(model.model_, "models_", [None])[0]
    return fitted if isinstance(fitted, ResidualQuantiles) else None


def importance_sentence(model: IntervalRegressor) -> str | None:
    """Say what the columns' importance is that of, and whether groups follow it."""
    if not hasattr(model, "importances_"):
        return None
    residual = two_stages(model) is not None
    follow = not hasattr(model, "selection_") or isinstance(model.partition_, KMeansPartition)
    said = (
        f"The columns that move the {'median' if residual else 'prediction'} most; "
        f"groups {'' if follow else 'do not '}follow them."
    )
    return f"{said} What a column does to the spread alone is not counted." if residual else said
