"""The command ``mzsql``: the demo, scripts, the shell, inspection and maintenance of stored data.

It uses what any user has, `mzsql.connect` and SQL, and adds only the terminal.
"""

from __future__ import annotations

from mzsql.cli.app import main

__all__ = ["main"]
