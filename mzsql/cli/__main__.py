"""``python -m mzsql.cli``: the command ``mzsql`` under the running interpreter."""

from __future__ import annotations

from mzsql.cli import main

main()
