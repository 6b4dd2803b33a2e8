"""How the acceptance rules fare in searches whose truth is known.

    python benchmarks/acceptance.py [--searches 2000] [--seed 1]

Each search has h0 and I x M candidates on the same tasks. A task's success rate under h0 is drawn from a beta
distribution; a candidate moves all rates by its true effect, and on a share of tasks its rate is drawn anew, so
that harnesses of one mean succeed on different tasks. Rollouts are draws from these rates. The rule objects are
those that a run uses. Printed per rule, with 95 % intervals: rollouts spent (and their ratio to archive-best's),
regret (true rate of the best harness minus that of the accepted one, also less
archive-best's in the same search), false acceptances (the accepted harness is
another one than h0 and truly no better), and the bias of the reported gain, raw and corrected.
"""

import argparse
import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from whale.search.acceptance import AcceptanceRule, acceptance_rule
from whale.search.board import Board, Contender, Decision
from whale.search.scoring import wilson

TASKS = 256
RULES = ("archive-best", "paired", "confirm", "racing")


@dataclass(frozen=True)
class World:
    """What is true in a search."""

    name: str
    rate: float
    """Mean success of h0."""
    concentration: float
    """Of the beta distribution of task rates: small = tasks are either easy or hopeless."""
    mean: float
    """Mean of the candidates' true effects."""
    sd: float
    broken: float
    """Share of candidates that fail nearly always."""
    redrawn: float
    """Share of tasks on which a candidate's rate is another draw."""


WORLDS = (
    World("low noise: rate 0.05, effects 2 points", 0.05, 0.5, -0.01, 0.02, 0.2, 0.05),
    World("effects as large as the noise: rate 0.30, 3 points", 0.30, 2.0, -0.02, 0.03, 0.2, 0.05),
    World("effects below the noise: rate 0.50, 1 point", 0.50, 8.0, -0.01, 0.01, 0.2, 0.05),
    World("large effects: rate 0.30, 8 points", 0.30, 2.0, -0.04, 0.08, 0.2, 0.10),
    World("null: nothing is better, every task alike", 0.30, 2.0, 0.0, 0.0, 0.0, 0.0),
    World("null in the mean, other tasks for each", 0.30, 2.0, 0.0, 0.0, 0.0, 0.3),
)


@dataclass
class Search:
    """One search's harnesses; each draw of rollouts is counted."""

    rates: NDArray[np.float64]
    """Shape (1 + candidates, tasks); row 0 is h0."""
    truth: NDArray[np.float64]
    seed: int
    spent: int = 0
    draws: dict[tuple[int, int], NDArray[np.float64]] = field(default_factory=dict)

    def draw(self, harness: int, replicate: int) -> NDArray[np.float64]:
        """The scoring; the same for every rule, as a run's seeds are."""
        key = (harness, replicate)
        if key not in self.draws:
            rng = np.random.default_rng((self.seed, harness, replicate))
            self.draws[key] = (rng.random(self.rates.shape[1]) < self.rates[harness]).astype(np.float64)
        return self.draws[key]


def make(world: World, candidates: int, rng: np.random.Generator, rate: float | None = None) -> Search:
    rate = world.rate if rate is None else rate
    base = rng.beta(rate * world.concentration, (1 - rate) * world.concentration, TASKS)
    truth = np.clip(rate + rng.normal(world.mean, world.sd, candidates), 0.002, 0.99)
    truth = np.where(rng.random(candidates) < world.broken, 0.01 * rate, truth)
    rows = [base]
    for mean in truth:
        own = np.where(
            rng.random(TASKS) < world.redrawn,
            rng.beta(rate * world.concentration, (1 - rate) * world.concentration, TASKS),
            base,
        )
        moved = own + (mean - rate) / (1 - rate) * (1 - own) if mean >= rate else own * mean / rate
        rows.append(moved)
    return Search(np.stack(rows), np.concatenate([[rate], truth]), int(rng.integers(2**60)))


def play(rule: AcceptanceRule, search: Search) -> Decision:
    """A harness phase, with the noise floor's scoring of h0, which is not counted: all rules share it."""
    search.spent = 0
    first = search.draw(0, 0)
    noise = float(np.sqrt(((first - search.draw(0, 1)) ** 2).sum() / 2)) / TASKS
    contenders = [Contender("0", "t0", (first,))]
    search.spent += TASKS
    saved = 0
    for harness in range(1, len(search.rates)):
        full = search.draw(harness, 0)
        leader = max(contenders, key=lambda c: c.score).scorings[0]
        seen = 0
        stopped = False
        for tasks in range(32, TASKS, 32):
            if rule.look(tasks) > seen:
                seen = rule.look(tasks)
                if rule.stop(full[:seen], leader):
                    search.spent += tasks
                    saved += TASKS - tasks
                    stopped = True
                    break
        if not stopped:
            search.spent += TASKS
            contenders.append(Contender(str(harness), f"t{harness}", (full,)))
    planned, rescored = TASKS * len(search.rates), 0
    while True:
        board = Board(tuple(contenders), "0", 1, planned, saved, rescored, noise)
        wish = rule.more(board)
        if wish is None:
            return rule.judge(board)
        index = next(i for i, c in enumerate(contenders) if c.candidate == wish.candidate)
        old = contenders[index]
        draw = search.draw(int(old.candidate), wish.replicate)  # h0's first is the noise floor's, paid here
        contenders[index] = Contender(old.candidate, old.tree, (*old.scorings, draw))
        search.spent += TASKS
        rescored += TASKS


def mean_interval(values: list[float]) -> str:
    array = np.asarray(values)
    half = 1.96 * array.std(ddof=1) / math.sqrt(len(array)) if len(array) > 1 else math.nan
    return f"{array.mean():7.4f} ± {half:.4f}"


@dataclass
class Tally:
    """What one rule did over many searches."""

    spent: list[float] = field(default_factory=list)
    regret: list[float] = field(default_factory=list)
    raw: list[float] = field(default_factory=list)
    corrected: list[float] = field(default_factory=list)
    false: int = 0

    def add(self, search: Search, decision: Decision) -> None:
        """Compare the decision with the truth."""
        accepted = int(decision.candidate)
        self.spent.append(float(search.spent))
        self.regret.append(float(search.truth.max() - search.truth[accepted]))
        self.false += accepted != 0 and bool(search.truth[accepted] <= search.truth[0])
        if decision.accepted and decision.gain is not None and decision.corrected is not None:
            true_gain = float(search.truth[accepted] - search.truth[0])
            self.raw.append(decision.gain - true_gain)
            self.corrected.append(decision.corrected - true_gain)


def compare(world: World, iterations: int, searches: int, seed: int) -> None:
    print(f"\n{world.name}; I = {iterations}, M = 3, {TASKS} tasks, {searches} searches")
    print(
        f"{'rule':13} {'rollouts':>8} {'ratio':>6} {'regret':>16} {'- archive-best':>17} {'false acceptances':>21} "
        f"{'bias of the gain':>17} {'corrected':>17}"
    )
    tallies = {name: Tally() for name in RULES}
    for number in range(searches):
        search = make(world, 3 * iterations, np.random.default_rng((seed, number)))
        for name, tally in tallies.items():
            tally.add(search, play(acceptance_rule(name), search))
    baseline = float(np.mean(tallies[RULES[0]].spent))
    for name, tally in tallies.items():
        low, high = wilson(tally.false, searches)
        bias = [mean_interval(values) if len(values) > 20 else "-" for values in (tally.raw, tally.corrected)]
        spent = float(np.mean(tally.spent))
        more = [a - b for a, b in zip(tally.regret, tallies[RULES[0]].regret, strict=True)]
        print(
            f"{name:13} {spent:8.0f} {spent / baseline:6.2f} {mean_interval(tally.regret):>16} "
            f"{mean_interval(more):>17} "
            f"{tally.false / searches:5.3f} [{low:.3f}, {high:.3f}] {bias[0]:>17} {bias[1]:>17}",
            flush=True,
        )


def alternate(searches: int, seed: int) -> None:
    """Many short phases against few long ones, with the same number of iterations in all: (0.2, 2) and (0.6, 6)."""
    world = World("most changes harm a little", 0.15, 2.0, -0.02, 0.012, 0.1, 0.05)
    print(f"\nalternation: 36 iterations in all, M = 3, effects {world.mean:+.3f} ± {world.sd}; {searches} runs")
    print(
        f"{'rule':13} {'I':>2} {'phases that accepted a worse one':>37} {'runs below h0':>22} {'final - h0':>17} "
        f"{'rollouts':>9}"
    )
    for iterations in (2, 6):
        for name in RULES:
            rule = acceptance_rule(name)
            worse, phases, below, spent = 0, 0, 0, 0
            finals = []
            for number in range(searches):
                rng = np.random.default_rng((seed, iterations, number))
                rate = world.rate
                for _ in range(36 // iterations):
                    search = make(world, 3 * iterations, rng, rate)
                    accepted = int(play(rule, search).candidate)
                    worse += bool(search.truth[accepted] < search.truth[0])
                    phases += 1
                    spent += search.spent
                    rate = float(search.truth[accepted])
                finals.append(rate - world.rate)
                below += rate < world.rate
            low, high = wilson(worse, phases)
            below_low, below_high = wilson(below, searches)
            print(
                f"{name:13} {iterations:2} {worse / phases:21.3f} [{low:.3f}, {high:.3f}] "
                f"{below / searches:7.3f} [{below_low:.3f}, {below_high:.3f}] {mean_interval(finals):>17} "
                f"{spent / searches:9.0f}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--searches", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=("worlds", "alternation"))
    options = parser.parse_args()
    if options.only != "alternation":
        for world in WORLDS:
            compare(world, 6, options.searches, options.seed)
    if options.only != "worlds":
        alternate(max(20, options.searches // 10), options.seed)


if __name__ == "__main__":
    main()
