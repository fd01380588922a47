"""What holds, what does not, and where: audit intervals, compare methods, plan a calibration."""

from icqr.auditing.audits import Audit, audit
from icqr.auditing.comparison import Comparison, compare
from icqr.auditing.planning import Plan, plan

__all__ = ["Audit", "Comparison", "Plan", "audit", "compare", "plan"]
