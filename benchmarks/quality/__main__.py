"""Run ``python -m benchmarks.quality``."""

import sys

try:
    from benchmarks.quality.run import main
except ModuleNotFoundError as error:
    sys.exit(f'error: {error}; in the repository\'s folder: pip install -e ".[benchmark]"')

if __name__ == "__main__":
    sys.exit(main())
