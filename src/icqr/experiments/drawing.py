"""How the experiments' figures look: one colour for each method everywhere, and no global state of matplotlib."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icqr.experiments.extras import need
from icqr.experiments.tidy_rows import write_text
from icqr.plots.style import GREEN, METHOD_COLORS, PURPLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#333333"
VARIANT_COLORS = {"notebook": PURPLE, "printed": GREEN, "ours": METHOD_COLORS["ICQR"]}
VARIANT_LINES: dict[str, Any] = {"exact": "-", "ours": "-", "printed": (0, (5, 2)), "notebook": (0, (1.5, 1.5))}

#: How all figures look.
_STYLE = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.8,
    "legend.framealpha": 0.9,
    "legend.edgecolor": "none",
    "svg.fonttype": "none",
    "svg.hashsalt": "icqr",
}


@contextmanager
def style() -> Iterator[None]:
    """Use the figures' style; what was set before is set again afterwards."""
    with need("matplotlib").rc_context(_STYLE):
        yield


def new_figure(width: float, height: float, columns: int = 1, **options: Any) -> tuple[Figure, list[Axes]]:
    """Make a figure with panels side by side; sizes are in inches."""
    figure = need("matplotlib.figure").Figure(figsize=(width, height), layout="constrained")
    panels = figure.subplots(1, columns, squeeze=False, **options)[0]
    return figure, list(panels)


class Album:
    """A folder of figures, each as PNG and SVG, and one file with their captions.

    Parameters
    ----------
    folder : path
        Is made if it is not there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.captions: dict[str, str] = {}

    def add(self, name: str, figure: Figure, caption: str) -> None:
        """Save a figure."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for kind, metadata in (("png", {}), ("svg", {"Date": None})):
            temporary = self.folder / f"{name}.{kind}.part"
            figure.savefig(temporary, format=kind, dpi=150, metadata=metadata)
            temporary.replace(self.folder / f"{name}.{kind}")
        self.captions[name] = caption

    def write_captions(self) -> None:
        """Write captions.md."""
        parts = [f"![{name}]({name}.png)\n\n{caption}\n" for name, caption in self.captions.items()]
        write_text(self.folder / "captions.md", "# Figures\n\n" + "\n".join(parts))
