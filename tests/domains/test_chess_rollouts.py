"""Chess through the ordinary rollout path: a scripted model, the real sandbox, the shipped h0."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from tests.rollout.scripted import ByteChat, ScriptedEngine
from whale.domains.base import Task
from whale.domains.chess.board import legal_moves
from whale.domains.chess.domain import ChessDomain, ChessOptions
from whale.domains.chess.puzzle import right_moves
from whale.domains.chess.report import count
from whale.harness.validation import check_source
from whale.rollout.episodes import Limits, Sampling, run_micro_batch
from whale.rollout.replay import replay_episode
from whale.rollout.sandbox.host import HarnessWorker
from whale.rollout.sandbox.probe import best_tier
from whale.rollout.types import EpisodeSpec, GenerateRequest, Trajectory

LIMITS = Limits(cpu_seconds=2, memory_bytes=256 << 20)
SAMPLING = Sampling(temperature=0.7, max_turns=5, max_generated_tokens=400, max_tokens_per_turn=64)
# The scripted model's tokens are bytes.
HARNESSES = Path(__file__).parents[2] / "examples" / "harnesses"


@pytest.fixture(scope="module")
def domain() -> ChessDomain:
    return ChessDomain(ChessOptions())


def rollouts(
    domain: ChessDomain,
    tasks: Sequence[Task],
    say: Callable[[str, GenerateRequest], str],
    files: Mapping[str, bytes] | None = None,
) -> list[Trajectory]:
    with HarnessWorker(files or domain.h0(), best_tier(), LIMITS) as worker:
        specs = [EpisodeSpec(task.id, 0, seed) for seed, task in enumerate(tasks)]
        by_id = {task.id: task for task in tasks}
        engine = ScriptedEngine(say, context_length=100_000)
        return run_micro_batch(engine, ByteChat(), worker.files, by_id, specs, domain, SAMPLING, LIMITS, worker)


def longest(domain: ChessDomain, n: int = 3) -> list[Task]:
    tasks = [task for tasks in domain.splits().values() for task in tasks]
    return sorted(tasks, key=lambda task: -len(task.private["line"]))[:n]


def answer_of(tasks: Sequence[Task]) -> Callable[[str, GenerateRequest], str]:
    """A model that knows the line of the task whose position stands last in the prompt."""
    lines = {task.public["fen"]: task.private["line"] for task in tasks}

    def say(prompt: str, request: GenerateRequest) -> str:
        asked = prompt[prompt.rindex("Position: ") :]
        line = lines[asked.split("\n")[0].removeprefix("Position: ")]
        return f"<move>{line[2 * asked.count('</move>')]}</move> now"

    return say


def test_h0_is_a_valid_harness_and_plays_a_long_line_to_its_end(domain: ChessDomain) -> None:
    assert check_source(domain.h0()) is None
    tasks = longest(domain)
    assert len(tasks[0].private["line"]) > 1

    done = rollouts(domain, tasks, answer_of(tasks))

    for task, trajectory in zip(tasks, done, strict=True):
        assert (trajectory.status, trajectory.reward) == ("ok", 1.0), trajectory.reason
        assert len(trajectory.turns) == (len(task.private["line"]) + 1) // 2
        assert trajectory.metrics == {"format": 1.0, "legal": 1.0, "progress": 1.0}
        replies = [call.result["reply"] for call in trajectory.calls if call.name == "play"]
        assert replies == [*task.private["line"][1::2], ""]
        # The verdict follows from the record.
        assert trajectory.completion is not None
        assert domain.verify(task, trajectory.completion).reward == 1.0
        replay = replay_episode(domain.h0(), task, trajectory, limits=LIMITS)
        assert replay.same, replay.difference


def test_a_wrong_move_ends_the_game_and_cannot_be_taken_back(domain: ChessDomain) -> None:
    (task,) = longest(domain, 1)
    stubborn = {
        "harness.py": b"""
from whale.harness import Harness, ToolError


class Stubborn(Harness):
    max_turns = 3

    async def run(self, task, model, tools):
        for wanted in ("wrong", "right", "right"):
            reply = await model.chat([{"role": "user", "content": wanted}])
            try:
                print(await tools.play(reply=reply))
            except ToolError as error:
                print(error)
        return reply
"""
    }
    line = task.private["line"]

    def say(prompt: str, request: GenerateRequest) -> str:
        wrong = next(m for m in re.findall(r"\b[a-h][1-8][a-h][1-8]\b", "a1a2 " + " ".join(line)) if m != line[0])
        return f"<move>{wrong if prompt.rstrip().endswith('wrong assistant>') or 'wrong' in prompt else line[0]}</move>"

    (trajectory,) = rollouts(domain, [task], say, stubborn)

    assert (trajectory.status, trajectory.reward) == ("ok", 0.0)
    assert [call.error for call in trajectory.calls] == ["", "the game is over", "the game is over"]


def test_a_harness_cannot_play_a_move_of_its_own(domain: ChessDomain) -> None:
    """Strings, forged replies, a prefix that holds the move: none of them is the model's."""
    (task,) = [t for t in domain.splits()["weight"] if len(t.private["line"]) == 1][:1]
    cheat = {
        "harness.py": f"""
from whale.harness import Harness, Reply, ToolError

RIGHT = "<move>{task.private["line"][0]}</move>"


class Cheat(Harness):
    max_turns = 4

    async def run(self, task, model, tools):
        reply = await model.chat([{{"role": "user", "content": "go"}}], prefix=RIGHT)
        forged = Reply(reply.id, RIGHT, "", "stop", 3)
        reply.text = RIGHT
        for given in (RIGHT, {{"prefix": "", "sampled": RIGHT}}):
            try:
                await tools.play(reply=given)
            except ToolError as error:
                print(error)
        print(await tools.play(reply=forged))
        return reply
""".encode()
    }

    (trajectory,) = rollouts(domain, [task], lambda prompt, request: "I pass", cheat)

    assert (trajectory.status, trajectory.reward) == ("ok", 0.0)
    assert trajectory.metrics["format"] == 0.0


def test_no_tool_tells_a_harness_which_move_is_right(domain: ChessDomain) -> None:
    """What tools say of a position is the same whatever the line is."""
    task = next(task for task in domain.splits()["weight"] if task.group == "mate-1")
    tools = domain.tools(task)
    facts = {"from", "to", "promotes", "piece", "takes", "check", "attacked"}
    assert all(set(move) == facts for move in tools["moves"]())
    assert set(tools["position"]()) == {"fen", "turn", "board", "pieces", "legal"}
    assert sorted(task.public) == ["fen", "turn"]


def test_the_report_sets_a_coin_beside_the_model(domain: ChessDomain) -> None:
    tasks = [task for task in domain.splits()["weight"] if len(task.private["line"]) == 1][:6]
    puzzles = {task.id: domain.puzzle(task) for task in tasks}

    shown = count(tasks, puzzles, rollouts(domain, tasks, answer_of(tasks)))["all"]
    assert (shown.n, shown.passed, shown.legal) == (6, 6, 6)
    # h0 lists every legal move, so its coin is the coin among legal moves.
    assert shown.chance_shown == pytest.approx(shown.chance_legal)
    assert 0 < shown.chance_legal < 1
    assert shown.fabricated == 0

    forcing = dict(domain.h0()) | {
        "harness.py": domain.h0()["harness.py"].replace(
            b'return ", ".join(" ".join(self.words(move)) for move in moves)',
            b'return ", ".join(self.words(move)[0] for move in moves if move["takes"] or move["check"])',
        )
    }
    narrowed = count(tasks, puzzles, rollouts(domain, tasks, answer_of(tasks), forcing))["all"]
    assert narrowed.passed == 6
    expected = 0.0
    for puzzle in puzzles.values():
        moves = legal_moves(puzzle.fen)
        shown_moves = [move.uci for move in moves if move.takes or move.check] or [move.uci for move in moves]
        expected += len(right_moves(puzzle.fen, puzzle.line[0]).intersection(shown_moves)) / len(shown_moves)
    assert narrowed.chance_shown == pytest.approx(expected)
    assert narrowed.chance_shown > narrowed.chance_legal, "a shorter list is the harness's doing, and counted as such"


def test_a_move_that_a_harness_computed_counts_as_fabricated_and_as_no_skill(domain: ChessDomain) -> None:
    (task,) = [t for t in domain.splits()["weight"] if len(t.private["line"]) == 1][:1]
    told = dict(domain.h0()) | {"prompts/user.md": f"Position: {{fen}}\nPlay {task.private['line'][0]} now.".encode()}

    (trajectory,) = rollouts(domain, [task], answer_of([task]), told)

    assert (trajectory.reward, trajectory.fabricated) == (1.0, True)
    assert domain.chance(task, trajectory) == 1.0


def test_an_empty_turn_is_counted_with_what_was_shown(domain: ChessDomain) -> None:
    tasks = list(domain.splits()["weight"][:4])
    puzzles = {task.id: domain.puzzle(task) for task in tasks}
    done = rollouts(domain, tasks, lambda prompt, request: "no idea")

    counts = count(tasks, puzzles, done)["all"]

    assert (counts.n, counts.passed, counts.formatted, counts.legal) == (4, 0, 0, 0)
    assert counts.chance_shown == pytest.approx(counts.chance_legal)
