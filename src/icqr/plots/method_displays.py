"""What tells methods apart: coverage by group, coverage over many levels, and widths."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from icqr._predicting import IntervalRegressor
from icqr._rows import target_name
from icqr._sheet import cell
from icqr._tables import FloatArray
from icqr.calibration import COVERAGES
from icqr.metrics import binomial_interval, coverage_by_group, width_summary
from icqr.metrics.marginal import check_rows, check_share
from icqr.partition import GroupPartition
from icqr.plots.axes import heading, in_units, ink, name_rows, percent, plain
from icqr.plots.displays import WHITE, Display, Models, Options, group_gid, group_numbers, method_look, named_models
from icqr.regressors import QR

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Two blanks would be one on a web page.
EN_SPACE = "\u2002"
#: One array of intervals, or a mapping from methods to arrays.
Intervals: TypeAlias = ArrayLike | Mapping[str, ArrayLike]


@dataclass(eq=False, repr=False)
class GroupCoverageDisplay(Display):
    """Coverage in each group with its exact (Clopper–Pearson) interval, and the promise.

    A mark is filled if the exact 95 % interval holds the promise and open if it does not, which happens by chance in
    one of twenty groups. Of more than `max_groups` groups those with the least coverage are drawn.

    Attributes
    ----------
    table : DataFrame
        A row per method and group: method, group, n, share, coverage, coverage_lower, coverage_upper, mean_width.
    overall : DataFrame
        The same for all rows together, a row per method.
    coverage : float
        The promise.
    max_groups : int
        How many groups are drawn.
    names : mapping
        What groups are called, where that is not their label.
    kind : str
        What the groups are: "group" or, for example, "region".
    note : str
        What the lines are.

    Examples
    --------
    >>> from icqr.plots import blank_axes
    >>> y, intervals, groups = [1, 2, 3], [[0, 1], [0, 1], [2, 4]], ["a", "a", "b"]
    >>> display = GroupCoverageDisplay.from_predictions(y, intervals, groups, coverage=0.9, ax=blank_axes())
    >>> display.table[["group", "n", "coverage"]].values.tolist()
    [['a', 2, 0.5], ['b', 1, 1.0]]
    """

    table: pd.DataFrame
    overall: pd.DataFrame
    coverage: float
    max_groups: int = 40
    names: Mapping[Hashable, str] = field(default_factory=dict)
    kind: str = "group"
    note: str = "exact 95 % intervals"

    @classmethod
    def from_estimator(
        cls,
        models: Models,
        X: ArrayLike,
        y: ArrayLike,
        *,
        groups: ArrayLike | None = None,
        coverage: float | None = None,
        **options: Any,
    ) -> Self:
        """Draw the coverage of one or several models.

        Parameters
        ----------
        models : fitted Naive, QR, CQR, ICQR or AutoICQR; a list, or a mapping from names to such models
        X, y : table and array
            Rows that the models have not seen.
        groups : (n,) array, optional
            Labels of the rows; by default the groups of the model that has most.
        coverage : float, optional
            By default the models' own.
        **options
            Of :meth:`from_predictions`: `max_groups`, `names`, `ax`.
        """
        named = named_models(models)
        intervals, promise = _predicted_intervals(named, X, coverage)
        if groups is None:
            finest = max(named.values(), key=lambda model: model.n_groups_)
            groups = finest.assign(X)
            # Only a user's own groups are what their rule says; rules of clusters are approximate.
            if isinstance(finest.partition_, GroupPartition):
                options = {"names": dict(enumerate(finest.groups_["rule"])), **options}
        return cls.from_predictions(y, intervals, groups, coverage=promise, **options)

    @classmethod
    def from_predictions(
        cls,
        y: ArrayLike,
        intervals: Intervals,
        groups: ArrayLike,
        *,
        coverage: float,
        max_groups: int = 40,
        names: Mapping[Hashable, str] | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """Draw the coverage of intervals from anywhere.

        Parameters
        ----------
        y : (n,) array
        intervals : (n, 2) array, or a mapping from methods to such arrays
            Bounds may be infinite.
        groups : (n,) array
            Labels of the rows, of any kind.
        coverage : float
            What the intervals promise.
        max_groups : int, default=40
            How many groups are drawn.
        names : mapping, optional
            What groups are called, where that is not their label.
        ax : matplotlib Axes, optional
            By default those of a new figure.
        """
        if max_groups < 1:
            raise ValueError(f"max_groups must be at least 1, got {max_groups}")
        named, promise = _named_intervals(intervals), check_share("coverage", coverage)
        everywhere = np.zeros(np.shape(y)[0], dtype=int)
        table = _by_method({name: coverage_by_group(y, bounds, groups).reset_index() for name, bounds in named.items()})
        overall = _by_method({name: coverage_by_group(y, bounds, everywhere) for name, bounds in named.items()})
        return cls(table, overall, promise, max_groups, names or {}).plot(ax)

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches: higher for more groups and methods."""
        return 6.4, 1.7 + (1 + len(self._shown())) * (0.12 + 0.12 * len(self.overall))

    def _shown(self) -> list[Any]:
        """Return the labels of the groups that are drawn: the least covered, in the order of the table."""
        worst = self.table.groupby("group", sort=False, dropna=False)["coverage"].min()
        kept = worst.sort_values(kind="stable").index[: self.max_groups]
        return [label for label in worst.index if label in kept]

    def _draw(self, ax: Axes) -> None:
        shown, numbers = self._shown(), group_numbers(self.table["group"])
        line: Options = {"color": ink(ax), "linestyle": "--", "linewidth": 1.2, "zorder": 1.5}
        ax.axvline(self.coverage, label=f"promised: {percent(self.coverage)}", **line)

        # All rows together at the top, then a row per group; in each of them the methods below each other.
        gids = [None, *(group_gid(numbers[label]) for label in shown)]
        for place, method in enumerate(self.overall["method"]):
            look, heights = method_look(method), np.arange(len(gids)) + 0.7 * ((place + 0.5) / len(self.overall) - 0.5)
            marks: Options = {"marker": look.marker, "markersize": 6.5, "markeredgewidth": 1.5, "linestyle": "none"}
            overall, by_group = (part[part["method"] == method] for part in (self.overall, self.table))
            drawn = pd.concat([overall, by_group.set_index("group").loc[shown]])
            for gid, y, row in zip(gids, heights, drawn.itertuples(), strict=True):
                ax.plot([row.coverage_lower, row.coverage_upper], [y, y], color=look.color, linewidth=2, gid=gid)
                fill = look.color if row.coverage_lower <= self.coverage <= row.coverage_upper else WHITE
                ax.plot(row.coverage, y, color=look.color, markerfacecolor=fill, gid=gid, zorder=3, **marks)
            ax.plot([], [], color=look.color, marker=look.marker, linewidth=2, markersize=6, label=plain(method, 24))
        ax.axhline(0.5, color=ink(ax), linewidth=0.6)

        sizes = self.table.drop_duplicates("group").set_index("group")["n"]
        known = {-1: "no known group", **self.names}
        longest = min(28, int(5.8 * ax.bbox.width / ax.figure.dpi))  # narrow pictures have no room for long names
        names = [f"{plain(known.get(label, label), longest)}{EN_SPACE}n = {sizes[label]:,}" for label in shown]
        name_rows(ax, [f"all{EN_SPACE}n = {self.overall['n'].iloc[0]:,}", *names])
        ax.set_ylim(len(shown) + 0.6, -0.6)
        ax.xaxis.set_major_formatter(lambda share, _: percent(share))
        ax.set_xlabel("coverage")
        n_groups = self.table["group"].nunique(dropna=False)
        part = f"the {len(shown)} least covered of {n_groups} {self.kind}s; " if len(shown) < n_groups else ""
        heading(ax, f"Coverage by {self.kind}", f"{part}{self.note}; open: promise outside")


@dataclass(eq=False, repr=False)
class ReliabilityDisplay(Display):
    """Coverage asked for against coverage observed, over many levels.

    The band is the exact (Clopper–Pearson) 95 % interval at each level by itself.

    Attributes
    ----------
    table : DataFrame
        A row per method and level: method, asked, observed, lower, upper, n.

    Examples
    --------
    >>> from icqr.plots import blank_axes
    >>> intervals = [[[0, -1], [1, 1]], [[0, -1], [0, 1]]]  # of two rows, at two levels
    >>> display = ReliabilityDisplay.from_predictions([1, 1], intervals, [0.5, 0.9], ax=blank_axes())
    >>> display.table[["asked", "observed"]].values.tolist()
    [[0.5, 0.5], [0.9, 1.0]]
    """

    table: pd.DataFrame

    @classmethod
    def from_estimator(
        cls,
        models: Models,
        X: ArrayLike,
        y: ArrayLike,
        *,
        levels: Sequence[float] | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """Draw the reliability of one or several models.

        Parameters
        ----------
        models, X, y
            As in :meth:`GroupCoverageDisplay.from_estimator`.
        levels : list of float, optional
            Coverages to ask for; by default those that :func:`reliability` chooses of 13 from 0.1 to 0.99.
        ax : matplotlib Axes, optional
            By default those of a new figure.
        """
        named = named_models(models)
        return cls(_by_method({name: reliability(model, X, y, levels) for name, model in named.items()})).plot(ax)

    @classmethod
    def from_predictions(
        cls, y: ArrayLike, intervals: Intervals, levels: Sequence[float], *, ax: Axes | None = None
    ) -> Self:
        """Draw the reliability of intervals from anywhere.

        Parameters
        ----------
        y : (n,) array
        intervals : (n, 2, levels) array, or a mapping from methods to such arrays
            Bounds may be infinite.
        levels : list of float
            The coverages that were asked for.
        ax : matplotlib Axes, optional
            By default those of a new figure.
        """
        named = _named_intervals(intervals)
        return cls(_by_method({name: _reliability(y, bounds, levels) for name, bounds in named.items()})).plot(ax)

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches: nearly a square."""
        return 5.0, 5.2

    def _draw(self, ax: Axes) -> None:
        ax.plot([0, 1], [0, 1], color=ink(ax), linestyle=":", linewidth=1.2, label="as asked")
        for method, rows in self.table.groupby("method", sort=False):
            look, several = method_look(str(method)), len(rows) > 1
            if several:
                ax.fill_between(rows["asked"], rows["lower"], rows["upper"], color=look.color, alpha=0.18, linewidth=0)
            else:
                ax.vlines(rows["asked"], rows["lower"], rows["upper"], color=look.color, linewidth=2)
            marks: Options = {"marker": look.marker, "markersize": 5 if several else 8, "markeredgecolor": WHITE}
            curve: Options = {"color": look.color, "linestyle": look.line, "linewidth": 1.6, "markeredgewidth": 0.6}
            ax.plot(rows["asked"], rows["observed"], label=plain(method), **curve, **marks)

        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_formatter(lambda share, _: percent(share))
        # Both axes alike, and no longer than what is drawn: small distances must be seen.
        lowest = math.floor(20 * min(self.table["asked"].min(), self.table["lower"].min())) / 20
        ax.set(xlim=(lowest, 1), ylim=(lowest, 1), xlabel="coverage asked for", ylabel="coverage observed")
        heading(ax, "Reliability", "bands: exact 95 % intervals")


def reliability(
    model: IntervalRegressor, X: ArrayLike, y: ArrayLike, levels: Sequence[float] | None = None
) -> pd.DataFrame:
    """Return what a model covers at each of several levels: a row per level, as in `ReliabilityDisplay.table`.

    By default at those for which each group has calibration rows enough, if it has enough at the model's own level.
    QR only has its own.

    Examples
    --------
    >>> from icqr import Naive
    >>> from sklearn.linear_model import LinearRegression
    >>> X, y = np.arange(40.0)[:, None], np.arange(40.0) % 4
    >>> model = Naive(LinearRegression(), random_state=0).fit(X, y)
    >>> reliability(model, X, y, [0.5, 0.9])["asked"].tolist()
    [0.5, 0.9]
    """
    if isinstance(model, QR):
        levels = [model.coverage]
    elif levels is None:
        own, calibration = float(model.coverage), model.calibration_
        large = ((calibration.sizes > 0) & ~calibration.too_small(own))[:-1]
        levels = [level for level in sorted({*COVERAGES, own}) if not calibration.too_small(level)[:-1][large].any()]
    return _reliability(y, model.predict_interval(X, list(levels)), levels)


def _reliability(y: ArrayLike, intervals: ArrayLike, levels: Sequence[float]) -> pd.DataFrame:
    """Return a row per level: asked, observed, lower, upper, n."""
    bounds, asked = np.asarray(intervals, dtype=float), [check_share("levels", level) for level in levels]
    if bounds.ndim != 3 or bounds.shape[2] != len(asked):
        wanted = f"(n, 2, {len(asked)}), lower and upper bounds for each of the {len(asked)} levels"
        raise ValueError(f"intervals must have the shape {wanted}; got {bounds.shape}")
    hits = [int(check_rows(y, bounds[:, :, place]).covered.sum()) for place in range(len(asked))]
    low, high = binomial_interval(hits, len(bounds))
    table = {"asked": asked, "observed": np.array(hits) / len(bounds), "lower": low, "upper": high, "n": len(bounds)}
    return pd.DataFrame(table).sort_values("asked", ignore_index=True)


@dataclass(eq=False, repr=False)
class WidthDisplay(Display):
    """Distribution of the widths of each method's intervals.

    For each method a histogram of the finite widths, as high as there is room, and below it a box from the first to the
    third quartile, whiskers from the 5th to the 95th percentile, the median as a gap and the mean as a diamond. If a
    few widths are far beyond all others, the axis ends earlier; how many are beyond, and how many are infinite, is
    written at the right edge, after the mean.

    Attributes
    ----------
    widths : dict of arrays
        The widths by method.
    summary : DataFrame
        A row per method: the statistics of :func:`icqr.metrics.width_summary`.
    y_name : str or None
        Name of the target.

    Examples
    --------
    >>> from icqr.plots import blank_axes
    >>> display = WidthDisplay.from_predictions([0, 0], {"CQR": [[0, 1], [0, 3]]}, ax=blank_axes())
    >>> display.summary.loc["CQR", "mean"]
    np.float64(2.0)
    """

    widths: dict[str, FloatArray]
    summary: pd.DataFrame
    y_name: str | None

    @classmethod
    def from_estimator(
        cls, models: Models, X: ArrayLike, y: ArrayLike, *, coverage: float | None = None, ax: Axes | None = None
    ) -> Self:
        """Draw the widths of one or several models.

        Parameters
        ----------
        models, X, y, coverage
            As in :meth:`GroupCoverageDisplay.from_estimator`; y only gives its name.
        ax : matplotlib Axes, optional
            By default those of a new figure.
        """
        intervals, _ = _predicted_intervals(named_models(models), X, coverage)
        return cls.from_predictions(y, intervals, ax=ax)

    @classmethod
    def from_predictions(cls, y: ArrayLike, intervals: Intervals, *, ax: Axes | None = None) -> Self:
        """Draw the widths of intervals from anywhere.

        Parameters
        ----------
        y : (n,) array
            Only checked; a pandas or polars column gives its name to the axis.
        intervals : (n, 2) array, or a mapping from methods to such arrays
            Bounds may be infinite.
        ax : matplotlib Axes, optional
            By default those of a new figure.
        """
        named = _named_intervals(intervals)
        widths = {name: check_rows(y, bounds).width for name, bounds in named.items()}
        summary = pd.DataFrame({name: width_summary(y, bounds) for name, bounds in named.items()}).T
        return cls(widths, summary, target_name(y)).plot(ax)

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches: higher for more methods."""
        return 6.4, 1.3 + 0.85 * len(self.widths)

    def _draw(self, ax: Axes) -> None:
        # The axis ends at the largest width, unless that is far beyond nearly all widths of every method.
        finite = {method: width[np.isfinite(width)] for method, width in self.widths.items()}
        largest = max((float(width.max()) for width in finite.values() if len(width)), default=1.0)
        usual = max((float(np.quantile(width, 0.99)) for width in finite.values() if len(width)), default=1.0)
        end = (1.25 * usual if largest > 2 * usual else largest) or 1.0

        for height, (method, width) in enumerate(reversed(self.widths.items())):
            # The mean at the right edge, and what the axis does not show.
            notes = []
            if len(finite[method]):
                _draw_ridge(ax, height, finite[method], end, method_look(method).color)
                notes.append(f"mean {cell(float(finite[method].mean())).text}")
            for place, rows in {"beyond": np.isfinite(width) & (width > end), "infinite": np.isinf(width)}.items():
                notes += [f"{percent(rows.mean(), 2)} {place} ▶"] if rows.any() else []
            look: Options = {"ha": "right", "va": "bottom", "fontsize": "small"}
            ax.text(0.995, height + 0.57, ", ".join(notes), transform=ax.get_yaxis_transform(), **look)

        name_rows(ax, [plain(method, 20) for method in reversed(self.widths)])
        ax.set_xlim(0, end * 1.03)
        ax.set_ylim(-0.45, len(self.widths) - 0.2)
        ax.set_xlabel(in_units("width of the interval", self.y_name))
        heading(ax, "Widths of the intervals", "box: middle half, gap: median, line: 5 to 95 %, ◇: mean")


def _draw_ridge(ax: Axes, height: int, finite: FloatArray, end: float, color: str) -> None:
    """Draw a method's histogram and, below it, box, whiskers, median and mean."""
    counts, edges = np.histogram(finite[finite <= end], bins=60, range=(0, end))
    tops, y = height + 0.55 * counts / counts.max(), height - 0.2
    ax.stairs(tops, edges, baseline=height, fill=True, color=color, alpha=0.35, linewidth=0)
    ax.stairs(tops, edges, baseline=height, color=color, linewidth=1)

    low, first, middle, third, high = np.quantile(finite, [0.05, 0.25, 0.5, 0.75, 0.95])
    ax.plot([low, high], [y, y], color=color, linewidth=1.4, solid_capstyle="butt")
    ax.plot([first, third], [y, y], color=color, linewidth=8, solid_capstyle="butt")
    ax.plot(middle, y, marker="|", markersize=9, markeredgewidth=2, color=WHITE)
    ax.plot(finite.mean(), y, marker="D", markersize=5, color=WHITE, markeredgecolor=ink(ax), zorder=3)


# -- Intervals by method --------------------------------------------------------------------------------------


def _predicted_intervals(
    models: Mapping[str, IntervalRegressor], X: ArrayLike, coverage: float | None
) -> tuple[dict[str, FloatArray], float]:
    """Return intervals by name and their coverage: by default the models' own, which must then be one."""
    coverages = {float(model.coverage) for model in models.values()} if coverage is None else {float(coverage)}
    if len(coverages) > 1:
        raise ValueError(f"models were fitted for several coverages, {sorted(coverages)}; say which with coverage=")
    (level,) = coverages
    return {name: model.predict_interval(X, level) for name, model in models.items()}, level


def _named_intervals(intervals: Intervals) -> dict[str, ArrayLike]:
    """Return intervals by method; an array alone is called "intervals"."""
    named = {str(k): v for k, v in intervals.items()} if isinstance(intervals, Mapping) else {"intervals": intervals}
    if not named:
        raise ValueError("intervals must hold at least one method, got none")
    return named


def _by_method(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Put the methods' tables below each other, with the method as first column."""
    return pd.concat(tables, names=["method"]).reset_index("method").reset_index(drop=True)
