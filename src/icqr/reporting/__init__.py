"""A report that can be sent: one self-contained HTML file, or the same content as a dict (extra ``report``)."""

from icqr.reporting.render import report
from icqr.reporting.summary import summarize

__all__ = ["report", "summarize"]
