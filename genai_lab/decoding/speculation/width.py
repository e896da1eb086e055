"""How many tokens to propose, learnt from what was taken and how long it took; and when to pause.

The controller's constants are onnxruntime-genai's documented heuristics (option min_adaptive_k, option cooldown).
"""

from __future__ import annotations

from dataclasses import dataclass, field

LARGEST = 16
_SHARE = 0.25  # of a new observation in the moving estimate
_FEW, _MANY = 0.5, 0.75  # acceptance below which narrower, from which wider is tried
_KEEP, _REJECT = 0.97, 0.80  # throughput of a probe against the width before it
_SEEN_BEFORE, _PROBE_ROUNDS = 2, 2  # rounds that a decision needs: whether to probe, whether to keep the probe
_WAIT_AFTER_SUCCESS, _WAIT_AFTER_FAILURE = 1, 6
_ZERO_ROUNDS = 3  # rounds without any acceptance, one behind the other, that start a pause


@dataclass(slots=True)
class _Estimate:
    """Moving averages at one width."""

    tokens: float = 0.0
    milliseconds: float = 0.0
    acceptance: float = 0.0
    count: int = 0

    def add(self, tokens: float, milliseconds: float, acceptance: float) -> None:
        share = 1.0 if self.count == 0 else _SHARE
        self.tokens += share * (tokens - self.tokens)
        self.milliseconds += share * (milliseconds - self.milliseconds)
        self.acceptance += share * (acceptance - self.acceptance)
        self.count += 1

    @property
    def throughput(self) -> float:
        """Tokens per millisecond."""
        return self.tokens / self.milliseconds if self.milliseconds else 0.0


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
    _seen: int = field(init=False, default=0)  # rounds since a probe began or ended
    _wait: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.width = self.smallest

    @property
    def smallest(self) -> int:
        """It cannot get narrower than this."""
        return self.floor or self.fixed

    @property
    def throughput(self) -> float:
        """Tokens per millisecond at the present width, as estimated; before a probe has an estimate of its own, at the
        width before it; 0 while unknown."""
        estimate = self._estimates.get(self.width)
        if estimate is None and self._base is not None:
            estimate = self._estimates.get(self._base)
        return 0.0 if estimate is None else estimate.throughput

    def reset(self) -> None:
        """Forget what was learnt; counters stay."""
        self.width = self.smallest
        self._estimates.clear()
        self._base, self._seen, self._wait = None, 0, 0

    def observe(self, emitted: int, accepted: int, evaluated: int, milliseconds: float) -> None:
        """A round that proposed the full width was delivered whole.

        Args:
            milliseconds: that its proposing and its runs took; not what passed until the caller asked for its tokens.
        """
        if not self.floor or milliseconds <= 0 or evaluated == 0 or emitted == 0:
            return
        self.observations += 1
        self._seen += 1
        self._estimates.setdefault(self.width, _Estimate()).add(emitted, milliseconds, accepted / evaluated)
        if self._base is not None:
            self._judge_probe(self._base)
        elif self._wait > 0:
            self._wait -= 1
        else:
            self._maybe_probe()

    def _maybe_probe(self) -> None:
        here = self._estimates[self.width]
        if here.count < _SEEN_BEFORE:
            return
        if here.acceptance < _FEW and self.width > self.floor:
            self._probe(self.width - 1)
        elif here.acceptance >= _MANY and self.width < LARGEST and self._seen >= _SEEN_BEFORE:
            self._probe(self.width + 1)

    def _probe(self, width: int) -> None:
        self._base, self._seen = self.width, 0
        self.probes += 1
        self._move(width)

    def _judge_probe(self, base: int) -> None:
        here, before = self._estimates[self.width], self._estimates[base]
        if here.throughput < _REJECT * before.throughput:
            self._end_probe(base, kept=False)
        elif self._seen >= _PROBE_ROUNDS:
            good = here.throughput >= _KEEP * before.throughput
            self._end_probe(base, kept=good and (self.width < base or here.acceptance >= _MANY))

    def _end_probe(self, base: int, *, kept: bool) -> None:
        if not kept:
            self._move(base)
        self._base, self._seen, self._wait = None, 0, _WAIT_AFTER_SUCCESS if kept else _WAIT_AFTER_FAILURE

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

    def observe(self, proposed: int, accepted: int, *, smallest: int) -> None:
        """A round was delivered whole. Only one of exactly `smallest` proposed tokens speaks for a pause; any other
        ends the streak."""
        if not self.enabled:
            return
        self._streak = self._streak + 1 if accepted == 0 and proposed == smallest else 0
        if self._streak >= _ZERO_ROUNDS:
            self.entries += 1
            self._streak, self.remaining = 0, 1

    def take_step(self) -> None:
        """A step without proposals was taken."""
        self.steps += 1
        self.remaining -= 1
