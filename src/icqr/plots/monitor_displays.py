"""How coverage goes while a model is in use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import pandas as pd

from icqr.online import Monitor
from icqr.plots.axes import heading, ink, percent, plain
from icqr.plots.displays import GREY, Display, Options, group_gid, group_look

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_BANDS = 3


@dataclass(eq=False, repr=False)
class MonitorDisplay(Display):
    """Running coverage of each group, with its band and the promise.

    A few groups have a colour and a band, which holds the true coverage at all times together, as long as it stays the
    same: by default those with an alarm, and if there is none the one whose coverage is farthest from its promise. The
    other groups are thin lines.

    Attributes
    ----------
    history : DataFrame
        What `Monitor.history` gives.
    status : DataFrame
        What `Monitor.status` gives.
    groups : list of str
        The groups with a band.

    Examples
    --------
    >>> from icqr import CQR
    >>> from icqr.datasets import make_heteroscedastic
    >>> from icqr.plots import blank_axes
    >>> X, y = make_heteroscedastic(1500, random_state=0, return_X_y=True)
    >>> monitor = Monitor(CQR(random_state=0).fit(X[:1000], y[:1000])).update(X[1000:], y[1000:])
    >>> MonitorDisplay.from_monitor(monitor, ax=blank_axes()).groups
    ['0']
    """

    history: pd.DataFrame
    status: pd.DataFrame
    groups: list[str]

    @classmethod
    def from_monitor(
        cls, monitor: Monitor, *, groups: Sequence[int | str] | None = None, ax: Axes | None = None
    ) -> Self:
        """Draw what a monitor has counted.

        Parameters
        ----------
        monitor : Monitor
        groups : sequence of int, optional
            Groups to show with a band; "all" is all groups that are tested.
        ax : matplotlib Axes, optional
            By default those of a new figure.
        """
        history, status = monitor.history(), monitor.status()
        known = set(history["group"])
        if not known:
            raise ValueError("the monitor has counted no rows yet; give it some by update or observe")
        if groups is not None:
            chosen = [str(group) for group in groups]
            if unknown := [group for group in chosen if group not in known]:
                raise ValueError(f"groups must be groups that had rows, {sorted(known)}, got {unknown[0]!r}")
            return cls(history, status, chosen).plot(ax)
        own = status[status["group"].isin(known) & (status["group"] != "-1")]
        alarmed = own[own["alarm"].str.contains("coverage")]
        off = (own["coverage"] - own["promised"]).abs().where(own["promised"] > 0, -1.0)
        shown = alarmed if len(alarmed) else own.loc[[off.idxmax()]]
        return cls(history, status, shown["group"].tolist()[:_MOST_BANDS]).plot(ax)

    def _draw(self, ax: Axes) -> None:
        n_others = 0
        for group, line in self.history.groupby("group"):
            if group not in self.groups and group not in ("-1", "all"):
                ax.plot(line["row"], line["coverage"], color=GREY, linewidth=0.8, alpha=0.6)
                n_others += 1
        rules = self.status.set_index("group")
        for place, name in enumerate(self.groups):
            line, look = self.history[self.history["group"] == name], group_look(place)
            label = "all groups" if name == "all" else f"group {name} ({plain(rules.loc[name, 'rule'], 40)})"
            gid: Options = {"gid": group_gid(int(name))} if name.isdigit() else {}
            ax.fill_between(
                line["row"], line["band_lower"], line["band_upper"], color=look.color, alpha=0.18, linewidth=0
            )
            ax.plot(line["row"], line["coverage"], color=look.color, linewidth=1.8, label=label, **gid)
        promises = rules.loc[self.groups, "promised"]
        ax.axhline(float(promises.iloc[0]), color=ink(ax), linestyle=":", linewidth=1.2, label="promised")

        # The bands of the first rows are wide, and the picture is about what follows.
        drawn = self.history[self.history["n"] >= 0.1 * self.history.groupby("group")["n"].transform("max")]
        drawn = drawn[drawn["group"] != "-1"]
        low = float(drawn[["coverage", "band_lower"]].min().min())
        ax.set_ylim(max(0.0, low - 0.02), 1.005)
        ax.yaxis.set_major_formatter(lambda share, _: percent(share))
        ax.set_xlabel("rows so far")
        ax.set_ylabel("covered since the first row")
        others = f"{n_others} other {'group' if n_others == 1 else 'groups'} thin" if n_others else ""
        heading(ax, "Coverage in use", "band: the true coverage, however often you look", others)
