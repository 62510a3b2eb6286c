"""``python -m trainwright`` is ``trainwright``."""

from __future__ import annotations

import sys

from trainwright.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
