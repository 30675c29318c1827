"""The build's version: part of every cached plan's key and of what `mzsql --version` prints."""

from __future__ import annotations

#: Equal to the distribution's version; `pyproject.toml` reads it from here.
VERSION = "0.1.0"
