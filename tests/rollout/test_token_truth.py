"""What is recorded is what the engine saw and sampled, and is trained once: on every engine, by one suite."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rollout.scripted import LIMITS, FactsDomain
from whale.domains.base import Task
from whale.rollout.engines import ChatEngine
from whale.rollout.episode import Episode, Sampling
from whale.rollout.types import EpisodeSpec, GenerateRequest, Generation, Trajectory
from whale.weights.samples import samples_from

TOLERANCE = 1e-4

texts = st.sampled_from(["Which country is it?", "12 + 34?", "<|im_end|> forged", "Zürich — naïve", ""])
asks = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["continue", "rewrite", "fresh", "made up"]),
        "text": texts,
        "prefix": st.sampled_from(["", "<answer>", "Query: "]),
        "stop": st.sampled_from([[], ["e"], [" a", "</answer>"], ["The"]]),
        "max_tokens": st.integers(1, 9),
        "temperature": st.sampled_from([0.0, 0.7, 1.0]),
    }
)


class Watched:
    """A session that writes down what goes in and what comes out."""

    def __init__(self, engine: ChatEngine) -> None:
        self._session: Any = engine.session()
        self.log: list[tuple[GenerateRequest, Generation]] = []

    def generate(self, requests: Sequence[GenerateRequest]) -> list[Generation]:
        done: list[Generation] = self._session.generate(requests)
        self.log += zip(requests, done, strict=True)
        return done

    def close(self) -> None:
        self._session.close()


def play(engine: ChatEngine, rounds: Sequence[dict[str, Any]]) -> tuple[Trajectory, Watched]:
    """An episode whose harness asks as drawn: it goes on, drops a turn, begins anew, or makes a reply up."""
    episode = Episode(
        EpisodeSpec("t", 0, 7), Task("t", {}, {}), FactsDomain(), engine.chat,
        Sampling(max_turns=8, max_generated_tokens=200, max_tokens_per_turn=64), LIMITS,
        context_length=engine.context_length, weights=engine.weights_version,
    )  # fmt: skip
    session = Watched(engine)
    messages: list[dict[str, Any]] = []
    for turn, drawn in enumerate(rounds):
        if drawn["kind"] == "fresh" or turn == 0:
            messages = []
        elif drawn["kind"] == "rewrite":
            messages = messages[2:]
        elif drawn["kind"] == "made up":
            messages = [*messages, {"role": "assistant", "content": "The answer is Paris."}]
        messages = [*messages, {"role": "user", "content": drawn["text"]}]
        fields = {name: drawn[name] for name in ("prefix", "stop", "max_tokens", "temperature")}
        episode.ask({"max_turns": 8, "requests": [{"kind": "chat", "messages": messages, **fields}]})
        episode.resume(session.generate(episode.pending))
        messages = [*messages, {"reply": turn}]
    episode.end({"status": "ok", "answer": len(rounds) - 1})
    session.close()
    return episode.trajectory(), session


@given(rounds=st.lists(asks, min_size=1, max_size=5))
@settings(max_examples=25, deadline=None)
def test_every_token_is_recorded_as_the_engine_saw_it_and_trained_once(
    any_engine: ChatEngine, rounds: list[dict[str, Any]]
) -> None:
    trajectory, session = play(any_engine, rounds)
    seen = [(request.prompt_ids, done.output_ids, done.logprobs, done.finish_reason) for request, done in session.log]
    assert [(t.prompt_ids, t.output_ids, t.logprobs, t.finish_reason) for t in trajectory.turns] == seen

    stops = any_engine.chat.stop_ids
    for turn, drawn in zip(trajectory.turns, rounds, strict=True):
        assert 1 <= len(turn.output_ids) == len(turn.logprobs) <= drawn["max_tokens"]
        assert not stops & set(turn.output_ids[:-1]), "one stop token, and it is the last"
        ended = turn.output_ids[-1] in stops
        said = [any(s in any_engine.chat.decode(turn.output_ids[:n]) for s in drawn["stop"])
                for n in range(1, len(turn.output_ids) + 1)]  # fmt: skip
        assert not any(said[:-1]), "a stop string ends at the token that completes it"
        assert turn.finish_reason == ("stop" if ended or said[-1] else "length")
        assert len(turn.output_ids) == drawn["max_tokens"] or turn.finish_reason == "stop"

    samples = samples_from(trajectory)
    assert sum(sample.trained for sample in samples) == trajectory.generated
    trained = Counter(
        token for sample in samples for token, on in zip(sample.token_ids, sample.loss_mask, strict=True) if on
    )
    assert trained == Counter(token for turn in trajectory.turns for token in turn.output_ids)
    whole = {turn.prompt_ids + turn.output_ids for turn in trajectory.turns}
    assert all(sample.token_ids in whole for sample in samples)


@given(rounds=st.lists(asks.filter(lambda ask: ask["kind"] == "continue"), min_size=2, max_size=4))
@settings(max_examples=10, deadline=None)
def test_turns_that_go_on_join_to_one_sample(any_engine: ChatEngine, rounds: list[dict[str, Any]]) -> None:
    trajectory, _ = play(any_engine, rounds)
    for earlier, later in zip(trajectory.turns, trajectory.turns[1:], strict=False):
        begun = earlier.prompt_ids + earlier.output_ids
        assert later.prompt_ids[: len(begun)] == begun
    (sample,) = samples_from(trajectory)
    assert sample.trained == trajectory.generated


def test_recorded_logprobs_are_the_models_own(any_engine: ChatEngine) -> None:
    """Also with a temperature: they are of the untempered softmax."""
    rounds = [
        {"kind": "continue", "text": "12 + 34?", "prefix": "", "stop": [], "max_tokens": 9, "temperature": heat}
        for heat in (0.0, 0.7, 1.0)
    ]
    trajectory, _ = play(any_engine, rounds)
    for turn in trajectory.turns:
        full = any_engine.logprobs([turn.prompt_ids + turn.output_ids])[0]
        assert np.allclose(full[len(turn.prompt_ids) - 1 :], turn.logprobs, atol=TOLERANCE)
