"""How groups came about: importance of columns, the choice of k, and the groups in a plane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from icqr.metrics.checks import Floats, Integers
from icqr.plots.columns import Placed, find_column, sample_rows
from icqr.plots.display import Display, heading, ink, need, percent_axis, points_of, row_labels, small_print
from icqr.plots.places import place_boxes
from icqr.plots.points import beyond_note, sample_note
from icqr.plots.style import GREEN, GREY, PURPLE, Options, group_gid, group_look, group_numbers, percent, plain

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes


@dataclass(eq=False)
class ImportanceDisplay(Display):
    """Importance of each column, as a share of all: the weights of the partition.

    Lines are ± one standard deviation over the repeats. Columns beyond the `max_features` most important are one bar.

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
    def from_estimator(cls, model: Any, *, max_features: int = 15, ax: Axes | None = None) -> Self:
        """Draw the importances of a fitted `ICQR`.

        Parameters
        ----------
        model : fitted ICQR whose partition uses importances
        max_features : int, default=15
            How many columns have a bar of their own.
        ax : matplotlib Axes, optional
            By default those of a new figure.
        """
        return cls.from_importances(_importances(model), max_features=max_features, ax=ax)

    @classmethod
    def from_importances(cls, table: pd.DataFrame, *, max_features: int = 15, ax: Axes | None = None) -> Self:
        """Draw a table as `PermutationImportance.compute` gives it: feature, mean, std, share."""
        if max_features < 1:
            raise ValueError(f"max_features must be at least 1, got {max_features}")
        ordered = table.sort_values("share", ascending=False, kind="stable", ignore_index=True)
        total = float(ordered["mean"].sum()) or 1.0
        spread = ordered["std"] / total
        shown = pd.DataFrame(
            {"feature": ordered["feature"].astype(object), "share": ordered["share"], "spread": spread}
        )
        rest = shown.iloc[max_features:]
        if len(rest):
            other = {"feature": f"{len(rest)} other columns", "share": rest["share"].sum(), "spread": np.nan}
            shown = pd.concat(
                [shown.iloc[:max_features].astype({"feature": object}), pd.DataFrame([other])], ignore_index=True
            )
        return cls(ordered, shown, max_features).plot(ax)

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches: higher for more bars."""
        return 6.4, 1.4 + 0.27 * len(self.shown)

    def _draw(self, ax: Axes) -> None:
        share, places = self.shown["share"].to_numpy(), np.arange(len(self.shown))
        colors = [GREEN] * min(len(places), self.max_features) + [GREY] * (len(places) > self.max_features)
        ax.barh(places, share, height=0.68, color=colors)
        spread = self.shown["spread"].fillna(0).to_numpy()
        ax.hlines(places, np.maximum(share - spread, 0), share + spread, color=ink(ax), linewidth=1.4)
        size = 0.9 * small_print(ax)
        for place, value, end in zip(places, share, share + spread, strict=True):
            ax.annotate(
                percent(value), (end, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=size
            )
        row_labels(ax, [plain(name, 28) for name in self.shown["feature"]])
        ax.invert_yaxis()
        ax.set_xlim(0, 1.15 * (float((share + spread).max()) or 1.0))
        percent_axis(ax, "x")
        ax.set_xlabel("share of all importance")
        heading(ax, "Importance of columns", note="black line: ± 1 standard deviation over repeats")


@dataclass(eq=False)
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
    def from_estimator(cls, model: Any, *, ax: Axes | None = None) -> Self:
        """Draw how the number of groups of a fitted `ICQR` (or of its `KMeansPartition`) was chosen."""
        partition = getattr(model, "partition_", model)
        if not hasattr(partition, "path_"):
            kind = type(partition).__name__
            raise ValueError(f"model must have a fitted KMeansPartition, which tries several k; got a {kind}")
        threshold = partition.explained_variance if partition.choose == "explained_variance" else None
        return cls(partition.path_.copy(), int(partition.k_), int(partition.n_groups_), threshold).plot(ax)

    def _draw(self, ax: Axes) -> None:
        k, explained = self.path["k"].to_numpy(), self.path["explained_variance"].to_numpy()
        marker = "o" if len(k) <= 30 else None
        (line,) = ax.plot(k, explained, color=GREEN, linewidth=1.8, marker=marker, markersize=4.5)
        legend: list[tuple[Artist, str]] = []
        if "silhouette" in self.path:
            legend.append((line, "explained variance"))
            look: Options = {"color": PURPLE, "linewidth": 1.8, "linestyle": "--", "marker": marker, "markersize": 4.5}
            legend += [(artist, "silhouette") for artist in ax.plot(k, self.path["silhouette"], **look)]
        if self.threshold is not None:
            aim = ax.axhline(self.threshold, color=ink(ax), linestyle=":", linewidth=1.2)
            legend.append((aim, f"needed: {percent(self.threshold)}"))
        legend.append((self._choice(ax), self._words()))
        percent_axis(ax, "y")
        ax.set_ylim(min(0.0, float(self.path.drop(columns="k").min().min())), 1.03)
        ax.xaxis.set_major_locator(need("matplotlib.ticker").MaxNLocator(integer=True))
        ax.set_xlabel("number of clusters k")
        ax.set_ylabel("share" if "silhouette" in self.path else "variance explained")
        heading(ax, "Number of groups", legend)

    def _choice(self, ax: Axes) -> Artist:
        at = float(self.path.loc[self.path["k"] == self.k, "explained_variance"].iloc[0])
        ax.vlines(self.k, 0, at, color=ink(ax), linewidth=1)
        ring: Options = {"markersize": 11, "markerfacecolor": "none", "markeredgewidth": 1.8}
        return ax.plot(self.k, at, marker="o", linestyle="none", color=ink(ax), **ring)[0]

    def _words(self) -> str:
        merged = f", merged to {self.n_groups} groups" if self.n_groups < self.k else ""
        return f"chosen: k = {self.k}{merged}"


@dataclass(eq=False)
class GroupMapDisplay(Display):
    """Groups in the plane of two columns: by default the most important one, and the next that is no copy of it.

    Each group has a colour, a shape and its number, written at its median or, where another one is, beside it; where
    numbers are crowded, small groups have none. Of many rows a random sample is drawn, and the legend says how many.
    Where values of a column are few, points are moved sideways. Groups that differ in other columns lie on each other.

    Attributes
    ----------
    rows : DataFrame
        A row per row of X: x and y (places on the axes), group.
    drawn : array
        Which rows are drawn.
    across, along : Placed
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
    drawn: Integers
    across: Placed
    along: Placed
    places: tuple[Floats, Floats]

    @classmethod
    def from_estimator(
        cls,
        model: Any,
        X: Any,
        *,
        features: Sequence[Any] | None = None,
        max_points: int = 1500,
        random_state: int = 0,
        ax: Axes | None = None,
    ) -> Self:
        """Draw the groups of a fitted model.

        Parameters
        ----------
        model : fitted ICQR
        X : table
            Rows to draw.
        features : two column names or positions, optional
            By default as :func:`most_important` chooses them.
        max_points, random_state : int
            How many rows are drawn at most; seed of their choice.
        ax : matplotlib Axes, optional
            By default those of a new figure.
        """
        features = most_important(_importances(model), X) if features is None else features
        groups = model.explain(X)["group"].to_numpy()
        return cls.from_labels(X, groups, features, max_points=max_points, random_state=random_state, ax=ax)

    @classmethod
    def from_labels(
        cls,
        X: Any,
        groups: ArrayLike,
        features: Sequence[Any],
        *,
        max_points: int = 1500,
        random_state: int = 0,
        ax: Axes | None = None,
    ) -> Self:
        """Draw any labels of rows; the parameters are those of `from_estimator`."""
        if len(features) != 2:
            raise ValueError(f"features must be two columns of X, got {list(features)}")
        across, along = (Placed.of(find_column(X, name)) for name in features)
        labels = np.asarray(groups)
        if labels.shape != across.values.shape:
            raise ValueError(f"groups must have {len(across.values)} labels, one per row of X; got {labels.shape}")
        rng = np.random.default_rng(random_state)
        rows = pd.DataFrame({"x": across.values, "y": along.values, "group": labels})
        drawn = sample_rows(len(rows), max_points, rng)
        return cls(rows, drawn, across, along, (across.spread(drawn, rng), along.spread(drawn, rng))).plot(ax)

    def _draw(self, ax: Axes) -> None:
        numbers = group_numbers(sorted(self.rows["group"].unique()))
        labels = self.rows["group"].to_numpy()
        for label, number in numbers.items():
            chosen, look = labels[self.drawn] == label, group_look(number)
            points: Options = {"marker": look.marker, "color": look.color, "s": 16, "alpha": 0.75, "linewidth": 0}
            ax.scatter(self.places[0][chosen], self.places[1][chosen], gid=group_gid(number), **points)
        self.across.label(ax.xaxis)
        self.along.label(ax.yaxis)
        ends = self.across.ends(), self.along.ends()
        ax.set_xlim(ends[0])
        ax.set_ylim(ends[1])
        written = self._write_numbers(ax, numbers)
        crowded = f"numbers of {written} of {len(numbers)} groups, the largest" if written < len(numbers) else ""
        beyond = beyond_note(self.across.n_beyond(ends[0]) + self.along.n_beyond(ends[1]))
        parts = [sample_note(self.drawn, len(self.rows)), crowded, beyond]
        heading(ax, "Groups", note=", ".join(filter(None, parts)))

    def _write_numbers(self, ax: Axes, numbers: dict[Any, int]) -> int:
        """Write groups' numbers at their medians or, where that is taken, close by; give how many found a place."""
        groups = self.rows.groupby("group")[["x", "y"]]
        medians = groups.median().loc[groups.size().sort_values(ascending=False, kind="stable").index].dropna()
        texts = [plain(label, 12) if numbers[label] >= 0 else "–" for label in medians.index]
        size, room = small_print(ax), points_of(ax)
        boxes = np.array([[0.7 * size * len(text) + 0.8 * size, 1.7 * size] for text in texts]).reshape(-1, 2)
        wanted = ax.transAxes.inverted().transform(ax.transData.transform(medians.to_numpy())) * room
        places = place_boxes(wanted.reshape(-1, 2), boxes, room)
        written = np.flatnonzero(np.isfinite(places[:, 0])).tolist()
        for row in written:
            number, at, move = numbers[medians.index[row]], medians.iloc[row], places[row] - wanted[row]
            self._write_number(ax, texts[row], (at["x"], at["y"]), tuple(move), number, size)
        return len(written)

    def _write_number(
        self, ax: Axes, text: str, at: tuple[float, float], move: tuple[float, float], number: int, size: float
    ) -> None:
        color, gid = group_look(number).color, group_gid(number)
        if any(move):  # below all boxes, so that no line crosses a number
            line = {"arrowstyle": "-", "color": color, "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0}
            options: Options = {"textcoords": "offset points", "arrowprops": line, "zorder": 3.5}
            patch = ax.annotate("", at, move, annotation_clip=False, **options).arrow_patch
            if patch is not None:
                patch.set_gid(gid)
        box = {"boxstyle": "round,pad=0.2", "facecolor": "#ffffff", "edgecolor": color, "linewidth": 1.5}
        look: Options = {"ha": "center", "va": "center", "fontsize": size, "fontweight": "bold", "bbox": box}
        # Not quite black: on its white box the number stays dark when a page is dark.
        look |= {"color": "#111111", "textcoords": "offset points", "gid": gid, "zorder": 4}
        ax.annotate(text, at, move, annotation_clip=False, **look)


def most_important(importances: pd.DataFrame, X: Any) -> list[Any]:
    """Give the most important column and the next one that is no copy of it; if all are, simply the next one.

    Two columns of numbers whose ranks correlate by more than 0.9 say the same: in their plane all rows are on a line.

    Examples
    --------
    >>> X = pd.DataFrame({"length": [1, 2, 3], "area": [1, 4, 9], "age": [5, 1, 3]})
    >>> most_important(pd.DataFrame({"feature": ["length", "area", "age"], "share": [0.5, 0.4, 0.1]}), X)
    ['length', 'age']
    """
    ordered = importances.sort_values("share", ascending=False, kind="stable")
    first, *others = ordered.loc[ordered["share"] > 0, "feature"].tolist() or ordered["feature"].tolist()
    placed = Placed.of(find_column(X, first))
    different = (name for name in others if not _same_order(placed, Placed.of(find_column(X, name))))
    return [first, next(different, others[0])] if others else [first]


def _same_order(one: Placed, other: Placed) -> bool:
    if one.categories or other.categories:
        return False
    with np.errstate(invalid="ignore", divide="ignore"):  # a column may be constant in these rows
        return bool(abs(pd.Series(one.values).rank().corr(pd.Series(other.values).rank())) > 0.9)


def _importances(model: Any) -> pd.DataFrame:
    if not hasattr(model, "importances_"):
        kind = type(model).__name__
        raise ValueError(
            f"model must be a fitted ICQR whose partition uses importances, got a {kind} without importances_; "
            "for a map of groups name two columns with features="
        )
    return pd.DataFrame(model.importances_)
