"""What the shell completes: the words that statements begin with, and names."""

from __future__ import annotations

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from mzsql.cli.shell import Names


@pytest.mark.parametrize(
    ("typed", "whole"),
    [
        ("reas", "reassign"),
        ("DEALL", "DEALLOCATE"),
        ("create tab", "table"),
        ("subs", "subscribe"),
        ("select * from ord", "orders"),
        ("select count(pri", "price"),
    ],
)
def test_words_and_names_are_completed(typed: str, whole: str) -> None:
    names = Names(lambda: ["orders", "price"])
    found = [one.text for one in names.get_completions(Document(typed), CompleteEvent())]
    assert whole in found
