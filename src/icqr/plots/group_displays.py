"""How groups came about: importance of columns, the choice of k, and the groups in a plane."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from icqr._predicting import IntervalRegressor
from icqr._tables import IntArray
from icqr.importance import ALL_ZERO
from icqr.partition import KMeansPartition
from icqr.plots.axes import AxisColumn, find_column, heading, ink, name_rows, percent, plain, sample_note, sample_rows
from icqr.plots.displays import GREEN, GREY, PURPLE, Display, Options, group_gid, group_look, group_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(eq=False, repr=False)
class ImportanceDisplay(Display):
    """Importance of each column, as a share of all: the weights of the partition.

    Lines are ± one standard deviation over the repeats. Columns beyond the `max_features` most important are one bar.
    Columns without any importance have no bar. If all importances are zero, a sentence says so in place of bars.

    Attributes
    ----------
    table : DataFrame
        What `PermutationImportance.compute` gives, the most important first.
    shown : DataFrame
        What is drawn: feature, share, spread.
    max_features : int
        How many columns have a bar of their own.

    Examples
    --------
    >>> from icqr.plots import blank_axes
    >>> table = pd.DataFrame({"feature": ["b", "a"], "mean": [1.0, 3.0], "std": [0.1, 0.2], "share": [0.25, 0.75]})
    >>> ImportanceDisplay.from_importances(table, ax=blank_axes()).shown["feature"].tolist()
    ['a', 'b']
    """

    table: pd.DataFrame
    shown: pd.DataFrame
    max_features: int = 15

    @classmethod
    def from_estimator(cls, model: IntervalRegressor, *, max_features: int = 15, ax: Axes | None = None) -> Self:
        """Draw the importances of a fitted `ICQR` whose partition uses them, as :meth:`from_importances` does."""
        return cls.from_importances(_importances(model), max_features=max_features, ax=ax)

    @classmethod
    def from_importances(cls, table: pd.DataFrame, *, max_features: int = 15, ax: Axes | None = None) -> Self:
        """Draw a table of importances.

        Parameters
        ----------
        table : DataFrame
            As `PermutationImportance.compute` gives it: feature, mean, std, share.
        max_features : int, default=15
            How many columns have a bar of their own.
        ax : matplotlib Axes, optional
            By default those of a new figure.
        """
        if max_features < 1:
            raise ValueError(f"max_features must be at least 1, got {max_features}")
        ordered = table.sort_values("share", ascending=False, kind="stable", ignore_index=True)
        shown = ordered[["feature", "share"]].astype({"feature": object})
        shown["spread"] = ordered["std"] / (float(ordered["mean"].sum()) or 1.0)
        shown = shown[shown["share"] > 0]
        rest = shown.iloc[max_features:]
        if len(rest):
            other = {"feature": f"{len(rest)} other columns", "share": rest["share"].sum(), "spread": np.nan}
            shown = pd.concat([shown.iloc[:max_features], pd.DataFrame([other])], ignore_index=True)
        return cls(ordered, shown, max_features).plot(ax)

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches: higher for more bars."""
        return 6.4, 1.4 + 0.27 * len(self.shown)

    def _draw(self, ax: Axes) -> None:
        if self.shown.empty:
            ax.set_axis_off()
            ax.text(0, 1, ALL_ZERO, va="top", wrap=True, transform=ax.transAxes)
            heading(ax, "Importance of columns")
            return
        share, spread = self.shown["share"].to_numpy(), self.shown["spread"].fillna(0).to_numpy()
        colors = [GREEN if place < self.max_features else GREY for place in range(len(share))]
        error: Options = {"ecolor": ink(ax), "elinewidth": 1.4}
        ends = [np.minimum(spread, share), spread]
        bars = ax.barh(range(len(share)), share, height=0.68, color=colors, xerr=ends, error_kw=error)
        ax.bar_label(bars, [percent(value) for value in share], padding=4, fontsize="small")
        name_rows(ax, [plain(name, 28) for name in self.shown["feature"]])
        ax.invert_yaxis()
        ax.set_xlim(0, 1.15 * (float((share + spread).max()) or 1.0))
        ax.xaxis.set_major_formatter(lambda share, _: percent(share))
        ax.set_xlabel("share of all importance")
        n_without = int((self.table["share"] == 0).sum())
        without = f"{n_without} {'column' if n_without == 1 else 'columns'} without any left out" if n_without else ""
        heading(ax, "Importance of columns", "black line: ± 1 standard deviation over repeats", without)


@dataclass(eq=False, repr=False)
class ExplainedVarianceDisplay(Display):
    """Variance explained by k clusters against k, with the chosen k.

    Attributes
    ----------
    path : DataFrame
        A row per k: k, explained_variance and, if k was chosen by it, silhouette.
    k : int
        The chosen k.
    n_groups : int
        Number of groups after small ones were merged.
    threshold : float or None
        The share that had to be explained, if that was the rule.

    Examples
    --------
    >>> from icqr.plots import blank_axes
    >>> path = pd.DataFrame({"k": [1, 2, 3], "explained_variance": [0.0, 0.7, 0.93]})
    >>> ExplainedVarianceDisplay(path, k=3, n_groups=2, threshold=0.9).plot(blank_axes()).ax_.get_xlabel()
    'number of clusters k'
    """

    path: pd.DataFrame
    k: int
    n_groups: int
    threshold: float | None = None

    @classmethod
    def from_estimator(cls, model: IntervalRegressor | KMeansPartition, *, ax: Axes | None = None) -> Self:
        """Draw how the number of groups of a fitted `ICQR` (or of its `KMeansPartition`) was chosen."""
        partition: Any = getattr(model, "partition_", model)
        if not hasattr(partition, "path_"):
            kind = type(partition).__name__
            raise ValueError(f"model must have a fitted KMeansPartition, which tries several k; got a {kind}")
        threshold = partition.explained_variance if partition.choose == "explained_variance" else None
        return cls(partition.path_.copy(), int(partition.k_), int(partition.n_groups_), threshold).plot(ax)

    def _draw(self, ax: Axes) -> None:
        from matplotlib.ticker import MaxNLocator

        path = self.path.set_index("k")
        marks: Options = {"linewidth": 1.8, "marker": "o" if len(path) <= 30 else None, "markersize": 4.5}
        several = "silhouette" in path
        name = "explained variance" if several else None
        ax.plot(path["explained_variance"], color=GREEN, label=name, **marks)
        if several:
            ax.plot(path["silhouette"], color=PURPLE, linestyle="--", label="silhouette", **marks)
        if self.threshold is not None:
            needed = f"needed: {percent(self.threshold)}"
            ax.axhline(self.threshold, color=ink(ax), linestyle=":", linewidth=1.2, label=needed)

        chosen = float(path["explained_variance"][self.k])
        merged = f", merged to {self.n_groups} groups" if self.n_groups < self.k else ""
        ax.vlines(self.k, 0, chosen, color=ink(ax), linewidth=1)
        ring: Options = {"marker": "o", "markersize": 11, "markerfacecolor": "none", "markeredgewidth": 1.8}
        label = f"chosen: k = {self.k}{merged}"
        ax.plot(self.k, chosen, linestyle="none", color=ink(ax), label=label, **ring)

        ax.yaxis.set_major_formatter(lambda share, _: percent(share))
        ax.set_ylim(min(0.0, float(path.min().min())), 1.03)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set_xlabel("number of clusters k")
        ax.set_ylabel("share" if several else "variance explained")
        heading(ax, "Number of groups")


@dataclass(eq=False, repr=False)
class GroupMapDisplay(Display):
    """Groups in the plane of two columns: by default the most important one, and the next that is no copy of it.

    Each group has a colour and a shape. Of many rows a random sample is drawn, and the heading says how many. Where
    values of a column are few, points are moved sideways. Groups that differ in other columns lie on each other.

    Attributes
    ----------
    rows : DataFrame
        A row per row of X: x and y (places on the axes), group.
    drawn : array
        Which rows are drawn.
    across, along : AxisColumn
        Names, values and categories of the two columns.

    Examples
    --------
    >>> from icqr.plots import blank_axes
    >>> X = pd.DataFrame({"hour": [1, 2, 20, 21], "day": [1, 2, 1, 2]})
    >>> display = GroupMapDisplay.from_labels(X, [0, 0, 1, 1], ("hour", "day"), ax=blank_axes())
    >>> display.rows.groupby("group").size().to_dict(), display.ax_.get_ylabel()
    ({0: 2, 1: 2}, 'day')
    """

    rows: pd.DataFrame
    drawn: IntArray
    across: AxisColumn
    along: AxisColumn

    @classmethod
    def from_estimator(
        cls, model: IntervalRegressor, X: ArrayLike, *, features: Sequence[Hashable] | None = None, **options: Any
    ) -> Self:
        """Draw the groups of a fitted model.

        Parameters
        ----------
        model : fitted ICQR
        X : table
            Rows to draw.
        features : two column names or positions, optional
            By default as :func:`most_important` chooses them.
        **options
            Of :meth:`from_labels`: `max_points`, `ax`.
        """
        features = most_important(_importances(model), X) if features is None else features
        return cls.from_labels(X, model.assign(X), features, **options)

    @classmethod
    def from_labels(
        cls,
        X: ArrayLike,
        groups: ArrayLike,
        features: Sequence[Hashable],
        *,
        max_points: int = 1500,
        ax: Axes | None = None,
    ) -> Self:
        """Draw any labels of rows.

        Parameters
        ----------
        X : table
            Rows to draw.
        groups : (n,) array
            Labels of the rows, of any kind.
        features : two column names or positions
            What the axes are.
        max_points : int
            How many rows are drawn at most.
        ax : matplotlib Axes, optional
            By default those of a new figure.
        """
        if len(features) != 2:
            raise ValueError(f"features must be two columns of X, got {list(features)}")
        across, along = (AxisColumn.from_values(find_column(X, name)) for name in features)
        labels = np.asarray(groups)
        if labels.shape != across.values.shape:
            raise ValueError(f"groups must have {len(across.values)} labels, one per row of X; got {labels.shape}")
        rows = pd.DataFrame({"x": across.values, "y": along.values, "group": labels})
        return cls(rows, sample_rows(len(rows), max_points), across, along).plot(ax)

    def _draw(self, ax: Axes) -> None:
        labels, rng = self.rows["group"].to_numpy()[self.drawn], np.random.default_rng(0)
        x, y = self.across.spread(self.drawn, rng), self.along.spread(self.drawn, rng)
        for label, number in group_numbers(sorted(self.rows["group"].unique())).items():
            chosen, look = labels == label, group_look(number)
            points: Options = {"marker": look.marker, "color": look.color, "s": 16, "alpha": 0.75, "linewidth": 0}
            points |= {"gid": group_gid(number), "label": plain(label, 12) if number >= 0 else "no known group"}
            ax.scatter(x[chosen], y[chosen], **points)
        self.across.label(ax.xaxis)
        self.along.label(ax.yaxis)
        ax.set(xlim=self.across.ends, ylim=self.along.ends)
        heading(ax, "Groups", sample_note(self.drawn, len(self.rows), self.across, self.along))


def most_important(importances: pd.DataFrame, X: ArrayLike) -> list[Hashable]:
    """Return the most important column and the next one that is no copy of it; if all are, simply the next one.

    Two columns of numbers whose ranks correlate by more than 0.9 say the same: in their plane all rows are on a line.

    Examples
    --------
    >>> X = pd.DataFrame({"length": [1, 2, 3], "area": [1, 4, 9], "age": [5, 1, 3]})
    >>> most_important(pd.DataFrame({"feature": ["length", "area", "age"], "share": [0.5, 0.4, 0.1]}), X)
    ['length', 'age']
    """
    ordered = importances.sort_values("share", ascending=False, kind="stable")
    first, *others = ordered.loc[ordered["share"] > 0, "feature"].tolist() or ordered["feature"].tolist()
    for name in others:
        across, along = (AxisColumn.from_values(find_column(X, column)) for column in (first, name))
        with np.errstate(invalid="ignore", divide="ignore"):  # a column may be constant in these rows
            correlation = pd.Series(across.values).rank().corr(pd.Series(along.values).rank())
        if across.categories or along.categories or not abs(correlation) > 0.9:
            return [first, name]
    return [first, *others[:1]]


def _importances(model: IntervalRegressor) -> pd.DataFrame:
    """Return a model's importances, or say what to do without."""
    if not hasattr(model, "importances_"):
        kind = type(model).__name__
        raise ValueError(
            f"model must be a fitted ICQR whose partition uses importances, got a {kind} without importances_; "
            "for a map of groups name two columns with features="
        )
    return pd.DataFrame(model.importances_)
