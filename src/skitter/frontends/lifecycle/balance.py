"""Balance: which of several modules of a kind gets the next piece of work."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from skitter.frontends.lifecycle.module import Counts, Module

Balance = Callable[[Sequence[Module]], Module]
"""Chooses one of at least two modules of one kind; called for each piece of work, so it has to be quick."""

_WORST = 8
"""Failures in a row that count at most, so that a module whose hosts came back is asked again under load."""


def least_in_hand(modules: Sequence[Module]) -> Module:
    """Choose who has least in hand, then whose turn is longest ago.

    Failures in a row weigh like work in hand: a module that fails at once would look idle otherwise, and get all.
    A newcomer takes its share, not all work until its sums have caught up.
    """
    return min(modules, key=_load)


def _load(module: Module) -> tuple[int, int]:
    return module.counts.handling + min(module.setbacks, _WORST), module.turn


def seed_score(counts: Counts) -> int:
    """Return the score of gopcp.v2: called + 2 accepted + 4 completed + 16 handling."""
    return counts.called + 2 * counts.accepted + 4 * counts.completed + 16 * counts.handling


def lowest_score(score: Callable[[Counts], float] = seed_score) -> Balance:
    """Return a balance by a score of your own: the lowest wins, and of equals whose turn is longest ago."""

    def choose(modules: Sequence[Module]) -> Module:
        return min(modules, key=lambda module: (score(module.counts), module.turn))

    return choose
