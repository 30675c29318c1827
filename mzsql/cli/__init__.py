"""The command ``mzsql``: the demo, scripts, the shell, a look at what is stored.

It uses what any user has, `mzsql.connect` and SQL, and adds only the terminal.
"""

from __future__ import annotations

from mzsql.cli.app import main

__all__ = ["main"]
