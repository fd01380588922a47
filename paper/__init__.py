"""The paper's tables and figures, run from a clone of the repository: ``python -m paper boston --out DIR``."""
