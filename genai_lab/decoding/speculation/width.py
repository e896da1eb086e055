"""How many tokens to propose, learnt from what was taken and how long it took; and when to pause.

The controller's constants are onnxruntime-genai's documented heuristics (option min_adaptive_k, option cooldown).
"""

from __future__ import annotations

from dataclasses import dataclass, field

LARGEST = 16
_SHARE = 0.25  # of a new observation in the moving estimate
_FEW, _MANY = 0.5, 0.75  # acceptance below which narrower, from which wider is tried
_KEEP, _REJECT = 0.97, 0.80  # throughput of a probe against the width before it
_PROBE_ROUNDS = 2
_WAIT_AFTER_SUCCESS, _WAIT_AFTER_FAILURE = 1, 6
_ZERO_ROUNDS = 3  # rounds without any acceptance that start a pause


@dataclass(slots=True)
class _Estimate:
    """Moving averages at one width."""

    throughput: float = 0.0  # tokens per millisecond
    acceptance: float = 0.0
    count: int = 0

    def add(self, throughput: float, acceptance: float) -> None:
        share = 1.0 if self.count == 0 else _SHARE
        self.throughput += share * (throughput - self.throughput)
        self.acceptance += share * (acceptance - self.acceptance)
        self.count += 1


@dataclass(slots=True)
class AdaptiveWidth:
    """The number of tokens to propose.

    Args:
        floor: the starting width and the smallest one; 0: the width is fixed.
        fixed: that width.
    """

    floor: int
    fixed: int
    width: int = field(init=False)
    increases: int = field(init=False, default=0)
    decreases: int = field(init=False, default=0)
    observations: int = field(init=False, default=0)
    probes: int = field(init=False, default=0)
    _estimates: dict[int, _Estimate] = field(init=False, default_factory=dict)
    _base: int | None = field(init=False, default=None)  # the width before a probe; None: no probe is running
    _seen: int = field(init=False, default=0)  # rounds of the probe
    _wait: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.width = self.floor or self.fixed

    @property
    def at_smallest(self) -> bool:
        """Whether it cannot get narrower."""
        return not self.floor or self.width == self.floor

    @property
    def throughput(self) -> float:
        """Tokens per millisecond at the present width, as estimated; 0 while unknown."""
        estimate = self._estimates.get(self.width)
        return 0.0 if estimate is None else estimate.throughput

    def reset(self) -> None:
        """Forget what was learnt; counters stay."""
        self.width = self.floor or self.fixed
        self._estimates.clear()
        self._base, self._seen, self._wait = None, 0, 0

    def observe(self, emitted: int, accepted: int, evaluated: int, milliseconds: float) -> None:
        """A round that proposed the full width was delivered whole."""
        if not self.floor or milliseconds <= 0 or evaluated == 0:
            return
        self.observations += 1
        self._estimates.setdefault(self.width, _Estimate()).add(emitted / milliseconds, accepted / evaluated)
        if self._base is not None:
            self._judge_probe()
        elif self._wait > 0:
            self._wait -= 1
        else:
            self._maybe_probe()

    def _maybe_probe(self) -> None:
        acceptance = self._estimates[self.width].acceptance
        if acceptance < _FEW and self.width > self.floor:
            self._probe(self.width - 1)
        elif acceptance >= _MANY and self.width < LARGEST:
            self._probe(self.width + 1)

    def _probe(self, width: int) -> None:
        self._base, self._seen = self.width, 0
        self._estimates.pop(width, None)
        self.probes += 1
        self._move(width)

    def _judge_probe(self) -> None:
        if self._base is None:
            raise AssertionError("a probe is running")
        self._seen += 1
        here, before = self._estimates[self.width], self._estimates[self._base]
        if here.throughput < _REJECT * before.throughput:
            self._end_probe(kept=False)
        elif self._seen >= _PROBE_ROUNDS:
            good = here.throughput >= _KEEP * before.throughput
            self._end_probe(kept=good and (self.width < self._base or here.acceptance >= _MANY))

    def _end_probe(self, *, kept: bool) -> None:
        if not kept and self._base is not None:
            self._move(self._base)
        self._base, self._wait = None, _WAIT_AFTER_SUCCESS if kept else _WAIT_AFTER_FAILURE

    def _move(self, width: int) -> None:
        self.increases += width > self.width
        self.decreases += width < self.width
        self.width = width


@dataclass(slots=True)
class Cooldown:
    """One step without proposals after three rounds in a row in which nothing was taken (at the smallest width)."""

    enabled: bool
    entries: int = field(init=False, default=0)
    steps: int = field(init=False, default=0)
    remaining: int = field(init=False, default=0)
    _streak: int = field(init=False, default=0)

    def reset(self) -> None:
        """Forget the streak."""
        self._streak = self.remaining = 0

    def observe(self, accepted: int, *, is_full: bool, at_smallest: bool) -> None:
        """A round was delivered whole; `is_full`: it proposed the full width."""
        if not self.enabled or not at_smallest:
            return
        self._streak = self._streak + 1 if is_full and accepted == 0 else 0
        if self._streak >= _ZERO_ROUNDS:
            self.entries += 1
            self._streak, self.remaining = 0, 1

    def take_step(self) -> None:
        """A step without proposals was taken."""
        self.steps += 1
        self.remaining -= 1
