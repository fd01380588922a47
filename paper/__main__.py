"""Run ``python -m paper``."""

import sys

try:
    from paper.run import main
except ModuleNotFoundError as error:
    sys.exit(f'error: {error}; in the repository\'s folder: pip install -e ".[paper]"')

if __name__ == "__main__":
    sys.exit(main())
