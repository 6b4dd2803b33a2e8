"""A hand-written harness that thinks for the model: a rule over the facts of each move leaves it few to choose from.

It is what a proposer that can program could write. The rule is "a check on a safe square, else the best trade": the
model sees the moves that the rule leaves, at most `shown` of them, and writes one.
"""

import json
from collections.abc import Mapping
from typing import Any

from whale.harness import Harness, Model, Reply, Tools

VALUES = {"": 0, "pawn": 1, "knight": 3, "bishop": 3, "rook": 5, "queen": 9, "king": 0}


class ShortlistHarness(Harness):
    max_turns = 5
    move_tokens = 12
    shown = 3

    async def run(self, task: Mapping[str, Any], model: Model, tools: Tools) -> Reply:
        while True:
            # Each turn is a question of its own: the list says all that the model can use.
            messages: list[Any] = [{"role": "system", "content": self.prompt("system")}]
            for example in json.loads(self.files["examples.json"]):
                messages += example
            moves = await tools.moves()
            asked = self.prompt("user").replace("{moves}", ", ".join(self.shortlist(moves)))
            messages.append({"role": "user", "content": asked})
            reply = await model.chat(messages, prefix="<move>", stop=["</move>"], max_tokens=self.move_tokens)
            played = await tools.play(reply=reply)
            if played["over"]:
                return reply

    def shortlist(self, moves: list[dict[str, Any]]) -> list[str]:
        """The rule's moves in UCI, in the order of the board's list."""
        left = [move for move in moves if move["check"] and not move["attacked"]]
        if not left:
            best = max(map(self.trade, moves))
            left = [move for move in moves if self.trade(move) == best]
        return [move["from"] + move["to"] + move["promotes"] for move in left[: self.shown]]

    def trade(self, move: dict[str, Any]) -> int:
        """What the move takes, less the mover where the opponent can take back."""
        return VALUES[move["takes"]] - (VALUES[move["piece"]] if move["attacked"] else 0)

    def prompt(self, name: str) -> str:
        return self.files[f"prompts/{name}.md"].strip()
