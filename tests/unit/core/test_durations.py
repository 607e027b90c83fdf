"""Slurm durations and their spelling for people."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ischeduler.core.durations import UNLIMITED, format_slurm, human, parse_human, parse_slurm
from ischeduler.core.errors import BadInput

whole_seconds = st.integers(0, 400 * 86400)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800), ("0", 0), ("30:15", 1815), ("01:02:03", 3723), ("2-00:00:00", 172_800), ("1-12", 129_600),
        ("1-12:30", 131_400), (" 10 ", 600), ("UNLIMITED", math.inf), ("infinite", math.inf), ("-1", math.inf),
    ],
)  # fmt: skip
def test_slurm_reads_it_so(text: str, seconds: float) -> None:
    assert parse_slurm(text) == seconds


@pytest.mark.parametrize("text", ["", "abc", "1h", "1:2:3:4", "1-", "-5", "1.5", "٣", "1--2", "1-2-3", ":30"])
def test_what_slurm_refuses_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(BadInput, match="is not a Slurm duration; expected"):
        parse_slurm(text)


@given(whole_seconds)
def test_what_we_write_slurm_reads_back(seconds: int) -> None:
    assert parse_slurm(format_slurm(seconds)) == seconds


@given(st.floats(0, 1e8))
def test_a_request_never_shrinks(seconds: float) -> None:
    assert seconds <= parse_slurm(format_slurm(seconds)) <= seconds + 1


def test_unlimited_round_trips_and_minus_infinity_is_not_unlimited() -> None:
    assert parse_slurm(format_slurm(UNLIMITED)) == UNLIMITED
    with pytest.raises(OverflowError):
        format_slurm(-math.inf)


@given(st.floats(0, 400 * 86400))
def test_people_can_type_what_they_were_shown(seconds: float) -> None:
    shown = human(seconds)
    step = 1 if seconds < 99.5 else 60 if seconds < 72 * 3600 - 30 else 3600
    assert abs(parse_human(shown) - seconds) <= step / 2 + 1e-6


@given(st.floats(0, 1e7), st.floats(0, 1e7))
def test_a_longer_time_is_never_shown_shorter(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert parse_human(human(low)) <= parse_human(human(high))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0s"), (45, "45s"), (2400, "40m"), (7200, "2h00"), (34_200, "9h30"), (273_600, "3d04h"), (math.inf, "unlimited"),
     (262_740, "3d01h"), (-90, "-90s"), (-math.inf, "-unlimited")],
)  # fmt: skip
def test_short_spelling(seconds: float, words: str) -> None:
    assert human(seconds) == words


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("1h30m", 5400), ("1h 30m", 5400), ("2h00", 7200), ("9h05", 32_700), ("2d", 172_800), ("1.5h", 5400), ("45", 2700),
     ("3d04h", 273_600), ("unlimited", math.inf)],
)  # fmt: skip
def test_people_may_write(text: str, seconds: float) -> None:
    assert parse_human(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-1h", "1h30x", "h", "1w"])
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"is not a duration; expected e\.g\. 90s"):
        parse_human(text)


@given(st.text(max_size=12))
def test_any_text_is_read_or_refused_never_worse(text: str) -> None:
    for parse in (parse_slurm, parse_human):
        try:
            assert parse(text) >= 0
        except BadInput:
            pass
