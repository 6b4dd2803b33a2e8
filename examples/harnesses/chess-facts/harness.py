"""A hand-written harness: every legal move with what is seen of it, three worked examples, the tag opened."""

import json
from collections.abc import Mapping
from typing import Any

from whale.harness import Harness, Model, Reply, Tools


class FactsHarness(Harness):
    max_turns = 5
    move_tokens = 12

    async def run(self, task: Mapping[str, Any], model: Model, tools: Tools) -> Reply:
        while True:
            # Each turn is a question of its own: the position says all that matters.
            messages: list[Any] = [{"role": "system", "content": self.files["prompts/system.md"].strip()}]
            for example in json.loads(self.files["examples.json"]):
                messages += example
            asked = self.files["prompts/user.md"].strip().replace("{moves}", self.show(await tools.moves()))
            messages.append({"role": "user", "content": asked})
            reply = await model.chat(messages, prefix="<move>", stop=["</move>"], max_tokens=self.move_tokens)
            played = await tools.play(reply=reply)
            if played["over"]:
                return reply

    def show(self, moves: list[dict[str, Any]]) -> str:
        """One line a move: what moves, what it takes, whether it checks, whether it can be taken."""
        return "\n".join(" ".join(self.words(move)) for move in moves)

    def words(self, move: dict[str, Any]) -> list[str]:
        words = [move["from"] + move["to"] + move["promotes"], move["piece"]]
        words += ["takes", move["takes"]] if move["takes"] else []
        words += ["check"] if move["check"] else []
        return [*words, "attacked"] if move["attacked"] else words
