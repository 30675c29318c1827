"""What `differs.txt` lists is what differs: each of its records once, one that there is, with another answer than PostgreSQL's."""

from __future__ import annotations

from records_kit import DIFFERS, EXPRESSIONS, QUERIES, read


def test_what_differs_is_listed_once_with_a_reason_and_differs() -> None:
    lines = [line.split("\t") for line in DIFFERS.read_text().splitlines()]
    assert [line for line in lines if len(line) != 3 or not line[2]] == []
    texts = [text for text, _ours, _reason in lines]
    assert sorted(texts) == sorted(set(texts))
    answers = {r.text: r.answer for path in (*EXPRESSIONS, *QUERIES) for r in read(path)}
    assert [text for text in texts if text not in answers] == []
    assert [text for text, ours, _reason in lines if answers[text] == ours] == []
