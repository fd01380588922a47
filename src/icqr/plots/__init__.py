"""Pictures of prediction intervals: scikit-learn-style displays on matplotlib (extra ``plot``).

Each display has ``from_estimator`` (a fitted model) and, where it makes sense, ``from_predictions`` (intervals from any
library); both draw at once, on ``ax`` or on a new figure, and return the display. A display keeps its data as
attributes, ``plot(ax)`` draws it again, and ``figure_to_svg(display.figure_)`` is text for a web page.

Nothing global is touched: no settings of matplotlib, and pyplot only to make a figure when there is no ``ax``. Colours
are Okabe and Ito's, and no picture needs them to be read: shapes, dashes and labels say the same.
"""

from icqr.plots.displays import METHOD_COLORS, blank_axes, figure_to_svg, method_color
from icqr.plots.group_displays import ExplainedVarianceDisplay, GroupMapDisplay, ImportanceDisplay
from icqr.plots.interval_displays import IntervalDisplay, WidthResidualDisplay
from icqr.plots.method_displays import GroupCoverageDisplay, ReliabilityDisplay, WidthDisplay
from icqr.plots.monitor_displays import MonitorDisplay

__all__ = [
    "METHOD_COLORS",
    "ExplainedVarianceDisplay",
    "GroupCoverageDisplay",
    "GroupMapDisplay",
    "ImportanceDisplay",
    "IntervalDisplay",
    "MonitorDisplay",
    "ReliabilityDisplay",
    "WidthDisplay",
    "WidthResidualDisplay",
    "blank_axes",
    "figure_to_svg",
    "method_color",
]
