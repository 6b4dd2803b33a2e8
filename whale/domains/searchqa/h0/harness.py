"""The initial harness: the model writes a query, reads one passage, and answers."""

import json
from collections.abc import Mapping
from typing import Any

from whale.harness import Harness, Model, Reply, Tools


class SearchHarness(Harness):
    max_turns = 2
    passages = 1
    passage_words = 200
    query_tokens = 24
    answer_tokens = 24

    async def run(self, task: Mapping[str, Any], model: Model, tools: Tools) -> Reply:
        messages = self.opening(task["question"])
        asked = await model.chat(messages, stop=["</search>"], max_tokens=self.query_tokens)
        query = self.query_of(asked.text)
        found = await tools.search(query=query, k=self.passages) if query else []
        messages += [asked, {"role": "user", "content": self.show(found)}]
        return await model.chat(messages, stop=["</answer>"], max_tokens=self.answer_tokens)

    def opening(self, question: str) -> list[Any]:
        """The system prompt, the worked examples and the question."""
        messages: list[Any] = [{"role": "system", "content": self.prompt("system")}]
        for example in json.loads(self.files["examples.json"]):
            messages += example
        asked = self.prompt("user").replace("{question}", question)
        return [*messages, {"role": "user", "content": asked}]

    def query_of(self, text: str) -> str:
        """The model's own query, forwarded unchanged."""
        return text.split("<search>")[-1].split("</search>")[0].strip()

    def show(self, found: list[dict[str, str]]) -> str:
        """The passages as the model reads them, each cut to a length in words."""
        texts = [" ".join(passage["text"].split()[: self.passage_words]) for passage in found]
        return self.prompt("results").replace("{passages}", "\n".join(texts))

    def prompt(self, name: str) -> str:
        return self.files[f"prompts/{name}.md"].strip()
