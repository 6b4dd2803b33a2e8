"""The initial harness: the legal moves in a line, one worked example, the tag opened, a move a turn."""

import json
from collections.abc import Mapping
from typing import Any

from whale.harness import Harness, Model, Reply, Tools


class ChessHarness(Harness):
    max_turns = 5
    move_tokens = 24
    detail = 1  # 1: the move; 2: what moves; 3: what it takes; 4: check; 5: whether the square is attacked

    async def run(self, task: Mapping[str, Any], model: Model, tools: Tools) -> Reply:
        messages = self.opening()
        asked = self.prompt("user").replace("{turn}", task["turn"]).replace("{fen}", task["fen"])
        while True:
            moves = await tools.moves()
            messages.append({"role": "user", "content": asked.replace("{moves}", self.show(moves))})
            reply = await model.chat(messages, prefix="<move>", stop=["</move>"], max_tokens=self.move_tokens)
            played = await tools.play(reply=reply)
            if played["over"]:
                return reply
            messages.append(reply)
            asked = self.prompt("next").replace("{reply}", played["reply"])

    def opening(self) -> list[Any]:
        """The system prompt and the worked examples."""
        messages: list[Any] = [{"role": "system", "content": self.prompt("system")}]
        for example in json.loads(self.files["examples.json"]):
            messages += example
        return messages

    def show(self, moves: list[dict[str, Any]]) -> str:
        """The legal moves, each with as many of its facts as `detail` says."""
        return ", ".join(" ".join(self.words(move)) for move in moves)

    def words(self, move: dict[str, Any]) -> list[str]:
        facts = [
            move["piece"],
            f"takes {move['takes']}" if move["takes"] else "",
            "check" if move["check"] else "",
            "attacked" if move["attacked"] else "",
        ]
        uci = move["from"] + move["to"] + move["promotes"]
        return [uci, *(fact for fact in facts[: self.detail - 1] if fact)]

    def prompt(self, name: str) -> str:
        return self.files[f"prompts/{name}.md"].strip()
