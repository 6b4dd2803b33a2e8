"""Whether the model knows a right chess move from a wrong one, whatever a harness makes of it.

    python benchmarks/chess_skill.py [--tasks 256] [--model NAME_OR_FOLDER]

Of each puzzle's first position, under the initial harness's prompt: log π of every legal move, closing tag included.
Prints how often the likeliest legal move is right beside a uniform draw, and where the right move stands among the
legal ones: 0 at the top, 1 at the bottom, 0.5 by chance. Nothing is sampled.
"""

import argparse
import json
import statistics
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from whale.domains.chess.board import legal_moves
from whale.domains.chess.puzzle import right_moves
from whale.domains.registry import load_domain
from whale.rollout.chat import ChatCodec
from whale.rollout.models import EMBEDDED, resolve_model
from whale.rollout.vllm_engine import tokenizer_of


def prompt(files: dict[str, bytes], task: Any, moves: list[str], chat: ChatCodec) -> list[int]:
    """The initial harness's first prompt, the tag opened."""
    messages: list[Any] = [{"role": "system", "content": files["prompts/system.md"].decode().strip()}]
    for example in json.loads(files["examples.json"]):
        messages += example
    asked = files["prompts/user.md"].decode().strip()
    for name, value in {"turn": task.public["turn"], "fen": task.public["fen"], "moves": ", ".join(moves)}.items():
        asked = asked.replace(f"{{{name}}}", value)
    return list(chat.encode([*messages, {"role": "user", "content": asked}], prefix="<move>").ids)


@torch.no_grad()
def scores(model: Any, context: list[int], answers: list[list[int]]) -> list[float]:
    """Return log π of each answer after the context, which is computed once."""
    first = model(input_ids=torch.tensor([context]), use_cache=True, logits_to_keep=1)
    head = first.logits[0, -1].float().log_softmax(-1)
    width = max(map(len, answers))
    rows = torch.tensor([answer + [0] * (width - len(answer)) for answer in answers])
    first.past_key_values.batch_repeat_interleave(len(answers))
    logprobs = model(input_ids=rows, past_key_values=first.past_key_values).logits.float().log_softmax(-1)
    return [
        head[answer[0]].item() + sum(logprobs[row, i, token].item() for i, token in enumerate(answer[1:]))
        for row, answer in enumerate(answers)
    ]


def interval(values: list[float]) -> str:
    """Mean and 95 % interval over puzzles."""
    half = 1.96 * statistics.stdev(values) / len(values) ** 0.5
    mean = statistics.fmean(values)
    return f"{mean:.3f} [{mean - half:.3f}, {mean + half:.3f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=256)
    parser.add_argument("--model", default=EMBEDDED)
    options = parser.parse_args()
    folder = resolve_model(options.model)
    tokenizer, stop_ids = tokenizer_of(folder)
    chat = ChatCodec(tokenizer, stop_ids)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.train(False)
    domain = load_domain("chess", {"validation": options.tasks})
    files = {name: bytes(text) for name, text in domain.h0().items()}
    places: list[float] = []
    per_token: list[float] = []
    firsts, drawn = [], []
    tasks = list(domain.splits()["validation"])
    for task in tasks:
        moves = [move.uci for move in legal_moves(task.public["fen"])]
        right = right_moves(task.public["fen"], task.private["line"][0])
        context = prompt(files, task, moves, chat)
        answers = [tokenizer.encode(f"{move}</move>", add_special_tokens=False) for move in moves]
        found = scores(model, context, answers)
        for values, kept in ((found, places), ([s / len(a) for s, a in zip(found, answers, strict=True)], per_token)):
            best = max(value for value, move in zip(values, moves, strict=True) if move in right)
            others = [value for value, move in zip(values, moves, strict=True) if move not in right]
            above = sum(value > best for value in others) + 0.5 * sum(value == best for value in others)
            kept.append(above / len(others))
        top = moves[max(range(len(moves)), key=found.__getitem__)]
        firsts.append(float(top in right))
        drawn.append(len(right) / len(moves))
    print(f"{options.model}, {len(tasks)} validation puzzles, 95 % intervals over puzzles")
    print(f"the likeliest legal move is right: {interval(firsts)}; a uniform draw: {statistics.fmean(drawn):.3f}")
    print(f"place of the right move, 0.5 by chance: {interval(places)}; by log π a token: {interval(per_token)}")


if __name__ == "__main__":
    main()
