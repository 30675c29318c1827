"""``python -m mzsql.cli``: the command ``mzsql`` of this very interpreter."""

from __future__ import annotations

from mzsql.cli import main

main()
