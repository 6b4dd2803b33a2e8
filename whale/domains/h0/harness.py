"""The initial harness of a domain of questions and answers: worked examples, one turn."""

import json
from collections.abc import Mapping
from typing import Any

from whale.harness import Harness, Model, Reply, Tools


class AnswerHarness(Harness):
    max_turns = 1
    answer_tokens = 48

    async def run(self, task: Mapping[str, Any], model: Model, tools: Tools) -> Reply:
        messages = self.opening(task["question"])
        return await model.chat(messages, stop=["</answer>"], max_tokens=self.answer_tokens)

    def opening(self, question: str) -> list[Any]:
        """The instruction, the worked examples and the question."""
        messages: list[Any] = [{"role": "system", "content": self.prompt("system")}]
        for example in json.loads(self.files["examples.json"]):
            messages += example
        asked = self.prompt("user").replace("{question}", question)
        return [*messages, {"role": "user", "content": asked}]

    def prompt(self, name: str) -> str:
        return self.files[f"prompts/{name}.md"].strip()
