"""The lineage rule: pinned by hand, then against random histories with zombies."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from ischeduler.training.lineage import CheckpointName, lineage
from ischeduler.training.token import Token


def name(step: int, token: int, epoch: int = 0) -> CheckpointName:
    return CheckpointName(epoch, step, Token(token))


def test_names_read_back() -> None:
    written = CheckpointName(12, 3456, Token(7, 2))
    assert str(written) == "e00012-s000003456-t7.2"
    assert CheckpointName.parse(str(written)) == written
    assert CheckpointName.of_file(f"{written}.weights.h5") == written
    for foreign in (f"{written}", f"x{written}.pt", f"{written}x.pt", f".tmp-{written}.pt", "best.pt"):
        assert CheckpointName.of_file(foreign) is None


def test_a_late_checkpoint_of_a_superseded_incarnation_is_never_taken() -> None:
    names = [name(40, 2), name(50, 2), name(60, 2), name(55, 3)]
    bases = {Token(2): None, Token(3): name(50, 2)}
    assert lineage(names, bases, Token(4)) == [name(55, 3), name(50, 2), name(40, 2)]


def test_who_never_settled_a_base_is_passed_over() -> None:
    names = [name(50, 2), name(70, 3)]
    assert lineage(names, {Token(2): None}, Token(4)) == [name(50, 2)]


def test_starting_from_scratch_ends_the_line() -> None:
    names = [name(50, 1), name(10, 2)]
    assert lineage(names, {Token(1): None, Token(2): None}, Token(3)) == [name(10, 2)]


def test_processes_restarted_in_place_find_their_own() -> None:
    names = [name(50, 1), name(60, 2)]
    assert lineage(names, {Token(1): None, Token(2): name(50, 1)}, Token(2)) == [name(60, 2), name(50, 1)]


def test_the_end_of_an_epoch_comes_after_its_last_step() -> None:
    late, early = name(50, 1, epoch=3), name(50, 1, epoch=2)
    assert lineage([early, late], {Token(1): None}, Token(2)) == [late, early]
    assert lineage([early, late], {Token(1): None, Token(2): early}, Token(3)) == [early]


def test_a_base_that_points_forward_cannot_loop() -> None:
    bases = {Token(1): name(5, 2), Token(2): name(5, 1)}
    assert lineage([name(5, 1), name(5, 2)], bases, Token(3)) == [name(5, 2), name(5, 1)]


@dataclass
class History:
    """A run as it may really go: incarnations start, resume, save, die or live on as zombies, in any interleaving.

    `truth[c]` is the chain of (writer, step) pairs that led to checkpoint `c`: who computed what it holds.
    """

    names: list[CheckpointName] = field(default_factory=list)
    bases: dict[Token, CheckpointName | None] = field(default_factory=dict)
    late: set[CheckpointName] = field(default_factory=set)
    position: dict[Token, int] = field(default_factory=dict)

    def start(self, corrupt: int) -> None:
        me = Token(len(self.position) + 1)
        trusted = lineage(self.names, self.bases, me)
        base = trusted[corrupt] if corrupt < len(trusted) else None
        assert base not in self.late
        self.bases[me] = base
        self.position[me] = base.step if base else 0

    def save(self, index: int, steps: int) -> None:
        if not self.position:
            return
        tokens = list(self.position)
        writer = tokens[index % len(tokens)]
        self.position[writer] += steps
        saved = CheckpointName(0, self.position[writer], writer)
        self.names.append(saved)
        heirs = [base for token, base in self.bases.items() if token > writer]
        if heirs:  # somebody newer has settled: whatever an older writer adds now is late
            self.late.add(saved)


moves = st.lists(
    st.one_of(
        st.tuples(st.just("start"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("save"), st.integers(0, 9), st.integers(1, 5)),
    ),
    max_size=40,
)


@given(moves)
def test_no_history_ever_resumes_a_late_checkpoint(steps: list[tuple[str, int, int]]) -> None:
    """Late: written after a newer incarnation settled its base. (Each start asserts; and so does the end.)"""
    history = History()
    for kind, number, amount in steps:
        history.start(number) if kind == "start" else history.save(number, amount)
    newest = lineage(history.names, history.bases, Token(99))
    assert not history.late & set(newest)


@given(moves)
def test_all_checkpoints_of_the_newest_incarnation_come_first_in_order(steps: list[tuple[str, int, int]]) -> None:
    history = History()
    for kind, number, amount in steps:
        history.start(number) if kind == "start" else history.save(number, amount)
    if not history.position:
        return
    newest = max(history.position)
    own = sorted((n for n in history.names if n.token == newest), key=lambda n: n.step, reverse=True)
    found = lineage(history.names, history.bases, Token(99))
    assert found[: len(own)] == own
    positions = [n.position for n in found]
    assert positions == sorted(positions, reverse=True)
    assert lineage(history.names[::-1], dict(reversed(history.bases.items())), Token(99)) == found
