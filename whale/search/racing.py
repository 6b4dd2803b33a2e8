"""The `racing` rule: a candidate that will not lead is stopped; part of what that saves goes to the close ones."""

from dataclasses import dataclass

from whale.search.acceptance import ALPHA, verdict
from whale.search.board import Board, Contender, Decision, Rescore
from whale.search.estimates import Scoring, chance_to_lead


@dataclass(frozen=True, slots=True)
class Racing:
    """Score in blocks of tasks and stop a candidate that will not lead; then score the close ones again.

    The leader is the phase's best full scoring. A candidate is stopped at the end of a block when its chance to end
    above the leader (`chance_to_lead`) is below `chance`, or when not even passing all that is left would do. It then
    has no score, and is never ranked. After the last iteration the finalists, whose pooled score is within the noise
    of the best one's, are scored again on fresh seeds, round by round, as long as the phase stays below `cost`.
    """

    block: int = 32
    """Tasks between two looks."""
    chance: float = 0.1
    """A candidate whose chance to lead is smaller is stopped."""
    finalists: int = 3
    rounds: int = 2
    """Further scorings of a finalist, at most."""
    cost: float = 0.6
    """The share of what scoring all in full once costs, up to which finalists are scored again."""
    name: str = "racing"

    def __post_init__(self) -> None:
        if self.block < 1 or self.finalists < 1 or self.rounds < 0:
            raise ValueError("block and finalists must be at least 1, rounds at least 0")
        if not 0 < self.chance < 0.5 or self.cost < 0:
            raise ValueError("chance must lie between 0 and 0.5, cost at 0 or above")

    def look(self, tasks: int) -> int:
        """Whole blocks only, so that the size of a micro-batch decides nothing."""
        return tasks // self.block * self.block

    def stop(self, partial: Scoring, leader: Scoring) -> str | None:
        """Look at the end of a block."""
        n = partial.size
        if not 0 < n < leader.size:
            return None
        left = leader.size - n
        if partial.sum() + left < leader.sum():
            return f"after {n} tasks not even passing the other {left} reaches the leader's {leader.mean():.4f}"
        chance = chance_to_lead(partial, leader)
        if chance < self.chance:
            told = f"{partial.mean():.4f} after {n} tasks, the leader {leader[:n].mean():.4f}"
            return f"{told}: a chance of {chance:.3f} to end above its {leader.mean():.4f}"
        return None

    def more(self, board: Board) -> Rescore | None:
        """The next scoring of a finalist that `cost` leaves room for."""
        if not board.contenders:
            return None
        cost = board.contenders[0].scorings[0].size * board.samples
        for replicate in range(1, self.rounds + 1):
            close = self._close(board, replicate)
            if len(close) < 2:
                return None
            missing = [c for c in close if len(c.scorings) <= replicate]
            if missing:
                # A round is paid for whole or not begun: half of one would rank one finalist alone.
                spent = board.planned - board.saved + board.rescored
                affordable = spent + cost * len(missing) <= self.cost * board.planned
                return Rescore(missing[0].candidate, replicate) if affordable else None
        return None

    def _close(self, board: Board, scorings: int) -> list[Contender]:
        """The finalists after so many scorings, best first; the incoming harness is one if it is close."""
        there = [c for c in board.ranked() if len(c.scorings) >= scorings]
        there.sort(key=lambda c: -float(c.pooled(scorings).mean()))
        margin = 2 * board.score_noise() * (2 / scorings) ** 0.5
        best = float(there[0].pooled(scorings).mean())
        close = [c for c in there if float(c.pooled(scorings).mean()) >= best - margin]
        return [c for rank, c in enumerate(close) if rank < self.finalists or c.candidate == board.incoming]

    def judge(self, board: Board) -> Decision:
        """The best pooled score among those that were scored most often; ties as in `archive-best`."""
        if not board.contenders:
            return Decision(board.incoming, False, "no harness is fully scored under the current weights")
        # The noise floor scores the incoming harness twice: that alone makes no round.
        others = [len(c.scorings) for c in board.contenders if c.candidate != board.incoming]
        rounds = max(others, default=1)
        finals = [c for c in board.ranked() if len(c.scorings) >= rounds]
        best = max(finals, key=lambda c: float(c.pooled(rounds).mean()))
        own = board.own
        if own is None:
            return Decision(best.candidate, True, "the incoming harness is not ranked", best.candidate)
        if best.tree == own.tree:
            rest = [c for c in board.challengers() if len(c.scorings) >= rounds] or board.challengers()
            reason = f"nothing beats the incoming harness over {rounds} scorings"
            if not rest:
                return Decision(board.incoming, False, reason)
            return verdict(board, rest[0], False, reason, ALPHA / 2, min(len(rest[0].scorings), len(own.scorings)))
        common = min(len(best.scorings), len(own.scorings))
        score = float(best.pooled(rounds).mean())
        reason = f"{score:.4f} over {rounds} scorings; the incoming {float(own.pooled(common).mean()):.4f}"
        return verdict(board, best, True, reason, ALPHA / 2, common)
