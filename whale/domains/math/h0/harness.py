"""The initial harness: two worked examples, one turn."""

import json
from collections.abc import Mapping
from typing import Any

from whale.harness import Harness, Model, Reply, Tools


class MathHarness(Harness):
    max_turns = 1
    answer_tokens = 72

    async def run(self, task: Mapping[str, Any], model: Model, tools: Tools) -> Reply:
        return await model.chat(self.opening(task["question"]), max_tokens=self.answer_tokens)

    def opening(self, question: str) -> list[Any]:
        """The system prompt, the worked examples and the question."""
        messages: list[Any] = [{"role": "system", "content": self.prompt("system")}]
        for example in json.loads(self.files["examples.json"]):
            messages += example
        asked = self.prompt("user").replace("{question}", question)
        return [*messages, {"role": "user", "content": asked}]

    def prompt(self, name: str) -> str:
        return self.files[f"prompts/{name}.md"].strip()
