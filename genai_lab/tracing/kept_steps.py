"""What a recorder keeps of an engine: so many steps at most, the oldest dropped first and counted, and every turn.

Receives the facts of one engine. Returns their columns from any step on; what the pool's blocks were when the first
kept step began is remembered. It knows no tokens and no pictures.
"""

from __future__ import annotations

from collections import deque

from genai_lab.tracing.engine_columns import Columns, engine_columns
from genai_lab.tracing.engine_facts import PoolFact, StepFact, TurnFact


class KeptSteps:
    """A ring of steps, and the turns.

    Args:
        most: steps kept.
    """

    def __init__(self, most: int) -> None:
        self.count = 0  # all steps so far, dropped ones included
        self.turn_count = 0  # facts of turns so far
        self._steps: deque[StepFact] = deque(maxlen=most)
        self._turns: dict[tuple[int, int], TurnFact] = {}
        self._open_turns: dict[tuple[int, int], int] = {}
        self._past_pool: dict[int, PoolFact] = {}  # the last event of each block in steps that were dropped
        self._engine: int | None = None  # id of the engine that is recorded

    @property
    def dropped(self) -> int:
        """The oldest steps, which did not fit."""
        return max(0, self.count - len(self._steps))

    @property
    def open_turns(self) -> frozenset[int]:
        """Runs of turns that are under way."""
        return frozenset(list(self._open_turns.values()))

    def claim(self, engine: object) -> bool:
        """Whether this engine, and no other, is kept here: requests and steps are counted per engine."""
        self._engine = self._engine or id(engine)
        return self._engine == id(engine)

    def add_step(self, fact: StepFact) -> None:
        """One committed step."""
        if len(self._steps) == self._steps.maxlen:
            self._past_pool.update({event.block: event for event in self._steps[0].pool})
        self._steps.append(fact)
        self.count += 1

    def add_turn(self, fact: TurnFact) -> None:
        """A turn as far as it has come; a later fact of the same turn replaces it."""
        key = fact.request, fact.turn
        self._turns[key] = fact
        self.turn_count += 1
        if fact.finish:
            self._open_turns.pop(key, None)
        else:
            self._open_turns[key] = fact.run

    def columns(self, first: int, origin_ns: int) -> tuple[dict[str, Columns], list[str]]:
        """The tables from the absolute step `first` on, every turn, and the words that they count in."""
        turns, steps = list(self._turns.values()), list(self._steps)
        begin = max(0, first - self.dropped)
        before = steps[begin - 1] if begin else None
        if not begin and steps and self._past_pool:
            steps[0] = steps[0]._replace(pool=(*self._past_pool.values(), *steps[0].pool))
        return engine_columns(steps[begin:], turns, origin_ns, before)
