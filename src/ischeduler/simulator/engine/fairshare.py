"""Who has used how much, and what share that leaves: Slurm's fair-share factors.

Sources: priority_multifactor(5); Fair Tree as in fair_tree.html of Slurm; the classic factor is 2^(-U/(S*d)).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from ischeduler.simulator.engine.machine import Account
from ischeduler.simulator.engine.options import PriorityOptions

Association = tuple[str, str]
"""(account, user)."""


@dataclass(slots=True, eq=False)
class _Branch:
    """An account, or a user in one (then ``association`` is set). ``usage`` is in decayed core-seconds."""

    name: str
    shares: int
    association: Association | None = None
    children: list[_Branch] = field(default_factory=list["_Branch"])
    usage: float = 0.0
    level: float = 0.0

    def total(self) -> float:
        """Usage of the branch and all below it; kept in ``usage`` of accounts."""
        if self.association is None:
            self.usage = sum(child.total() for child in self.children)
        return self.usage


class FairShare:
    """The tree of accounts and users with their usage. Users seen for the first time join their account with one share."""

    def __init__(self, accounts: Iterable[Account], options: PriorityOptions) -> None:
        self._options = options
        self._root = _Branch("root", 1)
        self._accounts: dict[str, _Branch] = {"": self._root}
        self._users: dict[Association, _Branch] = {}
        waiting = list(accounts)
        for account in waiting:
            self._accounts[account.name] = _Branch(account.name, account.shares)
        for account in waiting:
            parent = self._accounts.get(account.parent, self._root)
            parent.children.append(self._accounts[account.name])
            for user, shares in account.users.items():
                self._join((account.name, user), shares)

    def _join(self, who: Association, shares: int = 1) -> _Branch:
        account = self._accounts.get(who[0])
        if account is None:
            account = self._accounts[who[0]] = _Branch(who[0], 1)
            self._root.children.append(account)
        user = self._users[who] = _Branch(who[1], shares, who)
        account.children.append(user)
        return user

    def charge(self, who: Association, core_s: float) -> None:
        """Add usage."""
        (self._users.get(who) or self._join(who)).usage += core_s

    def known(self, who: Association) -> None:
        """Make sure that the user has a place in the tree."""
        if who not in self._users:
            self._join(who)

    def decay(self, elapsed_s: float) -> None:
        """Let usage fade by PriorityDecayHalfLife."""
        if self._options.half_life_s > 0 and elapsed_s > 0:
            factor = 0.5 ** (elapsed_s / self._options.half_life_s)
            for user in self._users.values():
                user.usage *= factor

    def factors(self) -> dict[Association, float]:
        """Each user's factor in [0, 1]; 1 is the most under-served."""
        self._root.total()
        found: dict[Association, float] = {}
        if self._options.fair_tree:
            _levels(self._root)
            count = len(self._users)
            self._rank(self._root.children, [count, count], False, found, count)
        else:
            self._classic(self._root, 1.0, 1.0, found)
        return found

    def _rank(self, siblings: list[_Branch], rank: list[int], account_tied: bool, found: dict[Association, float], count: int) -> None:
        """Fair Tree: best level first; equal users share a rank, equal accounts are merged."""
        ordered = sorted(siblings, key=lambda b: (-b.level, b.association is None))
        previous, i = math.nan, 0
        while i < len(ordered):
            branch = ordered[i]
            tied = account_tied if i == 0 else branch.level == previous
            previous = branch.level
            if branch.association is not None:
                if not tied:
                    rank[0] = rank[1]
                found[branch.association] = rank[0] / count
                rank[1] -= 1
                i += 1
                continue
            merged = [b for b in ordered[i:] if b.association is None and b.level == branch.level]
            below: list[_Branch] = []
            for account in merged:
                _levels(account)
                below += account.children
            self._rank(below, rank, tied, found, count)
            i += len(merged)

    def _classic(self, branch: _Branch, shares: float, used: float, found: dict[Association, float]) -> None:
        level, total = sum(c.shares for c in branch.children), self._root.usage
        for child in branch.children:
            part = child.shares / level if level else 0.0
            share, own = shares * part, child.usage / total if total else 0.0
            effective = own if branch is self._root else own + (used - own) * part
            if child.association is None:
                self._classic(child, share, effective, found)
            else:
                found[child.association] = 2.0 ** (-effective / share / self._options.damping) if share else 0.0


def _levels(account: _Branch) -> None:
    """LF = S / U of the account's children: their share among siblings over their part of the account's usage."""
    shares = sum(c.shares for c in account.children)
    for child in account.children:
        used = child.usage / account.usage if account.usage else 0.0
        share = child.shares / shares if shares else 0.0
        child.level = 0.0 if share == 0 else math.inf if used == 0 else share / used
